package sim_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
	goredis9 "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/redigo"
)

// The second ring: the adapters, with the clients they adapt at (nearly) their default options,
// over a network in memory with delays, partitions and losses, to embedded nodes. What the first
// ring assumes of a Pool, the whole stack has to keep. Every fourth seed is without faults.
func TestSchedulesThroughTheAdapters(t *testing.T) {
	n := schedules(8)
	states, grants := make(map[string]int), 0
	begun, done := time.Now(), 0
	defer func() {
		t.Logf("%d schedules in %v, %d grants, %v", done,
			time.Since(begun).Round(time.Millisecond), grants, states)
	}()
	for done < n {
		s := setup{Seed: *first + uint64(done), Nodes: 3, Clients: 3, Workers: 1, Cycles: 3,
			Faults: partition}
		if s.Seed%4 == 0 {
			s.Faults = 0
		}
		done++
		again := fmt.Sprintf("go test ./internal/test/sim -v "+
			"-run '^TestSchedulesThroughTheAdapters$' -first %d -schedules 1", s.Seed)
		h := newHistory(s)
		emptyPools()
		bubble(t, again, func(t *testing.T) { throughAdapters(t, h) })
		if len(h.violations) > 0 {
			t.Fatalf("%d violations in\n\tseed %d\n%s%s", len(h.violations), s.Seed,
				some(h.violations), again)
		}
		grants += h.grants
		for state, k := range h.sometimes {
			states[state] += k
		}
	}
	if n < 8 {
		return
	}
	for _, state := range []string{"wire cut", "lost", "fenced", "unfenced", "extended",
		"extend refused", "unlock refused"} {
		assert.NotZero(t, states[state], "the campaign has not reached: %s", state)
	}
}

// emptyPools empties every sync.Pool. That of go-redis keeps timers, and none may be used in
// another bubble than the one that it was made in.
func emptyPools() {
	runtime.GC() // keeps what was not used since the one before
	runtime.GC()
}

// ring is one schedule of the second ring. Whether it locks with fencing follows from the seed.
type ring struct {
	*history
	servers           []*miniredis.Miniredis
	release, releases *pool.Script

	arrived sync.Mutex             // guards late
	late    []map[string]lateWrite // of each node, by value
}

// lateWrite is what has become of a value that was released on a node: a SET that the network
// delivers after the release, on another connection, makes it hold the lock again. Redlock
// releases it again as soon as it learns that; until then the node holds it although the release
// was what it says.
type lateWrite int8

const (
	released lateWrite = iota + 1
	setAgain
)

// note notes which commands for a value arrive at a node.
func (w *ring) note(node int, name string, args []string) {
	w.arrived.Lock()
	defer w.arrived.Unlock()
	value := ""
	switch strings.ToUpper(name) {
	case "SET":
		value = args[1]
	case "EVALSHA", "EVAL":
		keys, err := strconv.Atoi(args[1])
		if err != nil {
			return
		}
		value = args[2+keys]
		switch args[0] {
		case w.release.ID, w.release.Source:
			w.late[node][value] = released
			return
		case w.releases.ID, w.releases.Source:
			for _, value := range args[2+keys:] {
				w.late[node][value] = released
			}
			return
		}
	default:
		return
	}
	if w.late[node][value] == released {
		w.late[node][value] = setAgain
	}
}

// Of its locks, and of its network, whose faults end.
const ringName, ringExpiry, ringFaults = "lock", 2 * time.Second, 10 * time.Second

func throughAdapters(t *testing.T, h *history) {
	h.start = time.Now()
	w := &ring{history: h, servers: make([]*miniredis.Miniredis, h.Nodes),
		release: scripts(t)["release"], releases: scripts(t)["releases"]}
	for i := range w.servers {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		first, err := m.Dial() // starts it
		require.NoError(t, err)
		_ = first.Close()
		w.servers[i] = m
		w.late = append(w.late, map[string]lateWrite{})
		m.Server().SetPreHook(func(_ *server.Peer, name string, args ...string) bool {
			w.note(i, name, args)
			return false
		})
	}
	var all sync.WaitGroup
	for c := range h.Clients {
		var closers []func() error
		pools := make([]pool.Pool, h.Nodes)
		for i, m := range w.servers {
			dial := func() net.Conn {
				near, far := newPipe(w.traffic(c, i, 0), w.traffic(c, i, 1))
				go m.Server().ServeConn(far)
				return near
			}
			switch c {
			case 2:
				p := &redis.Pool{DialContext: func(context.Context) (redis.Conn, error) {
					return redis.NewConn(dial(), 3*time.Second, 3*time.Second), nil
				}}
				pools[i], closers = redigo.NewPool(p), append(closers, p.Close)
			default:
				client := goredis9.NewClient(&goredis9.Options{
					Addr: fmt.Sprintf("127.0.0.%d:1", i+1), Protocol: 2 + c,
					// It would hold a mutex during I/O, which no bubble can look through.
					MaintNotificationsConfig: &maintnotifications.Config{
						Mode: maintnotifications.ModeDisabled,
					},
					Dialer: func(context.Context, string, string) (net.Conn, error) {
						return dial(), nil
					},
				})
				pools[i], closers = goredis.NewPool(client), append(closers, client.Close)
			}
		}
		all.Go(func() {
			rl := redlock.New(pools...).With(redlock.WithExpiry(ringExpiry),
				redlock.WithTries(redlock.Unlimited))
			if h.fencing() {
				rl = rl.With(redlock.WithFencing())
			}
			if h.perName() {
				rl = rl.With(redlock.WithFencePerName())
			}
			for cycle := range int64(h.Cycles) {
				time.Sleep(h.dice().between(0, time.Second, "idle", int64(c), cycle))
				w.turn(rl, fmt.Sprintf("c%d", c), int64(c), cycle)
			}
			ctx, stop := context.WithTimeout(context.Background(), time.Minute)
			defer stop()
			assert.NoError(t, rl.CloseContext(ctx))
			for _, end := range closers {
				assert.NoError(t, end())
			}
		})
	}
	all.Wait()
	// What is under way lands, and expires: a client that is closed sends nothing again.
	time.Sleep(ringExpiry + time.Second)
	if n := w.holding(""); n > 0 {
		h.violate("I8 no leaks", "%d nodes still hold the lock", n)
	}
	for _, m := range w.servers {
		m.Close()
	}
	h.finish()
	time.Sleep(time.Minute) // the clients' timers
}

