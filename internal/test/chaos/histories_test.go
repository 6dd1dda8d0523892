package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
)

// The histories in this file once broke a lock, here or elsewhere. Each is repeated on real
// servers.

// eventually waits for what comes by itself.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func mustBe(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

// onAll waits until every server has, or has not, the key.
func onAll(t *testing.T, servers []*redistest.Server, key string, want int64) {
	t.Helper()
	for i, s := range servers {
		eventually(t, fmt.Sprintf("EXISTS %s to be %d on server %d", key, want, i),
			func() bool { return s.Must("EXISTS", key) == want })
	}
}

// moreSets returns a function that waits until each of the servers has executed a SET since.
func moreSets(t *testing.T, servers []*redistest.Server) (wait func()) {
	t.Helper()
	before := make([]int64, len(servers))
	for i, s := range servers {
		before[i] = s.Commands()["set"]
	}
	return func() {
		t.Helper()
		for i, s := range servers {
			eventually(t, fmt.Sprintf("a SET on server %d", i),
				func() bool { return s.Commands()["set"] > before[i] })
		}
	}
}

// warm makes every server know the scripts, and opens a connection to it.
func warm(t *testing.T, c *client, servers []*redistest.Server) {
	t.Helper()
	m := c.NewMutex("k", redlock.WithFencing())
	must(t, "a first lock", m.Lock())
	onAll(t, servers, "k", 1)
	_, err := m.Unlock()
	must(t, "a first unlock", err)
	onAll(t, servers, "k", 0)
}

// lease is the expiry of A's and B's locks in overlap.
const lease = 6 * time.Second

// overlap is the situation in which one server decides: A holds servers 0 to 2, B reaches 2 to 4,
// and what is done to server 2 lets B in while A still trusts its lock. It returns once B holds
// the lock as well and A has been told, or with the error that kept B out for as long.
func overlap(t *testing.T, servers []*redistest.Server, b *client, hurt func(*redistest.Server),
	opts ...redlock.Option) error {
	t.Helper()
	const nodeTimeout = time.Second
	opts = append([]redlock.Option{redlock.WithFencing(), redlock.WithExpiry(lease),
		redlock.WithNodeTimeout(nodeTimeout),
		redlock.WithTries(redlock.Unlimited)}, opts...)
	a := newClient(t, servers, 0, 1, 2)
	for _, l := range b.links {
		if l.noRequests.Load() {
			l.refused.Store(true) // B's attempts need not wait for what does not answer
		}
	}
	ma, mb := a.NewMutex("k", opts...), b.NewMutex("k", opts...)
	held, err := ma.Hold(t.Context())
	must(t, "A locks", err)
	seen := newWatch(ma, held)
	tokenA := ma.FencingToken()
	mustBe(t, "B, while server 2 remembers", mb.TryLock(), redlock.ErrFailed)

	hurt(servers[2])
	errB := mb.TryLock()
	// The first may meet connections that broke. Another one must not come too late to meet A.
	for errB != nil && seen.left() > nodeTimeout+100*time.Millisecond {
		errB = mb.TryLock()
	}
	if errB != nil {
		seen.stop()
		return errB
	}
	if seen.left() <= 0 {
		t.Error("B was granted the lock after A's was over")
	}
	if tokenB := mb.FencingToken(); tokenB <= tokenA {
		t.Errorf("B's token %d is not above A's, %d", tokenB, tokenA)
	} else {
		fenced(t, tokenA, tokenB)
	}
	toldInTime(t, seen, held)
	return nil
}

// toldInTime waits for the end of a hold that is lost, which must come by the time until which it
// could be trusted.
func toldInTime(t *testing.T, seen *watch, held context.Context) {
	t.Helper()
	select {
	case <-seen.over:
	case <-time.After(20 * time.Second):
		t.Fatal("the holder was never told that the lock is lost")
	}
	if until, told, late := seen.stop(); late > tooLate {
		t.Errorf("the holder was told %v too late", told.Sub(until))
	}
	mustBe(t, "the cause of the held context", context.Cause(held), redlock.ErrLost)
}

