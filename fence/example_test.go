package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"log"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/fence"
)

var (
	rl *redlock.Redlock
	db *sql.DB
)

// A transfer that no paused holder can spoil. The table of tokens is made once, with the other
// migrations: db.Exec(fence.Postgres.Schema()).
func ExampleInTx() {
	err := rl.Do(context.Background(), "account:42", func(ctx context.Context) error {
		return fence.InTx(ctx, db, fence.Postgres, "account:42", func(tx *sql.Tx) error {
			var balance int64
			row := tx.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = 42`)
			if err := row.Scan(&balance); err != nil {
				return err
			}
			_, err := tx.ExecContext(
				ctx,
				`UPDATE account SET balance = $1 WHERE id = 42`,
				balance-10,
			)
			return err
		})
	}, redlock.WithFencing())
	if errors.Is(err, fence.ErrStale) {
		log.Print("somebody else has had the lock meanwhile; nothing was written")
	}
}

// A transaction of one's own: Guard comes first, before anything is read.
func ExampleGuard() {
	transfer := func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		token := redlock.FencingToken(ctx)
		if err := fence.Guard(ctx, tx, fence.MySQL, "account:42", token); err != nil {
			return err
		}
		// Read and write, in tx.
		return tx.Commit()
	}
	err := rl.Do(context.Background(), "account:42", transfer, redlock.WithFencing())
	if err != nil {
		log.Print(err)
	}
}
