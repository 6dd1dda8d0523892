package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/wire"
)

// Round is one attack on five servers.
type Round struct {
	Seed     uint64
	Duration time.Duration // of the plan; healing and ending come on top
	Expiry   time.Duration // of the lock
	Workers  int
	Faults   []Fault
	// NodeTimeout of the lock; the default if 0.
	NodeTimeout time.Duration
	// LongHolds: one of so many holds works for long, from half an expiry to LongWork; 8 if 0,
	// and one and a half expiries.
	LongHolds int
	LongWork  time.Duration
	// Election makes the workers candidates of an election instead. A Blind candidate takes itself
	// for the leader until its context has ended, without a look at the clock.
	Election, Blind bool
	// HandOver lets workers hand off every fourth lock, and adopt what others have handed off.
	HandOver bool
	// Several makes the workers read and write under a lock that readers share, and work under one
	// of two slots, or both.
	Several bool
}

// Report is what came of a round.
type Report struct {
	Events   []Event
	Tally    Tally
	Tried    []Fault // what is left of Round.Faults where some are not possible
	Injected map[Fault]int
	Grants   int
	Adopted  int // of these, locks that were handed over
	Lost     int // held contexts that ended by themselves
	// Recovery is how long after the last fault the first lock was granted, and AllServed how
	// long it took until every worker had been granted one; and how long they may take.
	Recovery, AllServed           time.Duration
	RecoveryBound, AllServedBound time.Duration
	// Left are the keys that remained on the servers.
	Left int
	// Changes of the lock's key by commands, on all servers; Foreign are those of somebody whose
	// value the key did not hold, Blind those of which it is not known what was there before, and
	// Expired the values that nobody has deleted.
	Changes, Foreign, Blind, Expired int
}

// padding is how many keys a server holds, so that it takes a while to load them.
const padding = 4000

// Run carries the round out. What does not depend on the faults it checks itself: that workers
// end in order, that the lock is granted again soon after the last fault, that no command changes
// a key with somebody else's value, and that nothing remains on the servers. The history is left
// to Check and its like; it is kept in a file if the test fails.
func (r Round) Run(t testing.TB) *Report {
	t.Helper()
	opts, nft := r.prepare(t)
	servers := redistest.Start(t, 5, opts...)
	for _, s := range servers {
		s.Must("EVAL", fmt.Sprintf("for i = 1, %d do redis.call('SET', 'pad:' .. i, i) end",
			padding), "0")
	}
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keep(t, file) })
	history := NewHistory(file)
	resource, err := NewResource(filepath.Join(dir, "resource"), history)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resource.Close() }) // after that of the crew, whom it waits for

	audited := lockName
	if r.Several {
		audited = slots[0] // what changes the key of readers is checked in the simulation
	}
	auditor := newAuditor(t, servers, audited)
	crew := newCrew(t, history, r.workers(servers, filepath.Join(dir, "resource")))
	n := &nemesis{t: t, expiry: r.Expiry, servers: servers, crew: crew, resource: resource,
		nft: nft, done: map[Fault]int{}}
	n.run(Plan(r.Seed, r.Duration, r.Expiry, len(servers), r.Workers, r.Faults), r.Duration)

	rep := &Report{Tried: r.Faults, Injected: n.done}
	r.recover(t, history, rep)
	crew.stop(10*time.Second + r.Expiry + r.LongWork)
	if err := resource.Close(); err != nil && !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
	r.leaks(t, servers, rep)
	rep.audit(t, auditor)
	rep.Tally = resource.Tally()
	if rep.Events, err = history.Events(); err != nil {
		t.Errorf("chaos: writing the history: %v", err)
	}
	for _, e := range rep.Events {
		switch {
		case e.granted():
			rep.Grants++
			if e.Adopted {
				rep.Adopted++
			}
		case e.Op == Lost:
			rep.Lost++
		}
	}
	return rep
}

// prepare fills in what the round does not say, and leaves out the faults that this machine cannot
// make. It returns how the servers are started, and what makes partitions.
func (r *Round) prepare(t testing.TB) ([]redistest.Option, *partitions) {
	t.Helper()
	opts := []redistest.Option{redistest.OwnAddress(), redistest.AOF()}
	without := func(what string, why error, faults ...Fault) {
		if slices.ContainsFunc(faults, func(f Fault) bool { return slices.Contains(r.Faults, f) }) {
			redistest.LeaveOut(t, what, why.Error())
		}
		r.Faults = slices.DeleteFunc(slices.Clone(r.Faults),
			func(f Fault) bool { return slices.Contains(faults, f) })
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		without(redistest.Clocks, err, Rate, WildRate, Jump)
	} else {
		opts = append(opts, redistest.Clock())
	}
	nft, err := newPartitions(t)
	if err != nil {
		without(redistest.Partitions, err, cutFaults...)
	}
	if r.LongHolds == 0 {
		r.LongHolds = 8
	}
	if r.LongWork == 0 {
		r.LongWork = 3 * r.Expiry / 2
	}
	return opts, nft
}

