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
	"github.com/redlock-go/redlock/internal/redistest"
)

// The histories in this file once broke a lock, here or elsewhere. Each is repeated on real servers.

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
		eventually(t, fmt.Sprintf("EXISTS %s to be %d on server %d", key, want, i), func() bool { return s.Must("EXISTS", key) == want })
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
			eventually(t, fmt.Sprintf("a SET on server %d", i), func() bool { return s.Commands()["set"] > before[i] })
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

// overlap is the situation in which one server decides: A holds servers 0 to 2, B reaches 2 to 4, and
// what is done to server 2 lets B in. It returns once B holds the lock as well, or with
// the error that kept it out.
func overlap(t *testing.T, servers []*redistest.Server, b *client, hurt func(*redistest.Server), opts ...redlock.Option) error {
	t.Helper()
	opts = append([]redlock.Option{redlock.WithFencing(), redlock.WithExpiry(time.Second), redlock.WithTries(redlock.Unlimited)}, opts...)
	a := newClient(t, servers, 0, 1, 2)
	ma, mb := a.NewMutex("k", opts...), b.NewMutex("k", opts...)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	held, err := ma.Hold(ctx)
	must(t, "A locks", err)
	tokenA := ma.FencingToken()
	told := make(chan time.Time, 1)
	context.AfterFunc(held, func() { told <- time.Now() })
	mustBe(t, "B, while server 2 remembers", mb.TryLock(), redlock.ErrFailed)

	hurt(servers[2])
	until := ma.Until()
	var errB error
	for try := 0; try < 3; try++ { // the first may meet connections that broke
		if errB = mb.TryLock(); errB == nil {
			break
		}
	}
	if errB == nil {
		if tokenB := mb.FencingToken(); tokenB <= tokenA {
			t.Errorf("B's token %d is not above A's, %d", tokenB, tokenA)
		} else {
			fenced(t, tokenA, tokenB)
		}
		// A is told in time; before, if it has found out already, and then Until is zero.
		select {
		case at := <-told:
			if late := at.Sub(until); !until.IsZero() && late > 200*time.Millisecond {
				t.Errorf("A was told %v too late", late)
			}
			mustBe(t, "the cause of A's held context", context.Cause(held), redlock.ErrLost)
		case <-time.After(3 * time.Second):
			t.Error("A was never told")
		}
	}
	return errB
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
	err := overlap(t, servers, newClient(t, servers, 2, 3, 4), func(s *redistest.Server) { s.Jump(time.Second) })
	must(t, "B, after the jump", err)
}

// H3: the server that both quorums share restarts empty. With the restart guard it takes no part until all it
// has forgotten would have expired.
func TestH03EmptyRestart(t *testing.T) {
	t.Parallel()
	restart := func(s *redistest.Server) { s.Restart() }
	t.Run("without the guard", func(t *testing.T) {
		t.Parallel()
		servers := redistest.Start(t, 5)
		must(t, "B, after the restart", overlap(t, servers, newClient(t, servers, 2, 3, 4), restart))
	})
	t.Run("with the guard", func(t *testing.T) {
		t.Parallel()
		servers := redistest.Start(t, 5)
		err := overlap(t, servers, newClient(t, servers, 2, 3, 4), restart, redlock.WithRestartGuard(time.Second))
		var guard *redlock.GuardError
		if !errors.As(err, &guard) || guard.Wait <= 0 {
			t.Errorf("B, after the restart: %v, want server 2 to say how long it takes no part", err)
		}
	})
}

// H20: the server that both quorums share forgets the lock without a restart.
func TestH20ForgottenKey(t *testing.T) {
	t.Parallel()
	t.Run("FLUSHALL", func(t *testing.T) {
		t.Parallel()
		servers := redistest.Start(t, 5)
		err := overlap(t, servers, newClient(t, servers, 2, 3, 4), func(s *redistest.Server) { s.Must("FLUSHALL") })
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
		// B knows server 2 by the address that its replica answers on.
		promoted := append([]*redistest.Server{servers[0], servers[1], replica}, servers[3:5]...)
		err := overlap(t, servers[:5], newClient(t, promoted, 3, 4), func(s *redistest.Server) {
			s.Kill()
			replica.Thaw()
			replica.Must("REPLICAOF", "NO", "ONE")
			if replica.Must("EXISTS", "k") != int64(0) {
				t.Error("the replica did not lag")
			}
		})
		mustBe(t, "B without server 2", err, redlock.ErrNoQuorum)
		must(t, "B with the promoted replica", newClient(t, promoted, 2, 3, 4).NewMutex("k", redlock.WithExpiry(time.Second)).Lock())
	})
}

