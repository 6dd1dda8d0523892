package fence

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// PgxTx is what [Pgx] needs of a transaction: a pgx.Tx has it, with pgconn.CommandTag for Tag.
type PgxTx[Tag interface{ RowsAffected() int64 }] interface {
	// Exec runs a statement that returns no rows.
	Exec(ctx context.Context, query string, args ...any) (Tag, error)
	// Commit is not called. A pool has none, and does not pass for a transaction.
	Commit(ctx context.Context) error
}

// Pgx lets [Guard] use a transaction of pgx, without database/sql:
//
//	pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
//		func(tx pgx.Tx) error {
//			token := redlock.FencingToken(ctx)
//			err := fence.Guard(ctx, fence.Pgx(tx), fence.Postgres, "account:42", token)
//			if err != nil {
//				return err
//			}
//			… // read and write, in tx
//		})
//
// The transaction is not one within another, which may be rolled back alone.
func Pgx[Tag interface{ RowsAffected() int64 }](tx PgxTx[Tag]) Tx { return pgxTx[Tag]{tx} }

type pgxTx[Tag interface{ RowsAffected() int64 }] struct{ tx PgxTx[Tag] }

func (p pgxTx[Tag]) ExecContext(
	ctx context.Context,
	query string,
	args ...any,
) (sql.Result, error) {
	tag, err := p.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}
