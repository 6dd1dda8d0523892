package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A crew is one operating-system process full of clients, each with connections of its own and
// one waiter. Waiters that share a runtime would wake each other more cheaply than processes do.
//
// The program runs itself again for each crew, with crewEnv set. They talk in lines of JSON: a
// roll, then shifts, each answered by its log.
const crewEnv = "REDLOCK_BENCHMARK_CREW"

// roll says who is in a crew.
type roll struct {
	Who     string
	Addrs   []string
	Waiters int
}

// shift is one stretch of work.
type shift struct {
	Start time.Time     // for all crews
	For   time.Duration // how long the waiters come back again and again; 0: each comes once
	Hold  time.Duration
	Most  time.Duration // after which waiters who come once give up
}

// shiftLog is what a crew did in a shift.
type shiftLog struct {
	Turns [][]turn // by waiter; the last may lack its grant
	CPU   time.Duration
	Err   string // the first
}

// turn is one Lock and Unlock, in nanoseconds since the epoch; 0 is never. Queued is when the
// waiter was in the queue, of a contender that tells.
type turn struct{ Asked, Granted, Released, Queued int64 }

// crewMain is the program of a crew.
func crewMain(in io.Reader, out io.Writer) error {
	lines, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var r roll
	if err := lines.Decode(&r); err != nil {
		return err
	}
	c := contenderNamed(r.Who)
	if c == nil {
		return fmt.Errorf("there is no contender %q", r.Who)
	}
	lockers := make([]locker, r.Waiters)
	for i := range lockers {
		l, err := c.open(r.Addrs)
		if err != nil {
			return err
		}
		if q, ok := l.(queuer); ok {
			l = q.seen()
		}
		defer l.Close()
		lockers[i] = l
	}
	if err := warm(lockers); err != nil {
		return err
	}
	if err := answers.Encode("ready"); err != nil {
		return err
	}
	for {
		var s shift
		switch err := lines.Decode(&s); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
		if s.For == 0 {
			for i, l := range lockers {
				if f, ok := l.(stranger); ok {
					lockers[i] = f.forget()
				}
			}
		}
		if err := answers.Encode(s.work(lockers)); err != nil {
			return err
		}
	}
}

// leaving is for how long waiters who come back go on after the end of their shift. What they do
// to give up their wait is not counted: with 256 of them, that was one command in fifteen.
const leaving = 200 * time.Millisecond

// queuer is a locker whose waiters stand in a queue. Seen makes one of the same connections that
// has one waiter at a time, and knows since when that is in the queue.
type queuer interface {
	seen() locker
	queued() int64
}

// stranger is a locker that knows something of locks it has had. One that comes once knows nothing.
type stranger interface{ forget() locker }

