//go:build linux

package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/fence"
)

// pair is two accounts that only transfers between them touch, and rivals.
type pair struct {
	d    database
	db   *sql.DB
	a, b int
}

// newPairs makes tables and n pairs of accounts.
func newPairs(t *testing.T, d database, db *sql.DB, n int) []pair {
	for _, s := range []string{
		`CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL)`,
		`CREATE TABLE ballast (n INTEGER)`,
	} {
		_, err := db.Exec(s)
		require.NoError(t, err)
	}
	pairs := make([]pair, n)
	for i := range pairs {
		pairs[i] = pair{d, db, 2 * i, 2*i + 1}
		_, err := db.Exec(fmt.Sprintf(`INSERT INTO account VALUES (%d, %d), (%d, %d)`,
			2*i, balance, 2*i+1, balance))
		require.NoError(t, err)
	}
	return pairs
}

// balances returns what is in the accounts.
func (p pair) balances(t *testing.T) (a, b int64) {
	ctx := context.Background()
	for id, to := range map[int]*int64{p.a: &a, p.b: &b} {
		err := p.db.QueryRowContext(ctx, p.balance(id)).Scan(to)
		require.NoError(t, err)
	}
	return a, b
}

func (p pair) balance(id int) string {
	return fmt.Sprintf(`SELECT balance FROM account WHERE id = %d`, id)
}

func (p pair) set(id int, to int64) string {
	return fmt.Sprintf(`UPDATE account SET balance = %d WHERE id = %d`, to, id)
}

// rival is a transaction that has locked account b and written a lot, and now waits for account a:
// a transaction that has locked a, and comes for b, ends in a deadlock. MariaDB ends the one that
// has written less, PostgreSQL the first that looks. The function that rival returns waits until
// the rival has gone.
func (p pair) rival(t *testing.T) (gone func()) {
	ctx := context.Background()
	tx, err := p.d.begin(ctx, p.db)
	require.NoError(t, err)
	_, err = tx.ExecContext(
		ctx,
		`INSERT INTO ballast VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)`,
	)
	require.NoError(t, err)
	_, err = tx.ExecContext(
		ctx,
		fmt.Sprintf(`SELECT 1 FROM account WHERE id = %d FOR UPDATE NOWAIT`, p.b),
	)
	if err != nil { // a rival of another transfer has it, whose guard has ended
		require.NoError(t, tx.Rollback())
		return func() {}
	}
	var waits sync.WaitGroup
	waits.Go(func() {
		// It fails if the deadlock ends the rival.
		lock := fmt.Sprintf(`SELECT 1 FROM account WHERE id = %d FOR UPDATE`, p.a)
		tx.ExecContext(ctx, lock)
		tx.Rollback()
	})
	return waits.Wait
}

// holding returns the context of a lock that is held until the test ends.
func holding(t *testing.T) context.Context {
	ctx, err := locks(t).NewMutex("a", redlock.WithFencing()).Hold(t.Context())
	require.NoError(t, err)
	return ctx
}

