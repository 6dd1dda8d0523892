package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/pool/redigo"
)

// workerEnv is the variable that makes a process a worker: its WorkerConfig in JSON.
const workerEnv = "REDLOCK_CHAOS_WORKER"

// lockName is what all workers of a round contend for.
const lockName = "chaos"

// workerConfig says what a worker process does.
type workerConfig struct {
	Worker   int
	Life     int // how often this worker was started before
	Seed     uint64
	Servers  []string
	Source   net.IP // the address it connects from
	Resource string // socket
	Expiry   time.Duration

	// As in Round.
	NodeTimeout time.Duration
	LongHolds   int
	LongWork    time.Duration
	Election    bool
	Blind       bool
	HandOver    bool
	Several     bool
}

// WorkerMain makes the process a worker if it was started as one, and does not return
// then. A test binary calls it first of all.
func WorkerMain() {
	text := os.Getenv(workerEnv)
	if text == "" {
		return
	}
	var c workerConfig
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "chaos: worker %d: %v\n", c.Worker, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// pools makes a pool of every server with the client's default options: go-redis
// for workers with even numbers, redigo for the others.
func (c *workerConfig) pools() []pool.Pool {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.Source}, Timeout: 5 * time.Second}
		return d.DialContext(ctx, network, addr)
	}
	pools := make([]pool.Pool, len(c.Servers))
	for i, addr := range c.Servers {
		if c.Worker%2 == 0 {
			pools[i] = goredis.NewPool(goredislib.NewClient(&goredislib.Options{Addr: addr,
				Dialer: dial}))
		} else {
			pools[i] = redigo.NewPool(&redigolib.Pool{MaxIdle: 3,
				DialContext: func(ctx context.Context) (redigolib.Conn, error) {
					return redigolib.DialContext(ctx, "tcp", addr, redigolib.DialContextFunc(dial))
				}})
		}
	}
	return pools
}

// run takes turns on the lock, or stands for election, until stdin ends, and tells of it on stdout.
func (c *workerConfig) run(stdin io.Reader, stdout io.Writer) error {
	goredislib.SetLogger(quiet{}) // it would tell of every server that is down
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	resource, err := dialResource(c.Resource)
	if err != nil {
		return err
	}
	opts := []redlock.Option{redlock.WithExpiry(c.Expiry), redlock.WithFencing(),
		redlock.WithTries(redlock.Unlimited)}
	if c.NodeTimeout > 0 {
		opts = append(opts, redlock.WithNodeTimeout(c.NodeTimeout))
	}
	w := &worker{
		workerConfig: c, history: NewHistory(stdout), resource: resource,
		rnd: rand.New(rand.NewPCG(c.Seed, uint64(c.Worker)<<32|uint64(c.Life))),
		rl:  redlock.New(c.pools()...).With(opts...),
	}
	switch {
	case c.Election:
		err = w.elect(ctx)
	case c.Several:
		err = w.several(ctx)
	default:
		err = w.turns(ctx)
	}
	if err != nil {
		return err
	}
	// What the nodes have not answered is left to the process's end.
	closing, done := context.WithTimeout(context.Background(), c.Expiry)
	defer done()
	_ = w.rl.CloseContext(closing)
	_, err = w.history.Events()
	return err
}

// quiet is a logger that says nothing.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

type worker struct {
	*workerConfig
	history  *History
	resource *resourceClient
	rnd      *rand.Rand
	rl       *redlock.Redlock
}

// turns takes one turn after the other until ctx is done.
func (w *worker) turns(ctx context.Context) error {
	for turn := 0; ctx.Err() == nil; turn++ {
		if err := w.turn(ctx, fmt.Sprintf("%d.%d.%d", w.Worker, w.Life, turn)); err != nil {
			return err
		}
	}
	return nil
}