// workers says what each worker does.
func (r Round) workers(servers []*redistest.Server, resource string) []workerConfig {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	confs := make([]workerConfig, r.Workers)
	for i, source := range sources(r.Workers) {
		confs[i] = workerConfig{
			Worker: i, Seed: r.Seed, Servers: addrs, Source: source,
			Resource: resource, Expiry: r.Expiry, NodeTimeout: r.NodeTimeout,
			LongHolds: r.LongHolds, LongWork: r.LongWork, Election: r.Election, Blind: r.Blind,
			HandOver: r.HandOver, Several: r.Several,
		}
	}
	return confs
}

// audit adds what the servers executed, and fails the test for commands that changed somebody
// else's key.
func (rep *Report) audit(t testing.TB, auditor *auditor) {
	t.Helper()
	for i, l := range auditor.close() {
		for _, wrong := range l.wrong {
			t.Errorf("chaos: on server %d a command of somebody who does not own the key: %s", i,
				wrong)
		}
		if l.known && l.value != "" {
			l.expired++
		}
		rep.Changes += l.changes
		rep.Foreign += len(l.wrong)
		rep.Blind += l.blind
		rep.Expired += l.expired
	}
}

// rest is how long the test waits between two looks at the history, or at the servers.
const rest = 5 * time.Millisecond

// recover waits until every worker has been granted the lock after the last fault. The first of
// them gets it as soon as what was left behind has expired, or a long hold has come to its end,
// and it has tried again; a worker whose connections were cut may first have to wait for a
// segment that TCP sends again.
func (r Round) recover(t testing.TB, h *History, rep *Report) {
	t.Helper()
	healed := Now()
	first := r.LongWork + 2*redlock.DefaultMaxRetryDelay + time.Second
	all := 2*first + 4*time.Second
	rep.RecoveryBound, rep.AllServedBound = first, all
	var passed stopwatch
	seen := 0
	for served := map[int]bool{}; len(served) < r.Workers; time.Sleep(rest) {
		events, _ := h.Since(seen)
		seen += len(events)
		for _, e := range events {
			if e.granted() && e.Return > healed && !served[e.Worker] {
				served[e.Worker] = true
				rep.AllServed = time.Duration(e.Return - healed)
				if len(served) == 1 {
					rep.Recovery = rep.AllServed
				}
			}
		}
		switch after := passed.look(); {
		case len(served) == 0 && after > first:
			t.Fatalf("chaos: nobody was granted the lock within %v after the last fault", first)
		case len(served) < r.Workers && after > all:
			t.Fatalf("chaos: only workers %v were granted the lock within %v after the last fault",
				served, all)
		}
	}
}

// stopwatch measures for how long the machine has let the test run. A look that comes late counts
// as two rests: a machine that stands still for a while, as virtual ones do, keeps a round waiting
// for as long, and no lock is late for that.
type stopwatch struct {
	passed time.Duration
	last   time.Time
}

// look returns what has passed since the first look.
func (s *stopwatch) look() time.Duration {
	now := time.Now()
	if !s.last.IsZero() {
		s.passed += min(now.Sub(s.last), 2*rest)
	}
	s.last = now
	return s.passed
}

// fence is the key of the counter of an election.
const fence = "{" + lockName + "}:fence"

// leaks wants every key gone once the locks have expired that no one could release: but for the
// fence counter, the padding, and the queue, which ends by itself.
func (r Round) leaks(t testing.TB, servers []*redistest.Server, rep *Report) {
	t.Helper()
	for i, s := range servers {
		var left []string
		// A key may live for an expiry after the last command; a clock that was set back adds to
		// that.
		for end := time.Now().Add(3*r.Expiry + time.Second); ; time.Sleep(rest) {
			left = left[:0]
			keys, _ := s.Must("KEYS", "*").([]any)
			for _, k := range keys {
				name, _ := k.(string)
				switch {
				case name == fence || strings.HasPrefix(name, wire.SharedCounters):
				case strings.HasPrefix(name, "pad:"):
				case strings.Contains(name, ":{") && endsByItself(s, name):
				default:
					left = append(left, name)
				}
			}
			if len(left) == 0 || time.Now().After(end) {
				break
			}
		}
		rep.Left += len(left)
		if len(left) > 0 {
			t.Errorf("chaos: left on server %d: %q", i, left)
		}
	}
}

// endsByItself tells whether a key of the queue expires in the time that a queue outlives the last
// who stood in it.
func endsByItself(s *redistest.Server, key string) bool {
	ttl, _ := s.Must("PTTL", key).(int64)
	return ttl == -2 || ttl > 0 && ttl <= time.Minute.Milliseconds()
}

// keep copies the history of a failed test to a place where it stays.
func keep(t testing.TB, file *os.File) {
	defer file.Close()
	if !t.Failed() {
		return
	}
	data, err := os.ReadFile(file.Name())
	if err == nil {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("redlock-chaos-%d.jsonl", os.Getpid()))
		if err = os.WriteFile(path, data, 0o600); err == nil {
			t.Logf("the history is in %s", path)
			return
		}
	}
	t.Logf("the history could not be kept: %v", err)
}
