package chaos

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
)

// nemesis carries out a plan. It works on the test's goroutine alone.
type nemesis struct {
	t        testing.TB
	expiry   time.Duration
	servers  []*redistest.Server
	crew     *crew
	resource *Resource
	nft      *partitions // nil: none
	done     map[Fault]int
}

// action is the beginning or the end of a step.
type action struct {
	at time.Duration
	do func()
}

// run carries out the steps, and returns when they are undone and the round is over.
func (n *nemesis) run(steps []Step, round time.Duration) {
	n.t.Helper()
	carryOut(steps, round, func(s Step) (undo func()) {
		undo = n.inject(s)
		if undo != nil {
			n.done[s.Fault]++
		}
		return undo
	})
}

// carryOut injects each step when it is due, and undoes it when it is over. What takes long, such
// as the restart of a server on a busy machine, delays all that follows. So each fault lasts as
// long as planned: a server that came back empty too early would let two hold the lock.
func carryOut(steps []Step, round time.Duration, inject func(Step) (undo func())) {
	start := time.Now()
	var actions []action // in order of time
	add := func(a action) {
		i, _ := slices.BinarySearchFunc(actions, a.at, func(b action, at time.Duration) int {
			if b.at <= at {
				return -1
			}
			return 1
		})
		actions = slices.Insert(actions, i, a)
	}
	for _, s := range steps {
		add(action{s.At, func() {
			if undo := inject(s); undo != nil {
				add(action{s.At + s.For, undo})
			}
		}})
	}
	add(action{round, func() {}})
	for len(actions) > 0 {
		a := actions[0]
		actions = actions[1:]
		time.Sleep(a.at - time.Since(start))
		a.do()
		start = time.Now().Add(-a.at)
	}
}

// inject begins a step and returns what ends it, or nil if there was nothing that it could hit.
func (n *nemesis) inject(s Step) (undo func()) {
	switch s.Fault {
	case CutRequest, CutReply, CutOff:
		return n.cut(s)
	case Pause, Kill, PauseHold, KillWait, PauseWait:
		return n.strike(s)
	}
	return nodeFault(n.t, n.servers[s.Node], s.Fault, n.expiry, s.For)
}

// nodeFault does to a server what the fault says, and returns what ends it. The server has its
// data in an append-only file, and, for faults of the clock, one of its own.
func nodeFault(t testing.TB, s *redistest.Server, f Fault, expiry,
	lasts time.Duration) (undo func()) {
	set := func(on, off string) func() {
		s.Must(strings.Fields(on)...)
		return func() { s.Must(strings.Fields(off)...) }
	}
	nothing := func() {}
	switch f {
	case Freeze:
		s.Freeze()
		return s.Thaw
	case Crash:
		s.Kill()
		return func() { s.Restart() }
	case Lose:
		lose(t, s)
		return func() { s.Restart() }
	case LoseAtOnce:
		lose(t, s)
		s.Restart()
		return nothing
	case LoadSlowly:
		s.Restart(redistest.Loading(), redistest.Args("--key-load-delay", "100"))
		return func() { s.Restart() }
	case Slow:
		return slow(t, s)
	case Mute:
		return mute(t, s)
	case OOM:
		return set("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0")
	case ReadOnly:
		return set("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")
	case NoReplicas:
		return set("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0")
	case Misconf:
		return misconf(t, s)
	case Forget:
		s.Must("SCRIPT", "FLUSH")
		return nothing
	case Hangup:
		s.Must("CLIENT", "KILL", "TYPE", "normal")
		s.Must("CLIENT", "KILL", "TYPE", "pubsub")
		return nothing
	case Flush:
		s.Must("FLUSHALL")
		return nothing
	case Rate, WildRate, Jump:
		return clockFault(s, f, expiry, lasts)
	}
	t.Fatalf("chaos: no such fault of a node: %s", f)
	return nil
}

// clockFault is nodeFault for the faults of a clock. Half the time the clock is off in one
// direction, half in the other.
func clockFault(s *redistest.Server, f Fault, expiry, lasts time.Duration) (undo func()) {
	sign := 1 - 2*int(lasts.Milliseconds()%2)
	switch f {
	case Jump:
		s.Jump(time.Duration(sign) * expiry)
		return func() {}
	case Rate:
		s.Rate(sign * int(1e6*redlock.DefaultDriftFactor/2))
	case WildRate:
		s.Rate(map[int]int{1: 1_000_000, -1: -500_000}[sign])
	}
	return func() { s.Rate(0) }
}

