package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/redlock-go/redlock"
)

// Readers and writers, sets of names, and slots of a semaphore: clients with connections of their
// own, spread over four processes. Beside redlock, two libraries of npm have some of them.
const (
	familyPart = "family"
	npmName    = "npm" // redlock for sets, redis-semaphore for slots

	readsPerSecond  = "reads/s"
	writesPerSecond = "writes/s"
	readP99         = "p99 ms of a read"
	writeP99        = "p99 ms of a write"
	setsPerSecond   = "sets/s"
	longestSet      = "longest wait ms of a set"
	longestSingle   = "longest wait ms of a single name"
	slotsUsed       = "% of the slots' time used"
	mostAtOnce      = "most in slots at once"
	slotsFair       = "fewest / most grants of a client"
	slotP99         = "p99 ms of a slot" // in results.json alone
)

// What a client of the family asks for.
const (
	toRead  = "read"
	toWrite = "write" // or lock one name
	toAll   = "all"
	toAny   = "any"
)

// task is what one client asks for again and again.
type task struct {
	Op    string
	Names []string
	Hold  time.Duration
	Addrs []string
}

// team is one process of such clients.
type team struct {
	Tasks []task
	NPM   bool
}

// teamMain is the program of a team. It answers a shift by its log, as a crew does.
func teamMain(t team, orders *json.Decoder, answers *json.Encoder) error {
	var clients []*redlock.Redlock
	for _, job := range t.Tasks {
		pools, closers := dialAll(job.Addrs, dialGoredis)
		defer closers.Close()
		rl := redlock.New(pools...).With(redlock.WithTries(redlock.Unlimited))
		defer rl.Close()
		clients = append(clients, rl)
	}
	each(16, len(clients), func(i int) {
		_ = clients[i].Do(context.Background(), fmt.Sprintf("warm:%d:%d", os.Getpid(), i),
			func(context.Context) error { return nil })
	})
	_ = answers.Encode("ready")
	for s := (shift{}); orders.Decode(&s) == nil; s = (shift{}) {
		_ = answers.Encode(s.turns(len(clients), func(ctx context.Context, i int,
			held func(time.Duration)) error {
			job := t.Tasks[i]
			return job.do(ctx, clients[i], func() { held(job.Hold) })
		}))
	}
	return nil
}

// do is one turn of a client.
func (j task) do(ctx context.Context, rl *redlock.Redlock, work func()) error {
	fn := func(context.Context) error { work(); return nil }
	switch j.Op {
	case toRead:
		return rl.Do(ctx, j.Names[0], fn, redlock.WithShared())
	case toAll:
		return rl.DoAll(ctx, j.Names, fn)
	case toAny:
		return rl.DoAny(ctx, j.Names, func(ctx context.Context, _ string) error { return fn(ctx) })
	}
	return rl.Do(ctx, j.Names[0], fn)
}

// family measures readers and writers, sets, and slots.
func (s *suite) family() {
	for _, n := range []int{3, 5} {
		on := addrs(s.servers[:n])
		s.readers(on, 16, 2, 4*time.Millisecond)
		s.readers(on, 8, 2, 50*time.Millisecond)
		s.sets(on)
		for _, k := range s.Slots {
			s.slots(on, k, false)
		}
		s.slots(on, 5, true)
	}
}

