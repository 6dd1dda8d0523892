//go:build linux

package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/fence"
)

var transfers = flag.Int(
	"transfers",
	400,
	"how many transfers the bank tests make on each database",
)

const (
	accounts = 4
	balance  = 1000 // of each account in the beginning
	tellers  = 8
	resource = "bank"
)

// bank is accounts whose balances are read, changed by the program and written back: without a
// lock, or with a lock whose holders are paused, updates are lost.
type bank struct {
	d    database
	db   *sql.DB
	lock leases

	conflicts bool // the database may have to refuse one of two transactions

	committed, stale, lapsed, refused atomic.Int64
}

// conflict is what MariaDB and SQLite say to a transaction that they refuse because of another.
var conflict = regexp.MustCompile(`Deadlock found|database is locked`)

// leases is a lock whose leases end when their holders are paused. Its tokens increase.
type leases struct {
	held  chan struct{} // has room for one holder
	token atomic.Uint64
}

func newBank(t *testing.T, d database, db *sql.DB) *bank {
	b := &bank{d: d, db: db, lock: leases{held: make(chan struct{}, 1)}}
	for _, s := range []string{
		`CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL)`,
		`CREATE TABLE transfer (source INTEGER, target INTEGER, amount BIGINT)`,
	} {
		_, err := db.Exec(s)
		require.NoError(t, err)
	}
	for id := range accounts {
		_, err := db.Exec(fmt.Sprintf(`INSERT INTO account VALUES (%d, %d)`, id, balance))
		require.NoError(t, err)
	}
	db.SetMaxOpenConns(tellers)
	return b
}

// guarded is how a transfer is kept apart from others: it runs fn, unless the token is stale.
type guarded func(ctx context.Context, token uint64, fn func(tx *sql.Tx) error) error

// byGuard is the way that the package offers.
func (b *bank) byGuard(ctx context.Context, token uint64, fn func(tx *sql.Tx) error) error {
	tx, err := b.d.begin(ctx, b.db)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fence.Guard(ctx, tx, b.d.dialect, resource, token); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// byCheckAlone looks at the token and stores it, but keeps no lock on its row: the mutant.
func (b *bank) byCheckAlone(ctx context.Context, token uint64, fn func(tx *sql.Tx) error) error {
	claim, err := b.d.begin(ctx, b.db)
	if err != nil {
		return err
	}
	defer claim.Rollback()
	if err := fence.Guard(ctx, claim, b.d.dialect, resource, token); err != nil {
		return err
	}
	if err := claim.Commit(); err != nil {
		return err
	}
	tx, err := b.d.begin(ctx, b.db)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// run makes transfers by several tellers, who are paused again and again, as many as the flag says.
func (b *bank) run(t *testing.T, seed uint64, guard guarded) {
	var left atomic.Int64
	left.Store(int64(*transfers))
	var all sync.WaitGroup
	for teller := range uint64(tellers) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, teller))
			for left.Load() > 0 {
				err := b.transfer(t.Context(), r, guard)
				switch {
				case err == nil:
					b.committed.Add(1)
					left.Add(-1)
				case errors.Is(err, fence.ErrStale):
					b.stale.Add(1)
				case b.conflicts && conflict.MatchString(err.Error()):
					b.refused.Add(1)
				default:
					t.Errorf("a transfer failed: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
}

// transfer takes the lock and moves an amount. At one of four moments the teller may be paused
// for so long that its lease ends and others go on.
func (b *bank) transfer(ctx context.Context, r *rand.Rand, guard guarded) error {
	b.lock.held <- struct{}{}
	token := b.lock.token.Add(1)
	holds := true
	release := func() {
		if holds {
			holds = false
			<-b.lock.held
		}
	}
	defer release()
	pauseAt, long := r.IntN(8), time.Duration(r.Int64N(int64(3*time.Millisecond)))
	pause := func(moment int) {
		if moment == pauseAt {
			b.lapsed.Add(1)
			release()
			time.Sleep(long) // the others run meanwhile
		}
	}

	source := r.IntN(accounts)
	target := (source + 1 + r.IntN(accounts-1)) % accounts
	amount := r.Int64N(20)
	pause(0)
	return guard(ctx, token, func(tx *sql.Tx) error {
		pause(1)
		var from, to int64
		if err := b.read(ctx, tx, source, &from); err != nil {
			return err
		}
		if err := b.read(ctx, tx, target, &to); err != nil {
			return err
		}
		pause(2)
		balances := map[int]int64{source: from - amount, target: to + amount}
		for _, id := range slices.Sorted(maps.Keys(balances)) {
			statement := fmt.Sprintf(
				`UPDATE account SET balance = %s WHERE id = %s`,
				b.d.bind(1),
				b.d.bind(2),
			)
			if _, err := tx.ExecContext(ctx, statement, balances[id], id); err != nil {
				return err
			}
		}
		statement := fmt.Sprintf(
			`INSERT INTO transfer VALUES (%s, %s, %s)`,
			b.d.bind(1),
			b.d.bind(2),
			b.d.bind(3),
		)
		_, err := tx.ExecContext(ctx, statement, source, target, amount)
		pause(3)
		return err
	})
}

func (b *bank) read(ctx context.Context, tx *sql.Tx, id int, balance *int64) error {
	return tx.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = `+b.d.bind(1), id).
		Scan(balance)
}

// lost returns by how much the balances differ from what the transfers say, and how many there are.
func (b *bank) lost(t *testing.T) (difference, count int64) {
	for id := range accounts {
		var is, should int64
		err := b.db.QueryRow(fmt.Sprintf(`SELECT balance, %d
			+ COALESCE((SELECT SUM(amount) FROM transfer WHERE target = %d), 0)
			- COALESCE((SELECT SUM(amount) FROM transfer WHERE source = %d), 0)
			FROM account WHERE id = %d`, balance, id, id, id)).Scan(&is, &should)
		require.NoError(t, err)
		difference += max(is-should, should-is)
	}
	require.NoError(t, b.db.QueryRow(`SELECT COUNT(*) FROM transfer`).Scan(&count))
	return difference, count
}

func TestNoUpdateIsLost(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		b := newBank(t, d, db)
		b.run(t, 1, b.byGuard)
		difference, count := b.lost(t)
		assert.Zero(t, difference, "an update is lost")
		assert.Equal(t, b.committed.Load(), count)
		assert.Positive(t, b.stale.Load(), "no stale holder was refused")
		t.Logf("%d transfers, %d leases ended before their holders did, %d stale holders refused",
			count, b.lapsed.Load(), b.stale.Load())
	})
}

// The planted bug: the token is checked and stored, and its row is not locked meanwhile. SQLite
// loses nothing by it: of two transactions that have read the same it refuses the second writer.
func TestACheckWithoutTheRowLockLosesUpdates(t *testing.T) {
	onEach(t, func(t *testing.T, d database, _ string, db *sql.DB) {
		b := newBank(t, d, db)
		b.conflicts = true // each of two has read what the other wants to write
		for seed := uint64(1); ; seed++ {
			b.run(t, seed, b.byCheckAlone)
			difference, count := b.lost(t)
			t.Logf("%d transfers, the balances are wrong by %d in all; %d transactions were "+
				"refused", count, difference, b.refused.Load())
			if d.driver == "sqlite" {
				require.Zero(t, difference)
				require.Positive(t, b.refused.Load())
				return
			}
			if difference > 0 {
				return
			}
			require.Less(t, seed, uint64(20), "no update was lost")
		}
	})
}