// turn takes the lock, raises all three numbers by one, and gives it back. Sometimes the work
// takes about as long as the expiry, under a held context; then it ends when that does. Otherwise
// the worker trusts that it is quick enough, as many do.
func (w *worker) turn(ctx context.Context, grant string) error {
	m := w.rl.NewMutex(lockName)
	work, hold := time.Duration(1+w.rnd.Int64N(8))*time.Millisecond, w.rnd.IntN(4) == 0
	if hold && w.rnd.IntN(w.LongHolds) == 0 {
		work = w.Expiry/2 + time.Duration(w.rnd.Int64N(int64(w.LongWork-w.Expiry/2)))
	}
	extend := w.rnd.IntN(4) == 0

	parcel, err := w.fetch(ctx)
	if err != nil {
		return err
	}
	hold = hold || parcel != ""
	e := Event{Op: Lock, Worker: w.Worker, Grant: grant, Call: Now(), Adopted: parcel != ""}
	held, err := lock(ctx, m, hold, parcel)
	e.Return, e.OK = Now(), err == nil
	if err != nil {
		e.Err = err.Error()
		w.history.Add(e)
		return nil
	}
	e.Until, e.Token = monotonic(m.Until()), m.FencingToken()
	w.history.Add(e)
	if e.Token == 0 {
		return fmt.Errorf("grant %s has no token", grant)
	}

	if hold {
		err = w.workUnderHold(held, m, grant, work)
	} else {
		err = w.work(held, grant, e.Token, work)
	}
	switch {
	case err != nil && !errors.Is(err, errStale):
		return err
	case extend && !hold:
		e = Event{Op: Extend, Worker: w.Worker, Grant: grant, Call: Now()}
		e.OK, err = m.Extend()
		e.Return = Now()
		if err != nil {
			e.Err = err.Error()
		}
		e.Until = monotonic(m.Until())
		w.history.Add(e)
	}
	left := Now()
	w.history.Add(Event{Op: Leave, Worker: w.Worker, Grant: grant, Call: left, Return: left,
		OK: true})
	if handed, err := w.handOff(m); handed || err != nil {
		return err
	}
	e = Event{Op: Unlock, Worker: w.Worker, Grant: grant, Call: left}
	e.OK, err = m.Unlock()
	e.Return = Now()
	if err != nil {
		e.Err = err.Error()
	}
	w.history.Add(e)
	return nil
}

// lock locks, holds, or adopts the parcel if there is one. The context is that of a hold, if any.
func lock(ctx context.Context, m *redlock.Mutex, hold bool, parcel string) (context.Context,
	error) {
	switch {
	case parcel != "":
		return m.Adopt(ctx, parcel)
	case hold:
		return m.Hold(ctx)
	}
	return context.Background(), m.LockContext(ctx)
}

// fetch returns a lock that another worker has handed off, or "". In every other turn it waits for
// one, for a third of an expiry at most.
func (w *worker) fetch(ctx context.Context) (string, error) {
	if !w.HandOver || w.rnd.IntN(2) != 0 {
		return "", nil
	}
	for end := Now() + int64(w.Expiry/3); ; time.Sleep(2 * time.Millisecond) {
		rep, err := w.resource.ask(request{Op: fetch, Worker: w.Worker})
		if err != nil || rep.Parcel != "" || Now() > end || ctx.Err() != nil {
			return rep.Parcel, err
		}
	}
}

// handOff hands one of four locks off, for anybody to adopt. It reports whether it did.
func (w *worker) handOff(m *redlock.Mutex) (bool, error) {
	if !w.HandOver || w.rnd.IntN(4) != 0 {
		return false, nil
	}
	parcel, err := m.Handoff()
	if err != nil {
		return false, nil // it was lost, and has to be unlocked
	}
	_, err = w.resource.ask(request{Op: post, Worker: w.Worker, Parcel: parcel})
	return true, err
}

// workUnderHold works, and notes what the renewals have come to and when the worker was told of a
// loss.
func (w *worker) workUnderHold(held context.Context, m *redlock.Mutex, grant string,
	work time.Duration) error {
	seen := newWatch(m, held)
	err := w.work(held, grant, m.FencingToken(), work)
	if err != nil && !errors.Is(err, errStale) {
		return err
	}
	if held.Err() != nil {
		<-seen.over
	}
	until, told, late := seen.stop()
	e := Event{Op: Extend, Worker: w.Worker, Grant: grant, Call: Now(), OK: true,
		Until: monotonic(until)}
	e.Return = Now()
	w.history.Add(e)
	// When the round is over, held contexts end as well, and nothing is lost.
	if cause := context.Cause(held); !told.IsZero() && !errors.Is(cause, context.Canceled) {
		w.history.Add(Event{
			Op: Lost, Worker: w.Worker, Grant: grant, Call: e.Call, Return: monotonic(told),
			Until: monotonic(until),
			Value: int64(late), OK: errors.Is(cause, redlock.ErrLost), Err: cause.Error(),
		})
	}
	return err
}

// work reads the numbers, works, and writes each back one higher. The read with the token claims
// the number behind the fence.
func (w *worker) work(held context.Context, grant string, token uint64, d time.Duration) error {
	ask := func(req request) (int64, error) {
		req.Worker, req.Grant = w.Worker, grant
		return w.resource.do(req)
	}
	var read [3]int64
	numbers := [3]request{{}, {Late: true}, {Token: token}}
	for i, req := range numbers {
		var err error
		req.Op = Read
		if read[i], err = ask(req); err != nil {
			return err
		}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-held.Done():
		return nil
	}
	numbers[1].Token = token
	var stale error
	for i, req := range numbers {
		req.Op, req.Value = Write, read[i]+1
		switch _, err := ask(req); {
		case errors.Is(err, errStale):
			stale = err
		case err != nil:
			return err
		}
	}
	return stale
}

// monotonic is a moment on the history's clock; 0 for the zero time.
func monotonic(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	for {
		now := Now()
		at := now + int64(time.Until(t))
		if time.Duration(Now()-now) < time.Millisecond { // not paused between the two clocks
			return at
		}
	}
}