// warm opens the lockers' connections.
func warm(lockers []locker) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	room := make(chan struct{}, 16) // or the dials time out
	failed := make(chan error, len(lockers))
	for i, l := range lockers {
		room <- struct{}{}
		go func() {
			defer func() { <-room }()
			unlock, err := l.Lock(ctx, fmt.Sprintf("warm:%d:%d", os.Getpid(), i))
			if err == nil {
				err = unlock()
			}
			failed <- err
		}()
	}
	for range lockers {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// work is a shift of all waiters.
func (s shift) work(lockers []locker) shiftLog {
	time.Sleep(time.Until(s.Start))
	before := cpuTime()
	most := s.For + leaving
	if s.For == 0 {
		most = s.Most
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	var (
		log = shiftLog{Turns: make([][]turn, len(lockers))}
		mu  sync.Mutex // guards log.Err
		wg  sync.WaitGroup
	)
	for i, l := range lockers {
		wg.Go(func() {
			for ctx.Err() == nil {
				t := turn{Asked: time.Now().UnixNano()}
				unlock, err := l.Lock(ctx, "contended")
				if err == nil {
					t.Granted = time.Now().UnixNano()
					preciseSleep(s.Hold)
					t.Released = time.Now().UnixNano()
					err = unlock()
				}
				if q, ok := l.(queuer); ok {
					t.Queued = q.queued()
				}
				log.Turns[i] = append(log.Turns[i], t)
				if err != nil && ctx.Err() == nil {
					mu.Lock()
					if log.Err == "" {
						log.Err = err.Error()
					}
					mu.Unlock()
				}
				if s.For == 0 && t.Granted != 0 {
					return
				}
			}
		})
	}
	if s.For > 0 {
		time.Sleep(time.Until(s.Start.Add(s.For)))
		log.CPU = cpuTime() - before
	}
	wg.Wait()
	if s.For == 0 {
		log.CPU = cpuTime() - before
	}
	return log
}

func cpuTime() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// crew is the other end of one, in the main program.
type crew struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	send    *json.Encoder
	answers *json.Decoder
}

// hire starts a crew. It is ready when ready has returned.
func hire(r roll) (*crew, error) {
	c, err := again(crewEnv, "1")
	if err != nil {
		return nil, err
	}
	if err := c.send.Encode(r); err != nil {
		c.dismiss()
		return nil, err
	}
	return c, nil
}

// ready waits until the crew has its connections.
func (c *crew) ready() error {
	var word string
	return c.answers.Decode(&word)
}

// dismiss ends the crew.
func (c *crew) dismiss() {
	_ = c.orders.Close()
	t := time.AfterFunc(grace, func() { _ = c.cmd.Process.Kill() })
	defer t.Stop()
	_ = c.cmd.Wait()
}

// together lets all crews work the same shift. It calls atHalf when half of the shift's time is
// over, if it has one, and atEnd at the end.
func together(crews []*crew, s shift, atHalf, atEnd func()) ([]shiftLog, error) {
	s.Start = time.Now().Add(50 * time.Millisecond)
	for _, c := range crews {
		if err := c.send.Encode(s); err != nil {
			return nil, err
		}
	}
	if s.For > 0 {
		time.Sleep(time.Until(s.Start.Add(s.For / 2)))
		atHalf()
		time.Sleep(time.Until(s.Start.Add(s.For)))
		atEnd()
	}
	logs := make([]shiftLog, len(crews))
	for i, c := range crews {
		if err := c.answers.Decode(&logs[i]); err != nil {
			return nil, err
		}
	}
	if s.For == 0 {
		atEnd()
	}
	return logs, nil
}

// slack is by how much a Lock must have been called earlier to be the earlier one: processes that
// are ready to run wait for a processor, too.
const slack = 20 * time.Millisecond

// queueing is what the logs of a shift come to.
type queueing struct {
	granted       int
	elapsed       time.Duration
	fewest, most  int
	longest       time.Duration // a wait, finished or cut off by the end
	overtakes     int           // grants while somebody waited who was in the queue before the Lock
	later         int           // grants while somebody waited who had called Lock earlier
	overlaps      int           // two holders at a time
	passes        int           // grants to another waiter than the one before
	late          int           // grants in the second half of a stretch
	clientCPU     time.Duration
	err           string
	waits         []float64 // ms
	entries       []float64 // ms until a waiter was in the queue, of those that were
	first, latest int64
}

// event is what a waiter did. Of what happens at the same time, the least kind comes first.
type event struct {
	at     int64
	waiter int
	kind   int   // released, asked, granted
	queued int64 // for asked: when it was in the queue, or 0
}

const (
	released = iota
	asked
	granted
)

// judge looks at all turns of a shift that ended at end, and was half over at half.
func judge(logs []shiftLog, half, end time.Time) (q queueing) {
	var events []event
	waiters := 0
	q.fewest = -1
	for _, l := range logs {
		q.clientCPU += l.CPU
		if q.err == "" {
			q.err = l.Err
		}
		for _, turns := range l.Turns {
			n := 0
			for _, t := range turns {
				if t.Asked >= end.UnixNano() {
					continue
				}
				if q.first == 0 || t.Asked < q.first {
					q.first = t.Asked
				}
				events = append(events, event{t.Asked, waiters, asked, t.Queued})
				until := end.UnixNano()
				if t.Granted != 0 && t.Granted < until {
					until = t.Granted
					n++
					if t.Granted >= half.UnixNano() {
						q.late++
					}
					events = append(events, event{t.Granted, waiters, granted, 0},
						event{t.Released, waiters, released, 0})
					q.latest = max(q.latest, t.Released)
				}
				q.waits = append(q.waits, float64(until-t.Asked)/1e6)
				if t.Queued != 0 {
					q.entries = append(q.entries, float64(t.Queued-t.Asked)/1e6)
				}
				q.longest = max(q.longest, time.Duration(until-t.Asked))
			}
			q.granted += n
			q.most = max(q.most, n)
			if q.fewest < 0 || n < q.fewest {
				q.fewest = n
			}
			waiters++
		}
	}
	q.order(events, waiters)
	q.elapsed = time.Duration(min(end.UnixNano(), q.latest) - q.first)
	return q
}

// order counts overtakes, overlaps and passes. A waiter is overtaken by another if it was in the
// queue before the other called Lock, and the other has the lock first.
func (q *queueing) order(events []event, waiters int) {
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind))
	})
	since, queued := make([]int64, waiters), make([]int64, waiters) // by waiter; 0: it does not
	inside, last := 0, -1
	for _, e := range events {
		switch e.kind {
		case released:
			inside--
		case asked:
			since[e.waiter], queued[e.waiter] = e.at, e.queued
		case granted:
			if last >= 0 && last != e.waiter {
				q.passes++
			}
			last = e.waiter
			mine := since[e.waiter]
			since[e.waiter], queued[e.waiter] = 0, 0
			if inside++; inside > 1 {
				q.overlaps++
			}
			before := func(at int64) bool { return at != 0 && at < mine }
			if slices.ContainsFunc(queued, before) {
				q.overtakes++
			}
			if slices.ContainsFunc(since, func(at int64) bool {
				return at != 0 && before(at+int64(slack))
			}) {
				q.later++
			}
		}
	}
}
