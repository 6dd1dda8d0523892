package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/wire"
)

var kills = flag.Int("kills", 2, "how many leaders TestTheNextLeader kills; ten times as many "+
	"resign")

// candidateEnv is the variable that makes the test binary a candidate: its candidateConfig in JSON.
const candidateEnv = "REDLOCK_CHAOS_CANDIDATE"

// candidateConfig is a process that stands for election, and resigns, and stands again, whenever it
// reads a line.
type candidateConfig struct {
	Worker  int
	Servers []string
	Expiry  time.Duration
}

// candidateMain makes the process a candidate if it was started as one.
func candidateMain() {
	var c candidateConfig
	if !started(candidateEnv, &c) {
		return
	}
	// A node may stand still for as long as the test's pulse allows.
	e := redlock.New(poolsOf(c.Servers)...).NewElection(lockName, redlock.WithExpiry(c.Expiry),
		redlock.WithNodeTimeout(c.Expiry/4))
	history, orders := NewHistory(os.Stdout), bufio.NewScanner(os.Stdin)
	for {
		if _, err := e.Campaign(context.Background()); err != nil {
			panic(err)
		}
		history.Add(Event{Op: Elected, Worker: c.Worker, Return: Now(), Token: e.Term(), OK: true})
		if !orders.Scan() {
			os.Exit(0)
		}
		left := Event{Op: Unlock, Worker: c.Worker, Call: Now(), OK: true}
		if err := e.Resign(context.Background()); err != nil {
			panic(err)
		}
		history.Add(left)
		if !orders.Scan() {
			os.Exit(0)
		}
	}
}

// slate is the candidates of a test.
type slate struct {
	t       *testing.T
	servers []*redistest.Server
	pulse   *redistest.Pulse
	events  chan Event // what they tell
	orders  []*os.File
	procs   []*redistest.Process
	term    uint64 // the last that was seen
}

// stand starts a candidate, in the place of one that was killed.
func (s *slate) stand(i int) {
	s.t.Helper()
	c := candidateConfig{Worker: i, Expiry: electionExpiry}
	for _, server := range s.servers {
		c.Servers = append(c.Servers, server.Addr())
	}
	p, in, out := start(s.t, candidateEnv, c)
	told := make(chan struct{})
	go func() { // ends when the candidate does
		defer close(told)
		defer out.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = Event{Err: err.Error()}
			}
			s.events <- e
		}
	}()
	s.t.Cleanup(func() {
		p.Kill()
		_ = in.Close()
		<-told
	})
	s.orders[i], s.procs[i] = in, p
}

// fatal ends the test: as a failure, unless the machine stood still for so long that a leader may
// have lost its lock.
func (s *slate) fatal(format string, args ...any) {
	s.t.Helper()
	if worst := s.pulse.Worst(); worst > electionExpiry/4 {
		redistest.SkipBusy(s.t, "it stood still for %v: "+format, append([]any{worst}, args...)...)
	}
	s.t.Fatalf(format, args...)
}

// next waits for what one of the candidates tells.
func (s *slate) next() Event {
	s.t.Helper()
	select {
	case e := <-s.events:
		if e.Err != "" {
			s.fatal("%s", e.Err)
		}
		if e.Op == Elected {
			if e.Token <= s.term {
				s.fatal("term %d after term %d", e.Token, s.term)
			}
			s.term = e.Token
		}
		return e
	case <-time.After(20 * time.Second):
		s.fatal("no candidate tells anything")
		return Event{}
	}
}

// queued waits until n candidates wait in the queue of every server. A leader may still have a
// place on a minority, where its claim came before the old key had expired.
func (s *slate) queued(n int) {
	s.t.Helper()
	queue := wire.QueueKey(lockName)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		places := map[any]int{} // of each member, on how many servers
		for _, server := range s.servers {
			for _, member := range server.Must("ZRANGE", queue, "0", "-1").([]any) {
				places[member]++
			}
		}
		waiting := 0
		for _, servers := range places {
			if servers == len(s.servers) {
				waiting++
			}
		}
		if waiting == n {
			return
		}
		if time.Since(began) > 20*time.Second {
			s.fatal("waited in vain for %d to wait on every server: %v", n, places)
		}
	}
}

// order sends a line to a candidate.
func (s *slate) order(i int) {
	s.t.Helper()
	_, err := s.orders[i].WriteString("\n")
	must(s.t, "order", err)
}

// free returns when a quorum of the servers has no lock any more, if nobody extends it: not before,
// and at the latest a millisecond after it.
func (s *slate) free() int64 {
	s.t.Helper()
	var ends []int64
	for _, server := range s.servers {
		before := Now()
		ttl, _ := server.Must("PTTL", lockName).(int64)
		ends = append(ends, before+max(ttl, 0)*int64(time.Millisecond))
	}
	slices.Sort(ends)
	return ends[len(ends)/2]
}

// electionExpiry is that of the candidates' lock.
const electionExpiry = 2 * time.Second

// A leader that is killed is followed when its lock has expired on a quorum, and one that resigns
// at once. With -kills 50 the figures are those of docs/election.md.
func TestTheNextLeader(t *testing.T) {
	redistest.Require(t)
	s := &slate{t: t, servers: redistest.Start(t, 5), events: make(chan Event, 64),
		orders: make([]*os.File, 3), procs: make([]*redistest.Process, 3)}
	s.pulse = redistest.TakePulse(t, s.servers...)
	for i := range s.procs {
		s.stand(i)
	}
	leader := s.next()

	var resigned, killed []time.Duration
	for range 10 * *kills {
		s.queued(2)
		s.order(leader.Worker)
		left, elected := s.next(), s.next() // in any order
		if left.Op == Elected {
			left, elected = elected, left
		}
		resigned = append(resigned, time.Duration(elected.Return-left.Call))
		s.order(left.Worker) // to stand again
		leader = elected
	}
	for range *kills {
		s.queued(2)
		time.Sleep(rand.N(electionExpiry / 2)) // some time after an extension
		s.procs[leader.Worker].Kill()
		free := s.free()
		next := s.next()
		after := time.Duration(next.Return - free)
		if after < 0 {
			s.fatal("elected %v before the lock had expired", -after)
		}
		killed = append(killed, after)
		s.stand(leader.Worker)
		leader = next
	}
	figures := func(d []time.Duration) string {
		slices.Sort(d)
		at := func(q int) time.Duration { return d[(len(d)-1)*q/100].Round(10 * time.Microsecond) }
		return fmt.Sprintf("%d: p50 %v, p99 %v, longest %v", len(d), at(50), at(99), at(100))
	}
	t.Logf("from Resign to the next leader, %s", figures(resigned))
	t.Logf("from the end of the lock of a leader that was killed to the next one, %s",
		figures(killed))
	// On an idle machine some milliseconds. A candidate that had not learned of it would ask
	// after a retry delay.
	if longest := max(slices.Max(resigned), slices.Max(killed)); longest > 10*time.Second {
		s.fatal("nobody led for %v", longest)
	}
}
