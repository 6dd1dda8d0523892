// Package fence makes a SQL database refuse the holders of a lock that has been somebody else's
// since.
//
//	err := rl.Do(ctx, "account:42", func(ctx context.Context) error {
//		return fence.InTx(ctx, db, fence.Postgres, "account:42", func(tx *sql.Tx) error {
//			… // read and write, in tx
//		})
//	}, redlock.WithFencing())
//
// No lease can stop a holder that is paused for longer than the lease lasts. The database can. A
// table of the database keeps the greatest fencing token that each resource has seen. [Guard] is
// the first statement of a transaction: it fails if the table has a greater token, and else
// stores this one. It also locks the row until the transaction ends.
//
// Guarded transactions of one resource therefore run one after the other, and their tokens never
// decrease. A stale holder's transaction either commits before the newer holder's Guard returns, or
// fails. If it commits, the newer holder sees all that it wrote. This is mutual exclusion of what
// the holders do to the database. It does not depend on clocks, pauses or Redis. It depends on
// the order of the tokens, see [redlock.WithFencing], and on the row lock of the database.
//
// The tables that the lock protects need no further column. The price is one row written in each
// transaction.
//
// # Rules
//
//   - Every transaction that touches the resource begins with Guard, also one that only reads: a
//     stale holder that is not refused reads what a newer one is about to change.
//   - All users of a resource take the same lock, with [redlock.WithFencing].
//   - The isolation level is READ COMMITTED, as [InTx] sets it, or Guard is the very first
//     statement. On a higher level Postgres answers a concurrent Guard with SQLSTATE 40001: roll
//     back, try again.
//   - Nothing but Commit or Rollback ends the transaction: it has no statements such as COMMIT or
//     ROLLBACK, and on MySQL and MariaDB none that commits implicitly, such as CREATE TABLE. After
//     a deadlock there, and on SQLite after a write that was interrupted, nothing more is done
//     in it: the database may have ended it, see [ErrTxEnded].
//   - Guard is not behind a savepoint: when that is rolled back, so is Guard.
//   - Rows of the table are not deleted, unless every holder of a smaller token is gone for good.
//   - Several resources in one transaction are guarded in one order by everybody, or transactions
//     deadlock. A database ends one of them with an error.
//   - If all Redis nodes lose their data and their clocks are set far back, new tokens are
//     smaller than stored ones, and everybody is refused. Then, with all holders stopped: UPDATE
//     redlock_fence SET token = 0.
package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/redlock-go/redlock"
)

var (
	// ErrStale is returned when the resource has seen a greater token: the lock has been somebody
	// else's since. Roll back and stop; nothing that the transaction has done may stay.
	ErrStale = errors.New("fence: stale fencing token")

	// ErrNoToken is returned when the token is 0: the context is not that of a held lock, or the
	// lock was made without [redlock.WithFencing]. Nothing was sent.
	ErrNoToken = errors.New("fence: no fencing token")

	// ErrTxEnded is returned by [InTx] if the database ended the transaction while fn ran: part of
	// the work may stand. On MySQL and MariaDB a deadlock rolls back what came before it, and a
	// statement such as CREATE TABLE commits it. SQLite rolls it back when a statement that writes
	// is interrupted by its context, or finds the disk full, and for OR ROLLBACK. The statements
	// that follow are committed one by one, without the guard. If fn returned at once, nothing
	// stands.
	ErrTxEnded = errors.New("fence: the transaction ended early")
)

// MaxResource is the longest name of a resource, in bytes.
const MaxResource = 190

// StaleError is the error of a token that is too small. It matches [ErrStale].
type StaleError struct {
	Resource string // the name of what is guarded
	Token    uint64 // the one that was refused
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: %q has seen a greater fencing token than %d: "+
		"the lock has been somebody else's since", e.Resource, e.Token)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Tx is what Guard needs of a transaction: a [*sql.Tx] has it, and so does a [*sql.Conn] within