// MariaDB ends a transaction after a deadlock, and before some statements, and commits what comes
// then at once. InTx notices.
// lesson L123
func TestInTxNoticesThatMariaDBHasEndedItsTransaction(t *testing.T) {
	d := databases[1]
	db := d.open(t, d.start(t))
	_, err := db.Exec(d.dialect.Schema())
	require.NoError(t, err)
	p := newPairs(t, d, db, 1)[0]
	_, err = db.Exec(`CREATE TABLE word (w INTEGER)`)
	require.NoError(t, err)
	ctx := holding(t)

	// transfer moves 10 from a to b, and lets between happen between the two writes.
	transfer := func(t *testing.T, between func(tx *sql.Tx) error) error {
		for _, id := range []int{p.a, p.b} {
			_, err := db.Exec(p.set(id, balance))
			require.NoError(t, err)
		}
		return fence.InTx(ctx, db, d.dialect, "a", func(tx *sql.Tx) error {
			if _, err := tx.Exec(p.set(p.a, balance-10)); err != nil {
				return err
			}
			if err := between(tx); err != nil {
				return err
			}
			_, err := tx.Exec(p.set(p.b, balance+10))
			return err
		})
	}
	deadlock := func(t *testing.T, tx *sql.Tx) error {
		gone := p.rival(t)
		_, err := tx.Exec(p.set(p.b, balance+10))
		gone()
		require.ErrorContains(t, err, "Deadlock found")
		return err
	}

	t.Run("deadlock, and the statement again", func(t *testing.T) {
		err := transfer(t, func(tx *sql.Tx) error { deadlock(t, tx); return nil })
		require.ErrorIs(t, err, fence.ErrTxEnded)
		assert.EqualError(t, err, "fence: the transaction ended early: a deadlock, an "+
			"interrupted statement, or one that commits such as CREATE TABLE, ended the guard of "+
			`"a" inside fn, and part of what fn did may stand`)
		a, b := p.balances(t)
		assert.Equal(t, []int64{balance, balance + 10}, []int64{a, b}, "what may stand")
	})
	t.Run("deadlock, and the error returned", func(t *testing.T) {
		err := transfer(t, func(tx *sql.Tx) error { return deadlock(t, tx) })
		require.ErrorIs(t, err, fence.ErrTxEnded)
		require.ErrorContains(t, err, "part of what fn did may stand: Error 1213")
		a, b := p.balances(t)
		assert.Equal(t, []int64{balance, balance}, []int64{a, b}, "nothing stands")
	})
	for _, statements := range [][]string{
		{`CREATE TABLE IF NOT EXISTS account (id INTEGER)`},
		{`CREATE INDEX by_balance ON account (balance)`},
		{`TRUNCATE TABLE word`},
		{`ANALYZE TABLE account`},
		{`LOCK TABLES account WRITE`, `UNLOCK TABLES`},
		{`COMMIT`},
		{`COMMIT AND CHAIN`},
		{`ROLLBACK`},
		{`ROLLBACK AND CHAIN`},
		{`START TRANSACTION`},
		{`COMMIT`, `SAVEPOINT redlock_fence`},
	} {
		t.Run(fmt.Sprint(statements), func(t *testing.T) {
			err := transfer(t, func(tx *sql.Tx) error {
				for _, s := range statements {
					_, err := tx.Exec(s)
					require.NoError(t, err)
				}
				return nil
			})
			require.ErrorIs(t, err, fence.ErrTxEnded)
		})
	}
	for _, statement := range []string{
		`SELECT 1 FROM account WHERE id = 1 FOR UPDATE NOWAIT`, // a timeout
		`INSERT INTO account VALUES (0, 0)`,
		`SELECT nothing`,
		`SAVEPOINT s`,
		`CREATE TEMPORARY TABLE t (n INTEGER)`,
	} {
		t.Run("not by "+statement, func(t *testing.T) {
			require.NoError(t, transfer(t, func(tx *sql.Tx) error {
				other, err := db.Begin()
				require.NoError(t, err)
				defer other.Rollback()
				_, err = other.Exec(`SELECT 1 FROM account WHERE id = 1 FOR UPDATE`)
				require.NoError(t, err)
				tx.Exec(statement)
				return nil
			}))
			a, b := p.balances(t)
			assert.Equal(t, []int64{balance - 10, balance + 10}, []int64{a, b})
		})
	}
}

