//go:build linux

package dbtest

import (
	"context"
	"errors"
	"log"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/fence"
)

// add adds one to account 0, guarded by the token, and lets between happen after it has read.
func add(ctx context.Context, pool *pgxpool.Pool, token uint64, between func()) error {
	readCommitted := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	return pgx.BeginTxFunc(ctx, pool, readCommitted, func(tx pgx.Tx) error {
		if err := fence.Guard(ctx, fence.Pgx(tx), fence.Postgres, "a", token); err != nil {
			return err
		}
		var n int
		row := tx.QueryRow(ctx, `SELECT balance FROM account WHERE id = 0`)
		if err := row.Scan(&n); err != nil {
			return err
		}
		between()
		_, err := tx.Exec(ctx, `UPDATE account SET balance = $1 WHERE id = 0`, n+1)
		return err
	})
}

// Guard takes a transaction of pgx, without database/sql.
func TestPgx(t *testing.T) {
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, startPostgres(t))
	require.NoError(t, err)
	defer pool.Close()
	for _, s := range []string{
		fence.Postgres.Schema(),
		`CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL)`,
		`INSERT INTO account VALUES (0, 0)`,
	} {
		_, err := pool.Exec(ctx, s)
		require.NoError(t, err)
	}
	require.NoError(t, add(ctx, pool, 2, func() {}))
	require.ErrorIs(t, add(ctx, pool, 1, func() {}), fence.ErrStale)
	gone, cancel := context.WithCancel(ctx)
	require.ErrorIs(t, add(gone, pool, 3, cancel), context.Canceled)
	require.NoError(t, add(ctx, pool, 2, func() {}), "what was rolled back claims nothing")

	// The one with the greater token waits for the other.
	var both sync.WaitGroup
	err = add(ctx, pool, 4, func() {
		both.Go(func() { assert.NoError(t, add(ctx, pool, 5, func() {})) })
		waits := func() (n int) {
			row := pool.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted`)
			require.NoError(t, row.Scan(&n))
			return n
		}
		for waits() == 0 {
		}
	})
	require.NoError(t, err)
	both.Wait()
	var n int
	row := pool.QueryRow(ctx, `SELECT balance FROM account WHERE id = 0`)
	require.NoError(t, row.Scan(&n))
	assert.Equal(t, 4, n, "an update is lost")
}

var (
	rl   *redlock.Redlock
	pool *pgxpool.Pool
)

// A transaction of pgx that no paused holder can spoil.
func ExamplePgx() {
	transfer := func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
			func(tx pgx.Tx) error {
				token := redlock.FencingToken(ctx)
				err := fence.Guard(ctx, fence.Pgx(tx), fence.Postgres, "account:42", token)
				if err != nil {
					return err
				}
				return nil // after reading and writing, in tx
			})
	}
	err := rl.Do(context.Background(), "account:42", transfer, redlock.WithFencing())
	if errors.Is(err, fence.ErrStale) {
		log.Print("somebody else has had the lock meanwhile; nothing was written")
	}
}