// lose stops a server and deletes its data.
func lose(t testing.TB, s *redistest.Server) {
	s.Kill()
	if err := os.RemoveAll(filepath.Join(s.Dir(), "appendonlydir")); err != nil {
		t.Error(err)
	}
}

// slow makes the server sleep again and again, so every command waits. It returns when one has.
func slow(t testing.TB, s *redistest.Server) (undo func()) {
	undo = again(t, s, 0, "DEBUG", "SLEEP", "0.03")
	for began, waited := time.Now(), time.Duration(0); waited < 10*time.Millisecond; {
		start := time.Now()
		s.Must("PING")
		waited = time.Since(start)
		if time.Since(began) > 10*time.Second {
			t.Fatalf("chaos: %s has not become slow", s.Addr())
		}
	}
	return undo
}

// mute breaks the connections of all subscribers, again and again.
func mute(t testing.TB, s *redistest.Server) (undo func()) {
	return again(t, s, time.Millisecond, "CLIENT", "KILL", "TYPE", "pubsub")
}

// again sends a command again and again, with a rest before each.
func again(
	t testing.TB, s *redistest.Server, rest time.Duration, command ...string,
) (undo func()) {
	c := s.Dial()
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			case <-time.After(rest):
			}
			if _, err := c.Do(command...); err != nil {
				<-stop
				stopped <- err
				return
			}
		}
	}()
	return func() {
		close(stop)
		if err := <-stopped; err != nil {
			t.Errorf("chaos: %s on %s: %v", strings.Join(command, " "), s.Addr(), err)
		}
		_ = c.Close()
	}
}

// misconf makes a snapshot fail, because it cannot be renamed over a directory, and the server
// refuse writes therefore.
func misconf(t testing.TB, s *redistest.Server) (undo func()) {
	obstacle := filepath.Join(s.Dir(), "dump.rdb")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Must("CONFIG", "SET", "save", "3600 1")
	s.Must("BGSAVE")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		info, _ := s.Must("INFO", "persistence").(string)
		if strings.Contains(info, "rdb_last_bgsave_status:err") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("chaos: a snapshot of %s over a directory has not failed", s.Addr())
		}
	}
	return func() {
		s.Must("CONFIG", "SET", "save", "")
		if err := os.Remove(obstacle); err != nil {
			t.Error(err)
		}
	}
}

// cut is a partition in one direction.
func (n *nemesis) cut(s Step) (undo func()) {
	worker, nodes := s.Worker, 1
	if s.Fault == CutOff {
		worker, nodes = n.holder(worker), len(n.servers)/2+1
	}
	type way struct{ from, to net.IP }
	var ways []way
	for i := range nodes {
		host, _, _ := net.SplitHostPort(n.servers[(s.Node+i)%len(n.servers)].Addr())
		w := way{n.crew.workers[worker].conf.Source, net.ParseIP(host)}
		if s.Fault == CutReply {
			w.from, w.to = w.to, w.from
		}
		ways = append(ways, w)
		if err := n.nft.cut(w.from, w.to); err != nil {
			n.t.Fatal(err)
		}
	}
	return func() {
		for _, w := range ways {
			if err := n.nft.join(w.from, w.to); err != nil {
				n.t.Error(err)
			}
		}
	}
}

// holder returns the worker that holds the lock, as far as the resource can tell, or else the
// other one.
func (n *nemesis) holder(other int) int {
	if h := n.resource.Holder(); h >= 0 {
		return h
	}
	return other
}

// waiter returns a worker that waits for the lock, as far as the resource can tell: the one given,
// unless that holds it.
func (n *nemesis) waiter(one int) int {
	if n.resource.Holder() == one {
		one = (one + 1) % len(n.crew.workers)
	}
	return one
}

// strike pauses or kills a worker.
func (n *nemesis) strike(s Step) (undo func()) {
	i := s.Worker
	switch s.Fault {
	case PauseHold:
		i = n.holder(i)
	case KillWait, PauseWait:
		i = n.waiter(i)
	}
	w := n.crew.workers[i]
	if w.proc == nil || w.paused {
		return nil // another step has it
	}
	if s.Fault == Kill || s.Fault == KillWait {
		n.crew.kill(i)
		return func() { n.crew.start(i) }
	}
	if err := w.proc.Freeze(); err != nil {
		n.t.Fatal(errors.Join(errors.New("chaos: pausing a worker"), err))
	}
	w.paused = true
	return func() {
		w.paused = false
		if w.proc == nil {
			return // killed by another step
		}
		if err := w.proc.Thaw(); err != nil {
			n.t.Error(err)
		}
	}
}