// SQLite ends a transaction when a statement that writes is interrupted, and commits at once what
// comes then. InTx notices.
func TestInTxNoticesThatSQLiteHasEndedItsTransaction(t *testing.T) {
	d := databases[2]
	db := d.open(t, d.start(t))
	_, err := db.Exec(d.dialect.Schema())
	require.NoError(t, err)
	_, err = db.Exec(`CREATE TABLE account (id INTEGER PRIMARY KEY)`)
	require.NoError(t, err)
	ctx, errFn := holding(t), errors.New("fn failed")
	interrupted := func(tx *sql.Tx) error {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := tx.ExecContext(soon, `INSERT INTO account WITH RECURSIVE n(x) AS
(SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n`)
		return err
	}
	or := func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT OR ROLLBACK INTO account VALUES (1), (1)`)
		return err
	}
	_, err = db.Exec(`CREATE TABLE word (w INTEGER)`)
	require.NoError(t, err)
	require.NoError(t, fence.InTx(ctx, db, d.dialect, "a", func(tx *sql.Tx) error {
		_, err := tx.Query(`INSERT INTO word VALUES (1), (2) RETURNING w`)
		return err
	}), "rows that fn leaves open")
	err = fence.InTx(ctx, db, d.dialect, "a", func(tx *sql.Tx) error { return tx.Rollback() })
	require.ErrorIs(t, err, sql.ErrTxDone)
	require.NotErrorIs(t, err, fence.ErrTxEnded)
	for _, ends := range []func(*sql.Tx) error{interrupted, or} {
		for _, then := range []error{nil, errFn} {
			err := fence.InTx(ctx, db, d.dialect, "a", func(tx *sql.Tx) error {
				require.Error(t, ends(tx))
				return then
			})
			require.ErrorIs(t, err, fence.ErrTxEnded)
			if then != nil {
				require.ErrorIs(t, err, errFn)
			}
		}
	}
	require.NoError(t, fence.InTx(ctx, db, d.dialect, "a", func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO account VALUES (1)`)
		require.NoError(t, err)
		_, err = tx.Exec(`INSERT INTO account VALUES (1)`)
		require.Error(t, err, "which ends only the statement")
		return nil
	}))
	var n int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM account`).Scan(&n))
	require.Equal(t, 1, n)
}

// If SQLite ends the transaction inside Guard, because the disk is full for instance, InTx returns
// its connection to the pool.
func TestInTxWhoseGuardEndsTheTransaction(t *testing.T) {
	d := databases[2]
	db := d.open(t, d.start(t))
	db.SetMaxOpenConns(1)
	dialect := d.dialect.WithTable("guards")
	for _, s := range []string{dialect.Schema(), `CREATE TRIGGER t BEFORE INSERT ON guards