// H2 and H5: the replies wait in the sockets of a process that is paused for longer than
// the expiry. When it goes on, it must not believe that it holds the lock.
func TestH02PausedBetweenSendAndReply(t *testing.T) {
	t.Parallel()
	const expiry = 1500 * time.Millisecond
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
	p, result := startLocker(t, lockerConfig{Servers: addrs, Expiry: expiry, NodeTimeout: expiry - 100*time.Millisecond, Tries: 1})
	for i, s := range servers {
		eventually(t, fmt.Sprintf("the request at server %d", i), func() bool {
			list, _ := s.Must("CLIENT", "LIST").(string)
			return strings.Contains(list, " flags=b ")
		})
	}
	must(t, "pausing the process", p.Freeze())
	for _, s := range servers {
		s.Must("CLIENT", "UNPAUSE")
	}
	set()
	onAll(t, servers, "k", 0) // expired
	must(t, "waking the process", p.Thaw())
	e := result()
	if e.OK && e.Until > e.Return {
		t.Errorf("it believes to hold the lock for another %v, %v after it asked", time.Duration(e.Until-e.Return), time.Duration(e.Return-e.Call))
	}
	if !e.OK && e.Err == "" {
		t.Error("neither granted nor refused")
	}
}

// H6: the deletion is done, its confirmation lost; the name is locked again; then the old Unlock is repeated.
func TestH06RepeatedRelease(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	warm(t, c, servers)
	old, next := c.NewMutex("k"), c.NewMutex("k")
	must(t, "the first lock", old.Lock())
	onAll(t, servers, "k", 1)
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
	conf := lockerConfig{Servers: addrs, Expiry: 1500 * time.Millisecond, NodeTimeout: 500 * time.Millisecond, Tries: redlock.Unlimited}
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
		t.Errorf("the successor was granted the lock %v before the first one's was over", time.Duration(first.Until-next.Return))
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
	m := c.NewMutex("k")
	must(t, "lock", m.Lock())
	onAll(t, servers, "k", 1)
	c.requests(false)
	_, err := m.Unlock()
	mustBe(t, "unlock, cut off", err, redlock.ErrNoQuorum)
	c.requests(true)
	// The connections have swallowed what was sent, and break at the client's own timeout; the library
	// does not wait for that.
	eventually(t, "the second unlock to finish", func() bool {
		_, err := m.Unlock()
		return err == nil || errors.Is(err, redlock.ErrExpired) || errors.Is(err, redlock.ErrNotHeld)
	})
	must(t, "the next lock", newClient(t, servers).NewMutex("k").TryLock())
}