// fenced checks that the resource refuses a holder that the next one has overtaken.
func fenced(t *testing.T, old, next uint64) {
	t.Helper()
	r := &Resource{history: NewHistory(io.Discard)}
	for _, a := range []struct {
		op    Op
		token uint64
		ok    bool
	}{{Read, old, true}, {Read, next, true}, {Write, old, false}, {Write, next, true}} {
		if got := r.access(request{Op: a.op, Token: a.token}); got.OK != a.ok {
			t.Errorf("%s with token %d was accepted: %v", a.op, a.token, got.OK)
		}
	}
}

// H1: the clock of the server that both quorums share jumps by an expiry.
func TestH01ClockJump(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5, redistest.Clock())
	err := overlap(t, servers, newClient(t, servers, 2, 3, 4),
		func(s *redistest.Server) { s.Jump(lease) })
	must(t, "B, after the jump", err)
}

// H3: the server that both quorums share restarts empty. With the restart guard it takes no part
// until all it has forgotten would have expired.
func TestH03EmptyRestart(t *testing.T) {
	t.Parallel()
	restart := func(s *redistest.Server) { s.Restart() }
	t.Run("without the guard", func(t *testing.T) {
		t.Parallel()
		servers := redistest.Start(t, 5)
		must(t, "B, after the restart", overlap(t, servers, newClient(t, servers, 2, 3, 4),
			restart))
	})
	t.Run("with the guard", func(t *testing.T) {
		t.Parallel()
		servers := redistest.Start(t, 5)
		err := overlap(t, servers, newClient(t, servers, 2, 3, 4), restart,
			redlock.WithRestartGuard(lease))
		var guard *redlock.GuardError
		if !errors.As(err, &guard) || guard.Wait <= 0 {
			t.Errorf("B, after the restart: %v, want server 2 to say how long it takes no part",
				err)
		}
	})
}

