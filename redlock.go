// Package redlock is a distributed lock over N independent Redis masters: the Redlock
// algorithm, held by whoever holds it on a majority of them.
//
//	rl := redlock.New(goredis.NewPool(a), goredis.NewPool(b), goredis.NewPool(c))
//	defer rl.Close()
//
//	m := rl.NewMutex("invoice:42")
//	if err := m.LockContext(ctx); err != nil {
//		return err // errors.Is tells: ErrTaken, ErrNoQuorum, the context's error, …
//	}
//	defer m.Unlock()
//
// A lock is a lease. It is granted for an expiry, and may be trusted until [Mutex.Until], a little
// less. Work whose length is not known beforehand is better done in [Redlock.Do], or under a
// context from [Mutex.Hold], which keeps the lock extended and ends when it is lost.
//
// No lease can stop a holder that was paused for longer than it lasts from going on
// afterwards. Where that must not do harm, ask for fencing tokens with [WithFencing], claim the
// resource with the token before the first read, and let it refuse a token lower than one it has
// seen.
//
// The algorithm is described at
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/. The docs folder of
// the repository says what it promises, fault by fault.
package redlock

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/grant"
	"github.com/redlock-go/redlock/internal/keys"
	"github.com/redlock-go/redlock/internal/line"
	"github.com/redlock-go/redlock/internal/oneline"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/renew"
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

// Redlock makes mutexes on one group of nodes. It is safe for concurrent use. The
// zero value is not usable, and its methods panic; call [New]. A nil context panics everywhere.
type Redlock struct {
	core *core
	cfg  *config
	err  error // a mistake in the pools or options, returned on first use
}

// core is what all Redlocks derived from one New share.
type core struct {
	nodes   []*quorum.Node
	quorum  int
	tracker *quorum.Tracker // commands in the clients' hands
	now     func() time.Time

	tokens wire.Tokens

	lines    *line.Lines
	renewals renew.Queue
	closed   chan struct{} // closed by Close, under mu

	mu    sync.Mutex // guards what follows
	holds map[*hold]struct{}
}

// New returns a Redlock on the given nodes, with the default options. A quorum is N/2 + 1 of them,
// whether they can be reached or not, so their number is usually odd: 5, or 3. Every process that
// shares a lock must be given the same nodes.
//
// New does no I/O and cannot fail: no pools, a nil pool or one pool given twice is an
// [*OptionError] on first use. The pools stay the caller's, to close after the Redlock.
func New(pools ...pool.Pool) *Redlock {
	cfg, tracker := defaults(), quorum.NewTracker()
	nodes := quorum.Nodes(pools, tracker)
	var own clock.Own
	if len(pools) > 0 {
		if src, ok := pools[0].(clock.Source); ok {
			own = src.Clock()
		}
	}
	c := &core{
		nodes:   nodes,
		quorum:  quorum.Majority(len(pools)),
		tracker: tracker,
		now:     time.Now,
		closed:  make(chan struct{}),
		holds:   map[*hold]struct{}{},
	}
	if own.Now != nil {
		c.now = own.Now
	}
	name, jitter := crand.Text, rand.N[time.Duration]
	if own.Name != nil {
		name = own.Name
	}
	if own.Jitter != nil {
		jitter = own.Jitter
	}
	c.tokens.Now = c.now
	c.lines = line.New(line.Config{
		Nodes: nodes, Tracker: tracker, Channel: keys.TurnChannel + name(),
		Closed: c.closed, Now: c.now, Jitter: jitter,
	})
	return &Redlock{core: c, cfg: &cfg, err: oneline.Join(checkPools(pools), cfg.finish())}
}

// mustBeMade panics if New did not make r.
func (r *Redlock) mustBeMade() {
	if r == nil || r.core == nil {
		panic("redlock: this Redlock is nil or the zero value: make it with New")
	}
}

// mustBeMade panics if NewMutex did not make m, or if ctx is nil.
func (m *Mutex) mustBeMade(ctx context.Context) {
	if m == nil || m.core == nil {
		panic("redlock: this Mutex is nil or the zero value: make it with NewMutex")
	}
	needContext(ctx)
}

