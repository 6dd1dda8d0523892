package main

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// run is what a number of goroutines did in a stretch of time.
type run struct {
	pairs   int64 // lock + unlock, both finished in time
	elapsed time.Duration
	cpu     time.Duration // of this process, without the servers
	mallocs uint64
	bytes   uint64
	err     error // the first; a goroutine that meets one goes on
}

// drive lets goroutines lock and unlock for d, each its own name, as fast as they can. It calls
// atEnd when d is over, and then waits for what is still under way; what is not done after the
// grace is cancelled.
func drive(l locker, goroutines int, d time.Duration, atEnd func()) run {
	var (
		r      run
		pairs  atomic.Int64
		over   atomic.Bool
		failed atomic.Pointer[error]
		wg     sync.WaitGroup
	)
	// Names are new in each turn: what one contender leaves behind must not stand in the way of
	// the next.
	prefix := "pair:" + strconv.FormatInt(drives.Add(1), 10) + ":"
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	runtime.GC()
	before, start := usage(), time.Now()
	for g := range goroutines {
		wg.Go(func() {
			name := prefix + strconv.Itoa(g)
			for !over.Load() {
				unlock, err := l.Lock(ctx, name)
				if err == nil {
					err = unlock()
				}
				if over.Load() {
					return
				}
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					runtime.Gosched()
					continue
				}
				pairs.Add(1)
			}
		})
	}
	time.Sleep(d)
	r.pairs, r.elapsed = pairs.Load(), time.Since(start)
	over.Store(true)
	after := usage()
	defer time.AfterFunc(grace, cancel).Stop()
	if atEnd != nil {
		atEnd()
	}
	wg.Wait()
	r.cpu, r.mallocs, r.bytes = after.cpu-before.cpu, after.mem.Mallocs-before.mem.Mallocs,
		after.mem.TotalAlloc-before.mem.TotalAlloc
	if err := failed.Load(); err != nil {
		r.err = *err
	}
	return r
}

var drives atomic.Int64

// grace is how long a lock that is free may take. A waiter of rueidislock may sleep for ever
// beside a free lock.
const grace = 10 * time.Second

type used struct {
	cpu time.Duration
	mem runtime.MemStats
}

func usage() used {
	var u used
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	u.cpu = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	runtime.ReadMemStats(&u.mem)
	return u
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }
func millis(d time.Duration) float64 { return float64(d) / 1e6 }