// H20: the server that both quorums share forgets the lock without a restart.
func TestH20ForgottenKey(t *testing.T) {
	t.Parallel()
	t.Run("FLUSHALL", func(t *testing.T) {
		t.Parallel()
		servers := redistest.Start(t, 5)
		err := overlap(t, servers, newClient(t, servers, 2, 3, 4),
			func(s *redistest.Server) { s.Must("FLUSHALL") })
		must(t, "B, after FLUSHALL", err)
	})
	t.Run("eviction", func(t *testing.T) {
		t.Parallel()
		servers := redistest.Start(t, 5)
		err := overlap(t, servers, newClient(t, servers, 2, 3, 4), func(s *redistest.Server) {
			s.Must("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
			s.Must("CONFIG", "SET", "maxmemory", "1")
			s.Must("CONFIG", "SET", "maxmemory", "0")
			eventually(t, "the eviction", func() bool { return s.Must("DBSIZE") == int64(0) })
		})
		must(t, "B, after the eviction", err)
	})
	t.Run("failover to a replica that lags", func(t *testing.T) {
		t.Parallel()
		servers := redistest.Start(t, 6)
		replica, master := servers[5], servers[2]
		host, port, _ := strings.Cut(master.Addr(), ":")
		master.Must("CONFIG", "SET", "repl-diskless-sync-delay", "0")
		replica.Must("REPLICAOF", host, port)
		eventually(t, "the replica to follow", func() bool {
			info, _ := replica.Must("INFO", "replication").(string)
			return strings.Contains(info, "master_link_status:up")
		})
		replica.Freeze()
		master.Must("CLIENT", "KILL", "TYPE", "replica") // nothing more is on the way to it
		// B knows server 2 by the address that its replica answers on, as soon as that is promoted.
		promoted := append([]*redistest.Server{servers[0], servers[1], replica}, servers[3:5]...)
		b := newClient(t, promoted, 2, 3, 4)
		b.links[2].refused.Store(true)
		err := overlap(t, servers[:5], b, func(s *redistest.Server) {
			s.Kill()
			replica.Thaw()
			replica.Must("REPLICAOF", "NO", "ONE")
			if replica.Must("EXISTS", "k") != int64(0) {
				t.Error("the replica did not lag")
			}
			b.links[2].refused.Store(false)
		})
		must(t, "B, with the promoted replica", err)
	})
}

// H2: the replies wait in the sockets of a process that is paused for longer than
// the expiry. When it goes on, it must not believe that it holds the lock.
func TestH02PausedBetweenSendAndReply(t *testing.T) {
	t.Parallel()
	const expiry = 3 * time.Second
	servers := redistest.Start(t, 5)
	addrs := make([]string, 5)
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	warm(t, newClient(t, servers), servers)
	set := moreSets(t, servers)
	for _, s := range servers {
		s.Must("CLIENT", "PAUSE", "60000", "WRITE")
	}
	p, result := startLocker(t, lockerConfig{Servers: addrs, Expiry: expiry,
		NodeTimeout: expiry - 100*time.Millisecond, Tries: 1})
	blocked(t, servers)
	must(t, "pausing the process", p.Freeze())
	for _, s := range servers {
		s.Must("CLIENT", "UNPAUSE")
	}
	set()
	onAll(t, servers, "k", 0) // expired
	must(t, "waking the process", p.Thaw())
	e := result()
	if e.OK && e.Until > e.Return {
		t.Errorf("it believes to hold the lock for another %v, %v after it asked",
			time.Duration(e.Until-e.Return), time.Duration(e.Return-e.Call))
	}
	if !e.OK && e.Err == "" {
		t.Error("neither granted nor refused")
	}
}

// H4: the holder is cut off from all servers, and goes on writing after its lock has ended and
// the next has it. It is told by the time until which it could trust the lock, the next is
// granted it only after that. A writes before B's first write. The fence refuses that, because B
// has claimed the number when it read it. Without a claim, and without a fence, an update is
// lost. lesson L72
func TestH04WriteAfterTheEnd(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	a, b := newClient(t, servers), newClient(t, servers)
	opts := []redlock.Option{redlock.WithFencing(), redlock.WithExpiry(2 * time.Second),
		redlock.WithNodeTimeout(time.Second),
		redlock.WithTries(redlock.Unlimited)}
	ma, mb := a.NewMutex("k", opts...), b.NewMutex("k", opts...)
	held, err := ma.Hold(t.Context())
	must(t, "A locks", err)
	seen := newWatch(ma, held)
	tokenA := ma.FencingToken()
	r := &Resource{history: NewHistory(io.Discard)}
	numbers := func(token uint64) []request {
		return []request{{Token: token}, {Late: true, Token: token}, {}}
	}
	read := func(token uint64) (seen [3]int64) {
		for i, req := range numbers(token) {
			req.Op = Read
			seen[i] = r.access(req).Value
		}
		return seen
	}
	write := func(who string, token uint64, seen [3]int64, want [3]bool) {
		t.Helper()
		for i, req := range numbers(token) {
			req.Op, req.Value = Write, seen[i]+1
			if got := r.access(req).OK; got != want[i] {
				t.Errorf("%s's write of number %d was accepted: %v", who, i, got)
			}
		}
	}
	readA := read(tokenA)

	a.requests(false)
	must(t, "B locks", mb.Lock())
	granted := time.Now()
	toldInTime(t, seen, held)
	if until, _, _ := seen.stop(); !granted.After(until) {
		t.Errorf("B was granted the lock %v before A's was over", until.Sub(granted))
	}
	tokenB := mb.FencingToken()
	readB := read(tokenB)
	write("A", tokenA, readA, [3]bool{false, true, true})
	write("B", tokenB, readB, [3]bool{true, true, true})
	if got, want := r.Tally(), (Tally{Fenced: 1, Refused: 1, Late: 2, LateLost: 1, Plain: 2,
		Lost: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// H5: the wait for the lock is longer than the waiter's own expiry. What it is granted in the end
// counts from the attempt that won, not from when it came.
func TestH05WaitLongerThanTheExpiry(t *testing.T) {
	t.Parallel()
	const expiry, nodeTimeout = 2 * time.Second, time.Second
	servers := redistest.Start(t, 5)
	a, b := newClient(t, servers), newClient(t, servers)
	ma := a.NewMutex("k")
	must(t, "A locks", ma.Lock())
	onAll(t, servers, "k", 1)
	granted := make(chan error, 1)
	mb := b.NewMutex("k", redlock.WithExpiry(expiry), redlock.WithNodeTimeout(nodeTimeout),
		redlock.WithTries(redlock.Unlimited))
	came := time.Now()
	go func() { granted <- mb.Lock() }()
	select {
	case err := <-granted:
		t.Fatalf("B was granted what A holds: %v", err)
	case <-time.After(expiry + expiry/4):
	}
	released := time.Now()
	_, err := ma.Unlock()
	must(t, "A unlocks", err)
	must(t, "B locks", <-granted)
	until := mb.Until()
	if left := time.Until(until); left <= 0 {
		t.Fatalf("B was granted a lock that was over %v before", -left)
	}
	// The attempt that won was under way when A unlocked, at the earliest, and no attempt takes
	// longer than the node timeout. The servers keep the key at least as long as B trusts it.
	drift := time.Duration(float64(expiry)*redlock.DefaultDriftFactor) + 2*time.Millisecond
	if until.Before(released.Add(expiry - drift - nodeTimeout)) {
		t.Errorf("B's validity counts from %v after it came, and A had the lock for %v",
			until.Add(drift-expiry).Sub(came), released.Sub(came))
	}
	keep := 0
	for _, s := range servers {
		value, ttl := s.Must("GET", "k"), s.Must("PTTL", "k").(int64)
		ends := time.Now().Add(time.Duration(ttl+1) * time.Millisecond)
		if value == mb.Value() && !ends.Before(until) {
			keep++
		}
	}
	if keep < 3 {
		t.Errorf("%d servers keep B's key until it ends", keep)
	}
	_, err = mb.Unlock()
	must(t, "B unlocks", err)
}

// H6: the deletion is done, its confirmation lost; the name is locked again; then the old Unlock
// is repeated.
func TestH06RepeatedRelease(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	warm(t, c, servers)
	old, next := c.NewMutex("k", redlock.WithNodeTimeout(time.Second)), c.NewMutex("k")
	must(t, "the first lock", old.Lock())
	onAll(t, servers, "k", 1)
	c.idle(t)
	c.replies(false)
	_, err := old.Unlock()
	mustBe(t, "the first unlock", err, redlock.ErrNoQuorum)
	onAll(t, servers, "k", 0)
	c.replies(true)
	must(t, "the next lock", next.Lock())
	onAll(t, servers, "k", 1)
	_, err = old.Unlock()
	mustBe(t, "the repeated unlock", err, redlock.ErrExpired)
	for i, s := range servers {
		if got := s.Must("GET", "k"); got != next.Value() {
			t.Errorf("server %d holds %v, not the next owner's value", i, got)
		}
	}
	_, err = next.Extend()
	must(t, "the next owner's extension", err)
}

// H7: a process dies with the lock, and its successor must not take the lock for its own.
func TestH07Successor(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	addrs := make([]string, 5)
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	conf := lockerConfig{Servers: addrs, Expiry: 1500 * time.Millisecond,
		NodeTimeout: 500 * time.Millisecond, Tries: redlock.Unlimited}
	p, result := startLocker(t, conf)
	first := result()
	if !first.OK {
		t.Fatalf("the first was not granted the lock: %s", first.Err)
	}
	p.Kill()
	_, result = startLocker(t, conf)
	next := result()
	if !next.OK {
		t.Fatalf("the successor was not granted the lock: %s", next.Err)
	}
	if next.Return < first.Until {
		t.Errorf("the successor was granted the lock %v before the first one's was over",
			time.Duration(first.Until-next.Return))
	}
	if next.Token <= first.Token {
		t.Errorf("the successor's token %d is not above %d", next.Token, first.Token)
	}
}

// H8: the release is lost with the connections. The mutex still knows what it has to release.
func TestH08ReleaseLost(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	m := c.NewMutex("k", redlock.WithNodeTimeout(time.Second))
	must(t, "lock", m.Lock())
	onAll(t, servers, "k", 1)
	c.requests(false)
	_, err := m.Unlock()
	mustBe(t, "unlock, cut off", err, redlock.ErrNoQuorum)
	c.requests(true)
	// The connections have swallowed what was sent, and break at the client's own timeout; the
	// library does not wait for that.
	eventually(t, "the second unlock to finish", func() bool {
		_, err := m.Unlock()
		if err != nil {
			mustBe(t, "unlock, not yet", err, redlock.ErrNoQuorum)
		}
		return err == nil
	})
	must(t, "the next lock", newClient(t, servers).NewMutex("k").TryLock())
}

// H9: a renewal must not come after the release.
func TestH09RenewalAfterUnlock(t *testing.T) {
	t.Parallel()
	const expiry = 4 * time.Second
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	monitors := make([]*redistest.Monitor, len(servers))
	for i, s := range servers {
		monitors[i] = s.Monitor()
	}
	// Unlocked at different moments around the first renewal, which comes when a third of the
	// validity has passed: most of them within a few milliseconds, and some well before and
	// after.
	const holds = 13
	values := make(chan string, holds)
	for i := range holds {
		go func() {
			m := c.NewMutex(fmt.Sprintf("k%d", i), redlock.WithExpiry(expiry),
				redlock.WithNodeTimeout(expiry/2))
			if _, err := m.Hold(context.Background()); err != nil {
				t.Errorf("hold %d: %v", i, err)
				values <- ""
				return
			}
			renewal, value := time.Until(m.Until())/3, m.Value()
			off := i - holds/2
			time.Sleep(renewal + time.Duration(off*max(off, -off))*5*time.Millisecond)
			if _, err := m.Unlock(); err != nil {
				t.Errorf("unlock %d: %v", i, err)
			}
			values <- value
		}()
	}
	held := map[string]bool{}
	for range holds {
		held[<-values] = true
	}
	time.Sleep(expiry / 2) // in which a renewal that was left over would come
	renewals := 0
	for i, m := range monitors {
		deleted := map[string]bool{} // by value
		value := ""                  // of the client's command that the lines of its script follow
		for _, line := range m.Lines() {
			if !strings.Contains(line, " lua] ") {
				value = ""
				for v := range held {
					if strings.Contains(line, `"`+v+`"`) {
						value = v
					}
				}
			}
			writes := strings.Contains(line, `] "SET" `) || strings.Contains(line, `] "PEXPIRE" `)
			switch {
			case value == "":
			case writes && deleted[value]:
				t.Errorf("server %d after the release: %s", i, line)
			case strings.Contains(line, `] "PEXPIRE" `):
				renewals++
			case strings.Contains(line, `] "DEL" `):
				deleted[value] = true
			}
		}
		if len(deleted) == 0 {
			t.Errorf("server %d has deleted nothing", i)
		}
	}
	if renewals == 0 {
		t.Error("there were no renewals: the releases came too early to meet any")
	}
}

// H10: a renewal fails once, and the hold goes on.
func TestH10RenewalFailsOnce(t *testing.T) {
	t.Parallel()
	const expiry = 5 * time.Second
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	m := c.NewMutex("k", redlock.WithExpiry(expiry), redlock.WithNodeTimeout(1500*time.Millisecond))
	held, err := m.Hold(t.Context())
	must(t, "hold", err)
	until := m.Until()
	for _, s := range servers[:3] {
		s.Must("CONFIG", "SET", "min-replicas-to-write", "1") // refuses the renewal
	}
	eventually(t, "a refused renewal", func() bool {
		stats, _ := servers[0].Must("INFO", "errorstats").(string)
		return strings.Contains(stats, "errorstat_NOREPLICAS")
	})
	for _, s := range servers[:3] {
		s.Must("CONFIG", "SET", "min-replicas-to-write", "0")
	}
	for i := range 2 {
		eventually(t, fmt.Sprintf("renewal %d", i+1), func() bool { return m.Until().After(until) })
		until = m.Until()
	}
	must(t, "the held context", held.Err())
	_, err = m.Unlock()
	must(t, "unlock", err)
}

// expired is a mutex of A whose lock has expired on all servers.
func expired(t *testing.T, servers []*redistest.Server, a *client) *redlock.Mutex {
	t.Helper()
	m := a.NewMutex("k", redlock.WithExpiry(3*time.Second), redlock.WithNodeTimeout(time.Second))
	must(t, "A locks", m.Lock())
	onAll(t, servers, "k", 1)
	onAll(t, servers, "k", 0)
	return m
}

// H11: A expires, B locks. A cannot extend what is B's, and not after B has gone.
func TestH11ExtendAfterExpiry(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	a, b := newClient(t, servers), newClient(t, servers)
	short, next := expired(t, servers, a), b.NewMutex("k")
	must(t, "B locks", next.Lock())
	onAll(t, servers, "k", 1)
	monitor := servers[0].Monitor()
	_, err := short.Extend()
	mustBe(t, "A extends", err, redlock.ErrExpired)
	if lines := monitor.Lines(); len(lines) > 0 {
		t.Errorf("A sent %q", lines)
	}
	_, err = next.Unlock()
	must(t, "B unlocks", err)
	onAll(t, servers, "k", 0)
	_, err = short.Extend()
	mustBe(t, "A extends, after B", err, redlock.ErrExpired)
	must(t, "A closes", a.Close()) // nothing of A's is under way
	for i, s := range servers {
		if s.Must("EXISTS", "k") != int64(0) {
			t.Errorf("server %d has a key again", i)
		}
	}
}

// H19: A expires, B locks. A's release must not delete what is B's.
func TestH19ReleaseAfterExpiry(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	a, b := newClient(t, servers), newClient(t, servers)
	short, next := expired(t, servers, a), b.NewMutex("k")
	must(t, "B locks", next.Lock())
	onAll(t, servers, "k", 1)
	_, err := short.Unlock()
	for errors.Is(err, redlock.ErrNoQuorum) { // on a busy machine
		_, err = short.Unlock()
	}
	mustBe(t, "A unlocks", err, redlock.ErrExpired)
	must(t, "A closes", a.Close()) // nothing of A's is under way
	for i, s := range servers {
		if got := s.Must("GET", "k"); got != next.Value() {
			t.Errorf("server %d holds %v after A's Unlock, not B's value", i, got)
		}
	}
	_, err = next.Unlock()
	must(t, "B unlocks", err)
}

// H12: one server's error must not make the lock be given back on the others.
func TestH12OneErrorWhileExtending(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	m := c.NewMutex("k")
	must(t, "lock", m.Lock())
	onAll(t, servers, "k", 1)
	servers[4].Must("CONFIG", "SET", "min-replicas-to-write", "1")
	monitors := make([]*redistest.Monitor, len(servers))
	for i, s := range servers {
		monitors[i] = s.Monitor()
	}
	_, err := m.Extend()
	must(t, "extend beside one error", err)
	must(t, "close", c.Close()) // what the extension has led to has been sent
	for i, monitor := range monitors {
		lines := strings.Join(monitor.Lines(), "\n")
		if extended := strings.Contains(lines, `"PEXPIRE"`); extended != (i != 4) {
			t.Errorf("server %d has extended the key: %v", i, extended)
		}
		if strings.Contains(lines, `"DEL"`) {
			t.Errorf("the lock was given back on server %d:\n%s", i, lines)
		}
		if servers[i].Must("GET", "k") != m.Value() {
			t.Errorf("server %d has lost the key", i)
		}
	}
}

// H13: the caller's context is dead; what is on the servers is still deleted.
func TestH13CleanUpUnderADeadContext(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	m := c.NewMutex("k")
	must(t, "lock", m.Lock())
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.UnlockContext(dead)
	must(t, "unlock under a dead context", err)
	onAll(t, servers, "k", 0)

	// Cancelled while three servers have granted it and two are silent: not yet decided for N=5
	// with one of the three refusing.
	servers[0].Must("SET", "k2", "somebody")
	var monitors []*redistest.Monitor
	for _, s := range servers[3:] {
		monitors = append(monitors, s.Monitor())
		s.Freeze()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- c.NewMutex("k2").LockContext(ctx) }()
	for _, s := range servers[1:3] {
		eventually(t, "a grant", func() bool { return s.Must("EXISTS", "k2") == int64(1) })
	}
	cancel()
	mustBe(t, "the cancelled lock", <-failed, context.Canceled)
	onAll(t, servers[1:3], "k2", 0)
	for i, s := range servers[3:] {
		s.Thaw()
		eventually(t, "the late grant", func() bool {
			return strings.Contains(strings.Join(monitors[i].Lines(), "\n"), `"SET" "k2"`)
		})
	}
	onAll(t, servers[3:], "k2", 0)
}

// H15: whether somebody else has the lock, Redis is in trouble, or the caller gave up are three
// things.
func TestH15ThreeReasons(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	a, b := newClient(t, servers), newClient(t, servers)
	must(t, "A locks", a.NewMutex("k").Lock())
	onAll(t, servers, "k", 1)
	taken := b.NewMutex("k").TryLock()
	mustBe(t, "taken", taken, redlock.ErrTaken)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, io.ErrClosedPipe)
	defer cancel()
	ended := b.NewMutex("k").LockContext(ctx)
	mustBe(t, "ended", ended, context.DeadlineExceeded)
	mustBe(t, "the cause", ended, io.ErrClosedPipe)
	for _, s := range servers[:2] {
		s.Kill()
	}
	trouble := b.NewMutex("k2").TryLock()
	mustBe(t, "trouble", trouble, redlock.ErrNoQuorum)
	for _, err := range []error{taken, ended, trouble} {
		mustBe(t, "every one", err, redlock.ErrFailed)
	}
	if errors.Is(taken, redlock.ErrNoQuorum) || errors.Is(trouble, redlock.ErrTaken) ||
		errors.Is(taken, context.DeadlineExceeded) {
		t.Errorf("mixed up: taken %v; trouble %v", taken, trouble)
	}
}

// H16: validity counts from before the first command, not from the last answer.
func TestH16SlowServers(t *testing.T) {
	t.Parallel()
	const expiry, slow = 20 * time.Second, 500 * time.Millisecond
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	warm(t, c, servers)
	for _, s := range servers {
		s.Must("CLIENT", "PAUSE", "60000", "WRITE")
	}
	m := c.NewMutex("k", redlock.WithExpiry(expiry), redlock.WithNodeTimeout(expiry/2))
	granted := make(chan error, 1)
	go func() { granted <- m.Lock() }()
	blocked(t, servers)
	sent := time.Now()
	time.Sleep(slow)
	for _, s := range servers {
		s.Must("CLIENT", "UNPAUSE")
	}
	must(t, "lock", <-granted)
	drift := time.Duration(float64(expiry)*redlock.DefaultDriftFactor) + 2*time.Millisecond
	if latest := sent.Add(expiry - drift); m.Until().After(latest) {
		t.Errorf("trusted %v too long", m.Until().Sub(latest))
	}
}

// blocked waits until a command waits on every server for the end of its pause.
func blocked(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for i, s := range servers {
		eventually(t, fmt.Sprintf("the request at server %d", i), func() bool {
			list, _ := s.Must("CLIENT", "LIST").(string)
			return strings.Contains(list, " flags=b ")
		})
	}
}

// H17: the replies of the first attempt are lost. What it left must not keep the next attempt
// out for an expiry.
func TestH17OwnKeyInTheWay(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	warm(t, c, servers)
	c.idle(t)
	c.replies(false)
	start := time.Now()
	locked := make(chan error, 1)
	m := c.NewMutex("k", redlock.WithNodeTimeout(200*time.Millisecond))
	set := moreSets(t, servers[:3])
	go func() { locked <- m.Lock() }()
	set()
	c.replies(true)
	must(t, "lock", <-locked)
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("it took %v to get past its own key", took)
	}
}

// H14: a server that hangs delays nobody beyond the node timeout, and usually not at all.
func TestH14OneServerHangs(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	warm(t, c, servers)
	servers[4].Freeze()
	m := c.NewMutex("k", redlock.WithNodeTimeout(20*time.Second))
	start := time.Now()
	must(t, "lock", m.Lock())
	_, err := m.Extend()
	must(t, "extend", err)
	_, err = m.Unlock()
	must(t, "unlock", err)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("lock, extend and unlock took %v beside a hung server", took)
	}
}

// H18: the release falls between finding the lock taken and waiting for it, or anywhere near. The
// waiter must not sleep through it: its delay and the holder's expiry are far longer than the
// test may take.
func TestH18MissedWakeUp(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	a, b := newClient(t, servers), newClient(t, servers)
	warm(t, a, servers)
	warm(t, b, servers)
	opts := []redlock.Option{redlock.WithExpiry(time.Minute),
		redlock.WithNodeTimeout(10 * time.Second), redlock.WithRetryDelay(time.Minute)}
	for i := range 40 {
		holder, waiter := a.NewMutex("k", opts...), b.NewMutex("k", opts...)
		must(t, "A locks", holder.Lock())
		granted := make(chan error, 1)
		go func() { granted <- waiter.Lock() }()
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		_, err := holder.Unlock()
		must(t, "A unlocks", err)
		select {
		case err := <-granted:
			must(t, "B locks", err)
		case <-time.After(10 * time.Second):
			t.Fatalf("B sleeps on a free lock, released %v after B had come",
				time.Duration(i)*100*time.Microsecond)
		}
		_, err = waiter.Unlock()
		must(t, "B unlocks", err)
	}
}