// needContext panics if ctx is nil, before anything is sent.
func needContext(ctx context.Context) {
	if ctx == nil {
		panic("redlock: nil context")
	}
}

// checkPools says what is wrong with the pools. One node that counts twice would make a quorum of
// less than half.
func checkPools(pools []pool.Pool) error {
	if len(pools) == 0 {
		return &OptionError{"New", "no pools", "needs at least one pool"}
	}
	seen := make(map[pool.Pool]int, len(pools))
	for i, p := range pools {
		v := reflect.ValueOf(p)
		if p == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return &OptionError{"New", fmt.Sprintf("pool %d is nil", i),
				"needs pools that are not nil"}
		}
		if !v.Comparable() {
			continue
		}
		if first, ok := seen[p]; ok {
			return &OptionError{"New", fmt.Sprintf("pools %d and %d are the same", first, i),
				"needs each node once"}
		}
		seen[p] = i
	}
	return nil
}

// With returns a Redlock on the same nodes whose mutexes have the given options by default, added
// to those of r. Both share what belongs to the nodes: closing one closes the other.
func (r *Redlock) With(opts ...Option) *Redlock {
	cfg, err := r.configure(opts)
	return &Redlock{core: r.core, cfg: cfg, err: err}
}

// configure returns the config of r with opts added, and what is wrong with it.
func (r *Redlock) configure(opts []Option) (*config, error) {
	r.mustBeMade()
	if len(opts) == 0 {
		return r.cfg, r.err
	}
	cfg := *r.cfg
	for i, o := range opts {
		if o == nil {
			cfg.nilErr = &OptionError{"Option", fmt.Sprintf("option %d is nil", i),
				"needs options that are not nil"}
			continue
		}
		o.apply(&cfg)
	}
	pools := make([]pool.Pool, len(r.core.nodes))
	for i, n := range r.core.nodes {
		pools[i] = n.Pool
	}
	return &cfg, oneline.Join(checkPools(pools), cfg.finish())
}

// NewMutex returns a mutex with a name, not locked. It is the handle of one owner: two parts of a
// program that are to exclude each other each make their own, with the same name.
// NewMutex does no I/O. The Redis key is the name, after the prefix of [WithKeyPrefix]; two
// users of one name exclude each other whatever their other options. The name is not empty, and the
// key is not that of a fence counter: see [WithFencing] and [WithFencePerName].
func (r *Redlock) NewMutex(name string, opts ...Option) *Mutex {
	cfg, err := r.configure(opts)
	m := &Mutex{core: r.core, cfg: cfg, name: name, key: cfg.prefix + name, err: err}
	if nameErr := cfg.checkName("NewMutex", name, m.key); nameErr != nil {
		m.err = oneline.Join(nameErr, err)
	}
	m.nodes = grant.Lock{
		Lock:  wire.NewLock(m.key, &cfg.Terms, &r.core.tokens),
		Lanes: quorum.Lanes(r.core.nodes), Now: r.core.now, Denied: heldBy,
	}
	m.tell = newTeller(m)
	if cfg.value != nil {
		m.cur = newLease(m, *cfg.value)
		m.cur.TakeOver()
	}
	return m
}

// checkName says what is wrong with a lock's name and the key that it makes.
func (c *config) checkName(of, name, key string) error {
	switch {
	case name == "":
		return &OptionError{of, `""`, "needs a name that is not empty"}
	case keys.IsSharedCounter(key), c.FencePerName && keys.IsOwnCounter(key):
		return &OptionError{of, strconv.Quote(name),
			"needs a name other than that of a fence counter"}
	}
	return nil
}

// register notes a hold that Close is to end; false if Close has been called.
func (c *core) register(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return false
	}
	c.holds[h] = struct{}{}
	return true
}

func (c *core) unregister(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds, h)
}

// isClosed reports whether Close has been called.
func (c *core) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}