BEGIN SELECT RAISE(ROLLBACK, 'disk full'); END`} {
		_, err := db.Exec(s)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(holding(t), 10*time.Second)
	defer cancel()
	err := fence.InTx(ctx, db, dialect, "a", func(*sql.Tx) error { return nil })
	require.ErrorContains(t, err, "disk full")
	require.Zero(t, db.Stats().InUse)
}

// Where ctx ends in fn, the transaction is rolled back as a whole: the database has not ended it.
func TestInTxWhoseContextEnds(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		held := holding(t)
		for range 50 {
			ctx, cancel := context.WithCancel(held)
			err := fence.InTx(ctx, db, d.dialect, "a", func(*sql.Tx) error {
				cancel()
				return ctx.Err()
			})
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, fence.ErrTxEnded)
		}
	})
}

// On MariaDB a transaction that is the first to use a resource, and is rolled back, causes a
// deadlock of those that wait for it. InTx begins again.
// lesson L124
func TestTheFirstUseByManyThatRollBack(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		ctx, errFn := holding(t), errors.New("fn failed")
		for i := range 30 {
			var many sync.WaitGroup
			for range 8 {
				many.Go(func() {
					err := fence.InTx(ctx, db, d.dialect, fmt.Sprintf("first %d", i),
						func(*sql.Tx) error { return errFn })
					assert.Equal(t, errFn, err)
				})
			}
			many.Wait()
		}
	})
}

// Transfers by fn of all kinds: with deadlocks, with statements that commit, that try again, that
// ignore errors, by holders that are stale. Each account has the right balance, unless one of its
// transfers returned ErrTxEnded. PostgreSQL ends no transaction by itself.
// lesson L123
func TestTransfersByInTx(t *testing.T) {
	for _, d := range databases[:2] {
		t.Run(d.name, func(t *testing.T) {
			db := d.open(t, d.start(t))
			_, err := db.Exec(d.dialect.Schema())
			require.NoError(t, err)
			const each = 4 // transfers of a pair, at the same time
			pairs := newPairs(t, d, db, max(1, *transfers/each))
			rl := locks(t)
			var next, done, refused, deadlocks, ended atomic.Int64
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					for {
						i := int(next.Add(1)) - 1
						if i >= len(pairs) {
							return
						}
						p := pairs[i]
						var moved atomic.Int64
						var unsure atomic.Bool
						var four sync.WaitGroup
						for n := range each {
							r := rand.New(rand.NewPCG(uint64(i), uint64(n)))
							four.Go(func() {
								amount := 1 + r.Int64N(20)
								deadlocked, err := p.transfer(t, rl, r, amount)
								if deadlocked {
									deadlocks.Add(1)
								}
								switch {
								case err == nil:
									done.Add(1)
									moved.Add(amount)
								case errors.Is(err, fence.ErrTxEnded):
									unsure.Store(true)
									ended.Add(1)
								default:
									refused.Add(1)
								}
							})
						}
						four.Wait()
						if unsure.Load() {
							continue
						}
						a, b := p.balances(t)
						assert.Equal(t, balance-moved.Load(), a, "an update is lost")
						assert.Equal(t, balance+moved.Load(), b, "an update is lost")
					}
				})
			}
			all.Wait()
			t.Logf("%d transfers, %d failed and left nothing, %d of a transaction that ended "+
				"early, %d deadlocks", done.Load(), refused.Load(), ended.Load(), deadlocks.Load())
			assert.Positive(t, deadlocks.Load())
			assert.Equal(t, d.name == "mariadb", ended.Load() > 0)
		})
	}
}

// transfer takes the lock of the pair and moves an amount, in one of many ways. It reports whether
// there was a deadlock.
func (p pair) transfer(
	t *testing.T,
	rl *redlock.Redlock,
	r *rand.Rand,
	amount int64,
) (deadlocked bool, err error) {
	resource := fmt.Sprintf("pair %d", p.a)
	m := rl.NewMutex(resource, redlock.WithFencing(), redlock.WithTries(1000))
	ctx, err := m.Hold(t.Context())
	require.NoError(t, err)
	stale := r.IntN(4) == 0
	if stale { // it goes on without the lock
		ctx = context.WithoutCancel(ctx)
		_, err := m.Unlock()
		require.NoError(t, err)
	} else {
		defer m.Unlock()
	}
	var (
		deadlock = r.IntN(4) == 0
		commits  = r.IntN(16) == 0
		again    = r.IntN(4) // 0: gives up at an error, 1: ignores it, 2, 3: tries again
		whole    = r.IntN(2) == 0
	)
	return deadlocked, fence.InTx(ctx, p.db, p.d.dialect, resource, func(tx *sql.Tx) error {
		var a, b int64
		for id, to := range map[int]*int64{p.a: &a, p.b: &b} {
			if err := tx.QueryRow(p.balance(id)).Scan(to); err != nil {
				return err
			}
		}
		work := func() error {
			for _, statement := range []string{p.set(p.a, a-amount), p.set(p.b, b+amount)} {
				run := func() error { _, err := tx.Exec(statement); return err }
				err := run()
				if err != nil {
					deadlocked = true
				}
				if err != nil && again > 1 && !whole {
					err = run()
				}
				if err != nil && again != 1 {
					return err
				}
				if commits {
					commits = false
					_, err := tx.Exec(`CREATE TABLE IF NOT EXISTS ballast (n INTEGER)`)
					if err != nil {
						return err
					}
				}
				if deadlock {
					deadlock = false
					defer p.rival(t)()
				}
			}
			return nil
		}
		err := work()
		if err != nil && again > 1 && whole {
			err = work()
		}
		return err
	})
}
