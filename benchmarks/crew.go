package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A crew is one operating-system process full of clients, each with connections of its own and
// one waiter. Waiters that share a runtime would wake each other more cheaply than processes do.
// It says "ready", and is sent shifts, each of which it answers by its log.

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
	Err   string // one of them
}

// turn is one Lock and Unlock, in nanoseconds since the epoch; 0 is never.
type turn struct{ Asked, Granted, Released int64 }

// crewMain is the program of a crew.
func crewMain(r roll, orders *json.Decoder, answers *json.Encoder) error {
	lockers := make([]locker, r.Waiters)
	for i := range lockers {
		lockers[i] = contenderNamed(r.Who).open(r.Addrs, expiry)
		defer lockers[i].Close()
	}
	if err := warm(lockers); err != nil {
		return err
	}
	_ = answers.Encode("ready")
	for s := (shift{}); orders.Decode(&s) == nil; s = (shift{}) {
		for i, l := range lockers {
			if f, ok := l.(stranger); ok && s.For == 0 {
				lockers[i] = f.forget()
			}
		}
		_ = answers.Encode(s.work(lockers))
	}
	return nil
}

// leaving is for how long waiters who come back go on after the end of their shift. What they do
// to give up their wait is not counted: with 256 of them, that was one command in fifteen.
const leaving = 200 * time.Millisecond

// stranger is a locker that knows something of locks it has had. One that comes once knows nothing.
type stranger interface{ forget() locker }

// warm opens the lockers' connections, not too many at a time, or the dials time out.
func warm(lockers []locker) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var failed atomic.Pointer[error]
	each(16, len(lockers), func(i int) {
		if err := pair(ctx, lockers[i], fmt.Sprintf("warm:%d:%d", os.Getpid(), i)); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// work is a shift of waiters for one lock.
func (s shift) work(lockers []locker) shiftLog {
	return s.turns(len(lockers), func(ctx context.Context, i int, held func(time.Duration)) error {
		unlock, err := lockers[i].Lock(ctx, "contended")
		if err != nil {
			return err
		}
		held(s.Hold)
		return unlock()
	})
}

// turns is a shift of so many waiters. Take takes a turn of one of them: it calls held while it has
// what it waits for.
func (s shift) turns(waiters int,
	take func(ctx context.Context, i int, held func(time.Duration)) error) shiftLog {
	time.Sleep(time.Until(s.Start))
	before, end := cpuTime(), s.Start.Add(s.For)
	ctx, cancel := context.WithDeadline(context.Background(),
		end.Add(cmp.Or(s.Most, leaving)))
	defer cancel()
	log := shiftLog{Turns: make([][]turn, waiters)}
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			for ctx.Err() == nil {
				t := turn{Asked: time.Now().UnixNano()}
				err := take(ctx, i, func(hold time.Duration) {
					t.Granted = time.Now().UnixNano()
					preciseSleep(hold)
					t.Released = time.Now().UnixNano()
				})
				log.Turns[i] = append(log.Turns[i], t)
				if err != nil && ctx.Err() == nil {
					failed.Store(&err)
				}
				if s.For == 0 && t.Granted != 0 {
					return
				}
			}
		})
	}
	if s.For == 0 {
		wg.Wait()
	}
	time.Sleep(time.Until(end))
	log.CPU = cpuTime() - before
	wg.Wait()
	if err := failed.Load(); err != nil {
		log.Err = (*err).Error()
	}
	return log
}

// together lets all crews work the same shift. It calls atEnd at its end.
func together(crews []*helper, s shift, atEnd func()) ([]shiftLog, error) {
	s.Start = time.Now().Add(50 * time.Millisecond)
	for _, c := range crews {
		if err := c.send.Encode(s); err != nil {
			return nil, err
		}
	}
	if s.For > 0 {
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