// one. [Pgx] makes one of a transaction of pgx.
type Tx interface {
	// ExecContext runs a statement that returns no rows.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Guard fails with [ErrStale] if the resource has seen a greater token than this one. Otherwise
// it stores the token, and keeps every other guarded transaction of the resource waiting until tx
// ends. An equal token passes: one holder may use as many transactions as it likes.
//
// Guard is the first statement of the transaction. A [*sql.DB] is none, and refused. It blocks
// while another guarded transaction of the resource is open, until ctx is done or the database
// gives up. After any error roll back: nothing is known about the resource then, except after
// ErrStale.
//
// The resource is a name of 1 to [MaxResource] bytes of UTF-8 without NUL, usually the lock's name.
func Guard(ctx context.Context, tx Tx, d Dialect, resource string, token uint64) error {
	if err := check(d, resource, token); err != nil {
		return err
	}
	if _, ok := tx.(*sql.DB); ok {
		return fmt.Errorf("fence: guarding %q: a *sql.DB is no transaction: make one by BeginTx, "+
			"or use InTx", resource)
	}
	admitted, err := d.guard(ctx, tx, d.quotedTable(), resource, int64(token))
	switch {
	case err != nil:
		return fmt.Errorf("fence: guarding %q: %w", resource, err)
	case !admitted:
		return &StaleError{resource, token}
	}
	return nil
}

// InTx runs fn in a transaction that is guarded by the fencing token of ctx, and commits it if fn
// returns nil. The ctx is a held context, of [redlock.Redlock.Do] or [redlock.Mutex.Hold] with
// [redlock.WithFencing]; when it ends, the transaction is rolled back. InTx blocks as [Guard] does,
// and until fn has returned. Under [redlock.Redlock.DoAll] there is a token for each name, and none
// of ctx: use Guard with [redlock.FencingTokenOf].
//
// It returns [ErrNoToken] or [ErrStale], and then fn was not called, or the error of fn or of the
// database. If the commit fails, the database alone knows whether the transaction happened. It
// returns [ErrTxEnded], beside the error of fn if there is one, if MySQL, MariaDB or SQLite has
// ended the transaction in fn. It cannot tell if ctx or the connection has ended, too.
//
// After a deadlock in Guard, before fn, InTx begins again, up to ten times.
func InTx(
	ctx context.Context,
	db *sql.DB,
	d Dialect,
	resource string,
	fn func(tx *sql.Tx) error,
) error {
	token := redlock.FencingToken(ctx)
	if err := check(d, resource, token); err != nil {
		return err
	}
	tx, err := beginGuarded(ctx, db, d, resource, token)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit; also when fn panics
	err = fn(tx)
	ended, lost := d.ended(ctx, tx)
	switch {
	case ended && err != nil:
		return fmt.Errorf("%w: %w", errEnded(resource), err)
	case ended:
		return errEnded(resource)
	case err != nil:
		return err
	case lost != nil:
		return fmt.Errorf("fence: committing: %w", lost)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fence: committing: %w", err)
	}
	return nil
}

// beginGuarded begins a transaction with Guard. It does so again after a deadlock: on MySQL several
// transactions that use a resource for the first time cause one if the first of them rolls back.
func beginGuarded(
	ctx context.Context,
	db *sql.DB,
	d Dialect,
	resource string,
	token uint64,
) (*sql.Tx, error) {
	for deadlocks := 0; ; deadlocks++ {
		tx, err := d.begin(ctx, db)
		if err != nil {
			return nil, fmt.Errorf("fence: beginning a transaction: %w", err)
		}
		err = Guard(ctx, tx, d, resource, token)
		if err == nil {
			return tx, nil
		}
		ended, _ := d.ended(ctx, tx)
		tx.Rollback() // does nothing if it is over
		if !ended || deadlocks == maxDeadlocks {
			return nil, err
		}
	}
}

// maxDeadlocks is how often InTx begins again. Each deadlock lets another transaction go on.
const maxDeadlocks = 10

func errEnded(resource string) error {
	return fmt.Errorf("%w: a deadlock, an interrupted statement, or one that commits such as "+
		"CREATE TABLE, ended the guard of %q inside fn, and part of what fn did may stand",
		ErrTxEnded, resource)
}

// check says what is wrong with the arguments of Guard.
func check(d Dialect, resource string, token uint64) error {
	switch {
	case d.guard == nil:
		return errors.New("fence: the Dialect is empty: use Postgres, MySQL or SQLite")
	case token == 0:
		return fmt.Errorf("%w for %q: the context must be that of a lock held with WithFencing",
			ErrNoToken, resource)
	case token > math.MaxInt64:
		return fmt.Errorf("fence: the token %d is greater than %d", token, int64(math.MaxInt64))
	case resource == "":
		return errors.New("fence: the resource has no name")
	case len(resource) > MaxResource:
		return fmt.Errorf(
			"fence: the name of the resource has %d bytes, more than %d",
			len(resource),
			MaxResource,
		)
	case !utf8.ValidString(resource) || strings.ContainsRune(resource, 0):
		return fmt.Errorf("fence: the resource %q is not UTF-8 without NUL", resource)
	}
	return d.checkTable()
}