// H9: a renewal must not come after the release.
func TestH09RenewalAfterUnlock(t *testing.T) {
	t.Parallel()
	const expiry = 300 * time.Millisecond
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	monitors := make([]*redistest.Monitor, len(servers))
	for i, s := range servers {
		monitors[i] = s.Monitor()
	}
	// Unlocked at different moments around the first renewal.
	const holds = 12
	values := make(chan string, holds)
	for i := range holds {
		go func() {
			m := c.NewMutex(fmt.Sprintf("k%d", i), redlock.WithExpiry(expiry), redlock.WithNodeTimeout(expiry/3))
			if _, err := m.Hold(context.Background()); err != nil {
				t.Errorf("hold %d: %v", i, err)
				values <- ""
				return
			}
			value := m.Value()
			time.Sleep(expiry/4 + time.Duration(i)*5*time.Millisecond)
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
	time.Sleep(expiry) // in which a renewal that was left over would come
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
	const expiry = 900 * time.Millisecond
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	m := c.NewMutex("k", redlock.WithExpiry(expiry), redlock.WithNodeTimeout(100*time.Millisecond))
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

// H11 and H19: A expires, B locks. A can neither extend nor delete what is B's, and
// not extend after B has gone.
func TestH11ExpiredOwner(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	a, b := newClient(t, servers), newClient(t, servers)
	short := a.NewMutex("k", redlock.WithExpiry(time.Second), redlock.WithNodeTimeout(500*time.Millisecond))
	must(t, "A locks", short.Lock())
	onAll(t, servers, "k", 1)
	onAll(t, servers, "k", 0) // expired
	next := b.NewMutex("k")
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
	_, err = short.Extend()
	mustBe(t, "A extends, after B", err, redlock.ErrExpired)
	must(t, "B locks again", next.Lock())
	holdsB := func(s *redistest.Server) bool { return s.Must("GET", "k") == next.Value() }
	for i, s := range servers {
		eventually(t, fmt.Sprintf("B's value on server %d", i), func() bool { return holdsB(s) })
	}
	_, err = short.Unlock()
	mustBe(t, "A unlocks", err, redlock.ErrExpired)
	must(t, "A closes", a.Close()) // nothing of A's is under way
	for i, s := range servers {
		if !holdsB(s) {
			t.Errorf("server %d holds %v after A's Unlock, not B's value", i, s.Must("GET", "k"))
		}
	}
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
	monitor := servers[0].Monitor()
	_, err := m.Extend()
	must(t, "extend beside one error", err)
	eventually(t, "the extension at server 0", func() bool { return strings.Contains(strings.Join(monitor.Lines(), "\n"), `"PEXPIRE"`) })
	if lines := strings.Join(monitor.Lines(), "\n"); strings.Contains(lines, `"DEL"`) {
		t.Errorf("the lock was given back:\n%s", lines)
	}
	onAll(t, servers, "k", 1)
}

// H13: the caller's context is dead; what is on the servers is deleted all the same.
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
	servers[3].Freeze()
	servers[4].Freeze()
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
	servers[3].Thaw()
	servers[4].Thaw()
	onAll(t, servers[3:], "k2", 0)
}

// H15: whether somebody else has the lock, Redis is in trouble, or the caller gave up are three things.
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
	if errors.Is(taken, redlock.ErrNoQuorum) || errors.Is(trouble, redlock.ErrTaken) || errors.Is(taken, context.DeadlineExceeded) {
		t.Errorf("mixed up: taken %v; trouble %v", taken, trouble)
	}
}

// H16: validity counts from before the first command, not from the last answer.
func TestH16SlowServers(t *testing.T) {
	t.Parallel()
	const expiry = 4 * time.Second
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	warm(t, c, servers)
	for _, s := range servers {
		s.Must("CLIENT", "PAUSE", "150", "WRITE")
	}
	m := c.NewMutex("k", redlock.WithExpiry(expiry), redlock.WithNodeTimeout(2*time.Second))
	start := time.Now()
	must(t, "lock", m.Lock())
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Fatalf("the servers were not slow: %v", took)
	}
	drift := time.Duration(float64(expiry)*redlock.DefaultDriftFactor) + 2*time.Millisecond
	if latest := start.Add(expiry - drift + 20*time.Millisecond); m.Until().After(latest) {
		t.Errorf("trusted %v too long", m.Until().Sub(latest))
	}
}

// H17: the replies of the first attempt are lost. What it left must not keep the next attempt
// out for an expiry.
func TestH17OwnKeyInTheWay(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	warm(t, c, servers)
	c.replies(false)
	start := time.Now()
	locked := make(chan error, 1)
	m := c.NewMutex("k", redlock.WithNodeTimeout(100*time.Millisecond))
	set := moreSets(t, servers[:3])
	go func() { locked <- m.Lock() }()
	set()
	c.replies(true)
	must(t, "lock", <-locked)
	if took := time.Since(start); took > redlock.DefaultExpiry/2 {
		t.Errorf("it took %v to get past its own key", took)
	}
}

// H14: a server that hangs delays nobody beyond the node timeout, and mostly not at all.
func TestH14OneServerHangs(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	c := newClient(t, servers)
	warm(t, c, servers)
	servers[4].Freeze()
	m := c.NewMutex("k", redlock.WithNodeTimeout(2*time.Second))
	start := time.Now()
	must(t, "lock", m.Lock())
	_, err := m.Extend()
	must(t, "extend", err)
	_, err = m.Unlock()
	must(t, "unlock", err)
	if took := time.Since(start); took > time.Second {
		t.Errorf("lock, extend and unlock took %v beside a hung server", took)
	}
}

// H18: the release falls between finding the lock taken and waiting for it, or anywhere near. The waiter
// must not sleep through it: its delay and the holder's expiry are far longer than the test may take.
func TestH18MissedWakeUp(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 5)
	a, b := newClient(t, servers), newClient(t, servers)
	warm(t, a, servers)
	warm(t, b, servers)
	opts := []redlock.Option{redlock.WithExpiry(time.Minute), redlock.WithNodeTimeout(time.Second), redlock.WithRetryDelay(time.Minute)}
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
			t.Fatalf("B sleeps on a free lock, released %v after B had come", time.Duration(i)*100*time.Microsecond)
		}
		_, err = waiter.Unlock()
		must(t, "B unlocks", err)
	}
}
