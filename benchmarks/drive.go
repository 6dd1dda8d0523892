package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// result is what a number of goroutines did in a stretch of time.
type result struct {
	pairs   int64 // lock + unlock, both finished in time
	elapsed time.Duration
	spent   time.Duration // in those pairs, by all goroutines
	cpu     time.Duration // of this process, without the servers
	mallocs uint64
	err     error // the first; a goroutine that meets one goes on
	hung    bool  // a call did not end, and its goroutine was left behind
}

// workload is how a locker is driven.
type workload struct {
	goroutines int
	warm       time.Duration // the most until each goroutine is at its second pair; 0: no wait
	slice      time.Duration
	rest       time.Duration // before each pair: a random one with this mean; 0: none
	ends       bool          // the context of a Lock may end, as that of a request
	atEnd      func()        // called when the slice is over; may be nil
}

// drive lets goroutines lock and unlock with one locker, each its own name, as fast as they can.
// It counts what is done within the slice, calls atEnd, and waits for what is still under way.
// What is not done after the grace is cancelled if it can be, and the locker is closed.
//
// Usually the context cannot end, as that of the libraries' Lock cannot.
func drive(e *entrant, l workload) result {
	d := driver{locker: e.lockers[0], rest: l.rest,
		prefix: "pair:" + strconv.FormatInt(drives.Add(1), 10) + ":"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	d.ctx = ctx
	if !l.ends {
		d.ctx = context.Background()
	}
	runtime.GC()
	for g := range l.goroutines {
		d.all.Go(func() { d.repeat(g) })
	}
	for begun := time.Now(); time.Since(begun) < l.warm && d.pairs.Load() < int64(l.goroutines); {
		time.Sleep(time.Millisecond)
	}
	mallocs, cpu, start := allocations(), cpuTime(), time.Now()
	done, spent := d.pairs.Load(), d.spent.Load()
	time.Sleep(l.slice)
	r := result{pairs: d.pairs.Load() - done, spent: time.Duration(d.spent.Load() - spent),
		elapsed: time.Since(start)}
	d.over.Store(true)
	r.cpu, r.mallocs = cpuTime()-cpu, allocations()-mallocs
	if l.atEnd != nil {
		l.atEnd()
	}
	r.hung = !d.end(func() { cancel(); e.leave() })
	switch err := d.failed.Load(); {
	case r.hung:
		r.err = errHung
	case err != nil:
		r.err = *err
	}
	return r
}

var errHung = errors.New("a call did not return, although its client is closed")

// driver is the goroutines of one slice.
type driver struct {
	locker locker
	ctx    context.Context
	// Names are new in each slice: what one contender leaves behind must not stand in the way of
	// the next.
	prefix string
	rest   time.Duration
	pairs  atomic.Int64
	spent  atomic.Int64 // nanoseconds in those pairs
	over   atomic.Bool
	failed atomic.Pointer[error]
	all    sync.WaitGroup
}

// repeat locks and unlocks until the slice is over.
func (d *driver) repeat(goroutine int) {
	name := d.prefix + strconv.Itoa(goroutine)
	for !d.over.Load() {
		if d.rest > 0 {
			time.Sleep(time.Duration(rand.ExpFloat64() * float64(d.rest)))
		}
		start := time.Now()
		err := pair(d.ctx, d.locker, name)
		if d.over.Load() {
			return
		}
		if err != nil {
			d.failed.CompareAndSwap(nil, &err)
			runtime.Gosched()
			continue
		}
		d.spent.Add(int64(time.Since(start)))
		d.pairs.Add(1)
	}
}

// end waits for the goroutines, and calls stop if they need longer than the grace. It reports
// whether all of them have ended.
func (d *driver) end(stop func()) bool {
	ended := make(chan struct{})
	go func() { d.all.Wait(); close(ended) }()
	for range 2 {
		select {
		case <-ended:
			return true
		case <-time.After(grace):
			stop()
		}
	}
	return false
}

var drives atomic.Int64

// grace is how long a lock that is free may take. A waiter of rueidislock may sleep for ever
// beside a free lock.
const grace = 10 * time.Second

func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// cpuTime is the processor time of this process.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }
func millis(d time.Duration) float64 { return float64(d) / 1e6 }