// teams lets clients work for the slice, on empty servers, and returns their turns in the order of
// the tasks. Who is one of redlock and npmName.
func (s *suite) teams(who string, tasks []task) ([][]turn, time.Time, error) {
	s.flush()
	var jobs []job
	for i := range min(crewCount, len(tasks)) {
		t := team{NPM: who == npmName}
		for at := i; at < len(tasks); at += crewCount {
			t.Tasks = append(t.Tasks, tasks[at])
		}
		jobs = append(jobs, job{Team: &t})
	}
	all, err := startAll(jobs)
	for _, h := range all {
		defer h.dismiss()
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	var end time.Time
	logs, err := together(all, shift{For: s.FamilySlice}, func() { end = time.Now() })
	turns := make([][]turn, len(tasks))
	for i, l := range logs {
		if l.Err != "" {
			err = errors.Join(err, errors.New(l.Err))
		}
		for at, t := range l.Turns {
			turns[i+at*crewCount] = t
		}
	}
	return turns, end, err
}

// readers measures readers and writers of one name.
func (s *suite) readers(on []string, readers, writers int, hold time.Duration) {
	var tasks []task
	for i := range readers + writers {
		op := toRead
		if i >= readers {
			op = toWrite
		}
		tasks = append(tasks, task{op, []string{"catalogue"}, hold, on})
	}
	turns, end, err := s.teams(we, tasks)
	k := readersOf(readers, writers, int(hold.Milliseconds()))
	k.Who, k.Nodes = we, len(on)
	if !s.fine(k, turns, err) {
		return
	}
	r, w := count(turns[:readers], end), count(turns[readers:], end)
	if atOnce(turns[readers:]) > 1 || overlap(turns[:readers], turns[readers:]) {
		s.warn("%s: a READER BESIDE A WRITER, or two writers", k.Variant)
	}
	seconds := s.FamilySlice.Seconds()
	s.report.put(k, readsPerSecond, float64(r.grants)/seconds)
	s.report.put(k, writesPerSecond, float64(w.grants)/seconds)
	s.report.put(k, readP99, millis(r.p99))
	s.report.put(k, writeP99, millis(w.p99))
	s.say("%d nodes, %s: %d and %d, p99 %v and %v", len(on), k.Variant, r.grants, w.grants,
		r.p99, w.p99)
}

// sets measures eight clients that lock three of six names, beside sixteen that lock one of them
// and come back at once.
func (s *suite) sets(on []string) {
	name := func(i int) string { return fmt.Sprint("account:", i%setNames) }
	var tasks []task
	for i := range setClients {
		tasks = append(tasks, task{toAll, []string{name(i), name(i + 1), name(i + 3)},
			5 * time.Millisecond, on})
	}
	for i := range singleClients {
		tasks = append(tasks, task{toWrite, []string{name(i)}, 5 * time.Millisecond, on})
	}
	for _, who := range []string{we, npmName} {
		turns, end, err := s.teams(who, tasks)
		k := setsOf()
		k.Who, k.Nodes = who, len(on)
		if !s.fine(k, turns, err) {
			continue
		}
		many, one := count(turns[:setClients], end), count(turns[setClients:], end)
		s.report.put(k, setsPerSecond, float64(many.grants)/s.FamilySlice.Seconds())
		s.report.put(k, longestSet, millis(many.longest))
		s.report.put(k, longestSingle, millis(one.longest))
		s.say("%d nodes, %s, %s: %d sets, longest %v; %d singles, longest %v", len(on), who,
			k.Variant, many.grants, many.longest, one.grants, one.longest)
	}
}

// slots measures four clients for each of k slots. Cut off, each client cannot reach a node of its
// own, so that they see different majorities.
func (s *suite) slots(on []string, k int, cut bool) {
	const hold = 20 * time.Millisecond
	var tasks []task
	for i := range 4 * k {
		seen := slices.Clone(on)
		if cut {
			seen[i%len(on)] = nowhere
		}
		tasks = append(tasks, task{toAny, redlock.Slots("report", k), hold, seen})
	}
	for _, who := range []string{we, npmName} {
		turns, end, err := s.teams(who, tasks)
		key := slotsOf(k, cut)
		key.Who, key.Nodes = who, len(on)
		if !s.fine(key, turns, err) {
			continue
		}
		c, most := count(turns, end), atOnce(turns)
		used := 100 * float64(c.held) / float64(k) / float64(s.FamilySlice)
		s.report.put(key, slotsUsed, used)
		s.report.put(key, mostAtOnce, float64(most))
		s.report.put(key, slotsFair, float64(c.fewest)/float64(max(c.most, 1)))
		s.report.put(key, slotP99, millis(c.p99))
		if who == we && most > k {
			s.warn("%d in %d SLOTS", most, k)
		}
		s.say("%d nodes, %s, %s: %.0f %% used, %d at once, %d to %d grants, p99 %v", len(on), who,
			key.Variant, used, most, c.fewest, c.most, c.p99)
	}
}

// fine reports whether a measurement was made, and notes what went wrong.
func (s *suite) fine(k key, turns [][]turn, err error) bool {
	switch {
	case errors.Is(err, errNoNPM):
		s.say("%s, %s: left out: %v", k.Who, k.Variant, err)
	case err != nil:
		s.warn("%s, %s: %v", k.Who, k.Variant, err)
	}
	return turns != nil
}

// familyTable is the table of the page, or nothing if nothing was measured.
func (r *report) familyTable() string {
	var rows [][]string
	for _, row := range []struct {
		what   string
		key    key
		metric string
	}{
		{"16 readers and 2 writers of 4 ms: reads a second", readersOf(16, 2, 4), readsPerSecond},
		{"– writes a second", readersOf(16, 2, 4), writesPerSecond},
		{"– ms of a write, p99", readersOf(16, 2, 4), writeP99},
		{"8 clients that lock 3 of 6 names: sets a second", setsOf(), setsPerSecond},
		{"– ms of the longest wait", setsOf(), longestSet},
		{"20 clients for 5 slots: % of their time used", slotsOf(5, false), slotsUsed},
		{"– most at once", slotsOf(5, false), mostAtOnce},
		{"– most at once, clients cut off from one node", slotsOf(5, true), mostAtOnce},
	} {
		row.key.Metric, row.key.Nodes = row.metric, 3
		mine := r.median(row.key.by(we))
		if math.IsNaN(mine) {
			return ""
		}
		rows = append(rows, []string{row.what, number(mine),
			number(r.median(row.key.by(npmName)))})
	}
	return markdown([]string{"3 nodes", we, npmName}, rows)
}

func readersOf(readers, writers, ms int) key {
	return key{Section: familyPart, Workers: readers + writers,
		Variant: fmt.Sprintf("%d+%d of %dms", readers, writers, ms)}
}

const setClients, singleClients, setNames = 8, 16, 6

func setsOf() key {
	return key{Section: familyPart, Workers: setClients + singleClients,
		Variant: fmt.Sprintf("3 of %d", setNames)}
}

func slotsOf(k int, cut bool) key {
	variant := fmt.Sprintf("k=%d", k)
	if cut {
		variant += ", cut"
	}
	return key{Section: familyPart, Workers: 4 * k, Variant: variant}
}

// nowhere is an address that refuses connections.
var nowhere = func() string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}()

// errNoNPM says that the libraries of npm cannot take part.
var errNoNPM = errors.New("set BENCHMARK_NODE_MODULES to a directory with npm's redlock, " +
	"redis-semaphore and ioredis")

// npmTeam is the command of a team that works with libraries of npm.
func npmTeam() (*exec.Cmd, error) {
	modules := os.Getenv("BENCHMARK_NODE_MODULES")
	if modules == "" {
		return nil, errNoNPM
	}
	script, err := filepath.Abs("family.cjs")
	if err != nil {
		return nil, err
	}
	return exec.Command("node", script, modules), nil
}