// holders returns the nodes that hold the lock with a value, or with any if it is empty.
func (w *ring) holders(value string) (nodes []int) {
	for i, m := range w.servers {
		if v, err := m.Get(ringName); err == nil && (value == "" || v == value) {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// holding returns how many they are.
func (w *ring) holding(value string) int { return len(w.holders(value)) }

// unreleased returns how many nodes hold the lock with a value, except for late writes.
func (w *ring) unreleased(value string) (n int) {
	nodes := w.holders(value)
	w.arrived.Lock()
	defer w.arrived.Unlock()
	for _, i := range nodes {
		if w.late[i][value] == setAgain {
			w.reached("late write")
		} else {
			n++
		}
	}
	return n
}

// turn locks, works, extends and unlocks once.
func (w *ring) turn(rl *redlock.Redlock, owner string, client, cycle int64) {
	m := rl.NewMutex(ringName)
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if err := m.LockContext(ctx); err != nil {
		w.violate("I9 liveness", "%s: %v", owner, err)
		return
	}
	now, value := w.now(), m.Value()
	l := &lease{owner: owner, name: ringName, value: value, token: m.FencingToken(), from: now,
		first: now}
	l.prolong(m.Until().Sub(w.start))
	w.mu.Lock()
	w.leases = append(w.leases, l)
	w.grants++
	w.mu.Unlock()
	if w.fencing() != (l.token != 0) {
		w.violate("I3 token order", "%s has the token %d", owner, l.token)
	}
	w.held(l)
	for i := range int64(2) {
		w.update(l, client, cycle, i)
		time.Sleep(w.dice().between(0, 500*time.Millisecond, "work", client, cycle, i))
		switch _, err := m.ExtendContext(ctx); {
		case err == nil:
			w.reached("extended")
			l.prolong(m.Until().Sub(w.start))
			w.held(l)
		case w.Faults == 0 || !errors.Is(err, redlock.ErrExpired) &&
			!errors.Is(err, redlock.ErrNoQuorum):
			w.violate("I12 bounded", "%s: extend: %v", owner, err)
		default:
			w.reached("extend refused")
		}
	}
	w.update(l, client, cycle, 2)
	if w.now() < l.until() {
		w.held(l)
	}
	l.end(w.now())
	switch _, err := m.Unlock(); {
	case err == nil:
		if n := w.unreleased(value); n > w.Nodes-w.quorum() {
			w.violate("I8 no leaks", "%s unlocked, and %d nodes still hold the lock", owner, n)
		}
	case w.Faults == 0 || !errors.Is(err, redlock.ErrExpired) &&
		!errors.Is(err, redlock.ErrNoQuorum):
		w.violate("I12 bounded", "%s: unlock: %v", owner, err)
	default:
		w.reached("unlock refused")
	}
	if w.Faults == 0 {
		// The others follow at once, long before it expires.
		time.Sleep(5 * time.Millisecond)
		if n := w.holding(value); n > 0 {
			w.violate("I8 no leaks", "%d nodes still hold the lock that %s released", n, owner)
		}
	}
}

// held checks that a quorum of nodes holds a lease that has not ended.
func (w *ring) held(l *lease) {
	if n := w.holding(l.value); n < w.quorum() {
		w.violate("I15 quorum", "%s holds the lock on %d of %d nodes", l.owner, n, w.Nodes)
	}
}

// update is one read-modify-write of the resource, with some time in between. It is the fenced
// one if there are tokens; without them, only the lease keeps others out, and has to last.
func (w *ring) update(l *lease, id ...int64) {
	takes := w.dice().between(0, 200*time.Millisecond, "update", id...)
	if !w.fencing() && w.now()+takes >= l.until() {
		return
	}
	if !w.claim(w.fenced, l.name, l.token) {
		return
	}
	v := w.read(w.fenced, l.name)
	time.Sleep(takes)
	w.write(w.fenced, l.name, l.token, v+1)
	w.reached(map[bool]string{true: "fenced", false: "unfenced"}[w.fencing()])
}

// traffic returns what becomes of the bytes between a client and a node in one direction: 0 for
// requests, 1 for replies. For some time they are delayed, or lost, now and then.
func (w *ring) traffic(client, node int, direction int64) func() (time.Duration, bool) {
	d, cl, nd := w.dice(), int64(client), int64(node)
	return func() (time.Duration, bool) {
		now := w.now()
		id := []int64{cl, nd, direction, int64(now)}
		delay := d.between(20*time.Microsecond, 500*time.Microsecond, "wire", id...)
		if w.Faults == 0 || now > ringFaults {
			return delay, false
		}
		if d.chance(0.1, "slow wire", id...) {
			delay += d.between(0, 300*time.Millisecond, "slower wire", id...)
		}
		switch window := int64(now / time.Second); {
		case d.chance(0.1, "wire cut", cl, nd, direction, window):
			w.reached("wire cut")
			return delay, true
		case d.chance(0.02, "loss", id...):
			w.reached("lost")
			return delay, true
		}
		return delay, false
	}
}
