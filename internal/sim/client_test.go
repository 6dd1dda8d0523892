package sim_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/sim"
	"github.com/redlock-go/redlock/pool"
)

// client is one process: a Redlock with links and a clock of its own.
type client struct {
	*world
	id     int
	clock  clientClock
	pauses pauses
	rl     *redlock.Redlock
}

func (w *world) newClient(id int) *client {
	d, cl := w.dice(), int64(id)
	c := &client{world: w, id: id, clock: clientClock{start: w.start, rate: 1, dice: d, id: cl}}
	if w.has(rates) {
		c.clock.rate = 1 + 0.0045*(2*d.unit("client rate", cl)-1)
	}
	if w.has(skew) {
		most := time.Hour
		if w.has(loss) {
			most = w.expiry() / 4 // without the counters, tokens rest on the clocks
		}
		c.clock.offset = d.between(-most, most, "skew", cl)
	}
	if w.has(pause) {
		at := time.Duration(0)
		for i := int64(0); i < 4; i++ {
			at += d.between(0, 4*w.expiry(), "until pause", cl, i)
			end := at + d.between(0, 2*w.expiry(), "pause", cl, i)
			c.pauses = append(c.pauses, struct{ from, to time.Duration }{at, end})
			at = end
		}
	}
	pools := make([]pool.Pool, len(w.nodes))
	for i, n := range w.nodes {
		link := n.Link(fmt.Sprintf("c%d", id))
		link.Plan(w.plan(c, i))
		if d.chance(0.5, "starting", cl) {
			pools[i] = startingWay{sim.Starting{Link: link}, c.clock}
		} else {
			pools[i] = way{link, c.clock}
		}
	}
	opts := []redlock.Option{
		redlock.WithExpiry(w.expiry()),
		redlock.WithNodeTimeout(w.nodeTimeout()),
		redlock.WithTries(redlock.Unlimited),
		redlock.WithRetryDelayFunc(c.delay),
	}
	if w.fencing() {
		opts = append(opts, redlock.WithFencing())
	}
	if w.guarded() {
		opts = append(opts, redlock.WithRestartGuard(w.expiry()))
	}
	if !w.announcing() {
		opts = append(opts, redlock.WithoutAnnouncements())
	}
	c.rl = redlock.New(pools...).With(opts...)
	return c
}

// delay is random like the default, but follows from the seed.
func (c *client) delay(tries int) time.Duration {
	least, most := c.expiry()/50, c.expiry()/10
	if c.Edge {
		least, most = 100*time.Microsecond, time.Millisecond
	}
	return c.dice().between(least, most, "retry", int64(c.id), int64(tries), int64(c.now()))
}

func (c *client) close() {
	ctx, stop := context.WithTimeout(context.Background(), c.longest())
	defer stop()
	if err := c.rl.CloseContext(ctx); err != nil {
		c.violate("I10 nothing runs on", "close: %v", err)
	}
}

// worker is one goroutine that locks again and again.
type worker struct {
	*client
	id  int
	try int64 // cycle

	mu     sync.Mutex // guards what gen writes
	values []string   // of this cycle's attempts
	began  time.Time  // of the last one, by the client's clock
	made   int
	last   string
}

func (w *worker) String() string { return fmt.Sprintf("c%dw%d", w.client.id, w.id) }

// gen is the generator of the beginnings of values.
func (w *worker) gen() (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	w.last = fmt.Sprintf("%sn%d|", w, w.made)
	w.values = append(w.values, w.last)
	w.began = w.clock.Now()
	return w.last, nil
}

func (w *worker) roll(what string, n ...int64) []int64 {
	return append([]int64{int64(w.client.id), int64(w.id), w.try}, n...)
}

func (w *worker) chance(p float64, what string, n ...int64) bool {
	return w.dice().chance(p, what, w.roll(what, n...)...)
}

func (w *worker) between(least, most time.Duration, what string, n ...int64) time.Duration {
	return w.dice().between(least, most, what, w.roll(what, n...)...)
}

// sleep lets time pass, and more of it if the process is paused then.
func (w *worker) sleep(d time.Duration) {
	time.Sleep(d)
	if now := w.now(); w.pauses.until(now) != now {
		w.reached("paused")
		time.Sleep(w.pauses.until(now) - now)
	}
}

// react lets a moment pass, so that the worker does not go on at the instant at which the library is
// busy with the same thing.
func (w *worker) react(to string) {
	w.sleep(w.between(time.Microsecond, 100*time.Microsecond, "reaction to "+to, int64(w.now())))
}

func (w *worker) run() {
	var m *redlock.Mutex
	var name string
	for range w.Cycles {
		w.try++
		w.sleep(w.between(0, w.expiry()/2, "idle"))
		if m == nil || w.chance(0.5, "new mutex") {
			name = lockName(w.dice().below(w.names(), "name", w.roll("name")...))
			m = w.rl.NewMutex(name, redlock.WithGenValueFunc(w.gen))
		}
		if !w.cycle(m, name) {
			m = nil
		}
	}
}

// cycle acquires the lock in one way or another, works, and releases it. It reports whether
// the mutex is unlocked now.
func (w *worker) cycle(m *redlock.Mutex, name string) bool {
	w.mu.Lock()
	w.values = nil
	w.mu.Unlock()

	// A context that ends at some time, often during the acquisition.
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	patience := w.between(0, 3*w.expiry(), "patience")
	if !w.has(cancel) {
		patience = 20 * w.expiry()
	}
	var ended time.Duration
	var endedMu sync.Mutex
	impatient := time.AfterFunc(patience, func() {
		endedMu.Lock()
		ended = w.now()
		endedMu.Unlock()
		stop(errImpatient)
	})
	defer impatient.Stop()

	called := w.now()
	var held context.Context
	var err error
	kind := w.dice().below(10, "kind", w.roll("kind")...)
	what := "Lock"
	switch {
	case kind < 2 || kind < 4 && w.nodeTimeout() == w.expiry():
		what = "TryLock"
		err = m.TryLockContext(ctx)
	case kind < 6:
		err = m.LockContext(ctx)
	default:
		what = "Hold"
		held, err = m.Hold(ctx)
	}
	returned := w.now()
	w.note("%s %s %s: %v", w, what, name, kinds(err))

	endedMu.Lock()
	if ended != 0 && returned > ended+time.Millisecond {
		w.violate("I17 promptness", "%s %s returned %v after its context ended", w, what, returned-ended)
	}
	endedMu.Unlock()
	w.mu.Lock()
	values := append([]string(nil), w.values...)
	last, began := w.last, w.began
	w.mu.Unlock()
	// Acquire, raise, release; and all again after a refusal by its own key.
	if bound := time.Duration(3*len(values))*w.nodeTimeout() + time.Millisecond; what == "TryLock" && returned-called > bound {
		w.violate("I12 bounded", "%s TryLock took %v for %d attempts", w, returned-called, len(values))
	}
	if err != nil {
		w.failed(ctx, what, m, err)
		w.end(values...)
		w.gone(values)
		return true
	}
	if len(values) == 0 {
		w.violate("I14 one value an attempt", "%s was granted %s without a new value", w, name)
		_, _ = m.Unlock()
		return false
	}
	w.end(values[:len(values)-1]...)

	until := m.Until()
	if held == nil && !until.Equal(began.Add(w.expiry()-w.drift())) {
		w.violate("I2 validity", "%s: until %v, but the attempt began at %v", w, until.Sub(w.start), began.Sub(w.start))
	}
	end := w.clock.truly(until)
	if end <= returned {
		w.violate("I2 validity", "%s was granted %s when it had already ended at %v", w, name, end)
	}
	if plain(m.Value()) != plain(last) {
		w.violate("I14 one value an attempt", "%s holds %q, generated %q last", w, m.Value(), last)
	}
	if w.fencing() != (m.FencingToken() != 0) {
		w.violate("I3 token order", "%s has the token %d", w, m.FencingToken())
	}
	w.reached(what)

	if held == nil {
		l := w.begin(w.String(), name, last, m.FencingToken(), end)
		w.work(ctx, m, l, nil)
		return w.finishWork(m, l, values, nil)
	}
	l := w.begin(w.String(), name, last, m.FencingToken(), forever)
	lost := make(chan struct{})
	unhook := context.AfterFunc(held, func() {
		defer close(lost)
		l.end(w.now())
		w.lost(held, l)
	})
	w.work(ctx, m, l, held)
	clean := w.finishWork(m, l, values, held)
	if !unhook() {
		<-lost
	}
	if held.Err() == nil {
		w.violate("I7 loss signal", "%s: the held context has not ended after Unlock", w)
	}
	return clean
}

const forever = 1 << 62

var errImpatient = errors.New("impatient")

// sentinels are the errors that say how an operation ended.
var sentinels = []error{
	redlock.ErrFailed, redlock.ErrTaken, redlock.ErrNoQuorum, redlock.ErrExpired, redlock.ErrNotHeld, redlock.ErrLost,
	redlock.ErrReleased, redlock.ErrClosed, context.Canceled, errImpatient,
}

// kinds returns which of the sentinels an error matches.
func kinds(err error) string {
	if err == nil {
		return "ok"
	}
	text := ""
	for _, s := range sentinels {
		if errors.Is(err, s) {
			text += "[" + s.Error() + "]"
		}
	}
	return text
}

// failed checks what a failed acquisition says and leaves.
func (w *worker) failed(ctx context.Context, what string, m *redlock.Mutex, err error) {
	bad := func(why string) { w.violate("I13 errors", "%s %s: %s: %v", w, what, why, err) }
	if !errors.Is(err, redlock.ErrFailed) {
		bad("is not ErrFailed")
	}
	if errors.Is(err, context.Canceled) != errors.Is(err, errImpatient) {
		bad("the context's error without its cause")
	}
	if errors.Is(err, redlock.ErrExpired) {
		w.reached("attempt expired")
	}
	switch {
	case errors.Is(err, context.Canceled):
		if ctx.Err() == nil {
			bad("the context has not ended")
		}
		w.reached("cancelled")
	case errors.Is(err, redlock.ErrTaken):
		w.reached("taken")
		if w.split(m.Name()) {
			w.reached("split vote")
		}
	case errors.Is(err, redlock.ErrNoQuorum):
		w.reached("no quorum")
		if w.calm() && w.Faults&^(rates|skew|mute) == 0 {
			bad("every node answered")
		}
	case errors.Is(err, redlock.ErrExpired):
	default:
		bad("says no reason")
	}
	if what != "TryLock" && ctx.Err() == nil {
		bad("the tries were unlimited")
	}
	if !m.Until().IsZero() || m.Value() != "" || m.FencingToken() != 0 {
		bad("the mutex looks locked")
	}
}

// split tells whether the nodes hold values of several owners.
func (w *worker) split(name string) bool {
	owners := make(map[string]bool)
	for _, v := range w.nodes.Values(name) {
		if v != "" {
			owners[v] = true
		}
	}
	return len(owners) > 1
}

// gone checks that nodes without faults do not hold on to values that have been given up. All that
// was on its way has landed after some milliseconds.
func (w *worker) gone(values []string) {
	if !w.calm() || len(w.pauses) > 0 || w.Edge {
		return
	}
	time.Sleep(8 * time.Millisecond)
	for i, n := range w.nodes {
		if w.Few && w.faulty(i) {
			continue
		}
		for name := range w.names() {
			for _, v := range values {
				if got := n.Value(lockName(name)); got != "" && plain(got) == plain(v) {
					w.violate("I8 no leaks", "node %d holds %s, which %s gave up", i, plain(v), w)
				}
			}
		}
	}
}

// onQuorum checks that a quorum of nodes holds the lease now.
func (w *worker) onQuorum(l *lease) {
	if !w.inModel() || w.has(loss) {
		return
	}
	n := 0
	for _, v := range w.nodes.Values(l.name) {
		if plain(v) == plain(l.value) {
			n++
		}
	}
	if n < w.quorum() {
		w.violate("I2 validity", "%s: %s is on %d of %d nodes", w, plain(l.value), n, w.Nodes)
	}
}

// solid tells whether nothing can happen to the lease: a quorum that always answers has granted it.
func (w *worker) solid(l *lease) bool {
	if !w.calm() {
		return false
	}
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	n := 0
	for i, r := range w.of(l.value).node {
		if r.granted != 0 && !(w.Few && w.faulty(i)) {
			n++
		}
	}
	return n >= w.quorum()
}

// lost looks at a held context that has ended.
func (w *worker) lost(held context.Context, l *lease) {
	cause := context.Cause(held)
	w.note("%s: held context of %s ended: %v", w, l.name, kinds(cause))
	switch {
	case errors.Is(cause, redlock.ErrReleased), errors.Is(cause, errImpatient):
	case errors.Is(cause, redlock.ErrLost):
		w.reached("lost")
		w.onQuorum(l) // the local timer ends it before the nodes do
		if w.solid(l) {
			w.violate("I7 loss signal", "%s: %v, though a quorum answered all the time", w, cause)
		}
	default:
		w.violate("I7 loss signal", "%s: unexpected cause %v", w, cause)
	}
}

// work does something with the lock for some time.
func (w *worker) work(ctx context.Context, m *redlock.Mutex, l *lease, held context.Context) {
	length := w.between(0, 2*w.expiry(), "work")
	if held == nil && w.chance(0.6, "short") {
		length = w.between(0, w.expiry()/4, "short work")
	}
	deadline := w.now() + length
	if w.Edge {
		deadline = l.until() - 1
		if held != nil {
			deadline = w.now() + 2*w.expiry()
		}
	}
	for i := int64(0); ; i++ {
		w.update(l, i)
		now := w.now()
		if held != nil && held.Err() != nil || now >= deadline {
			break
		}
		if held == nil {
			w.probe(l)
		}
		d := min(deadline-now, w.between(0, w.expiry()/2, "step", i))
		if held == nil {
			w.sleep(d)
		} else {
			select {
			case <-held.Done():
			case <-time.After(d):
			}
			w.react("held")
		}
		if w.now() >= deadline {
			break
		}
		switch {
		case w.chance(0.3, "extend", i) && !(w.Edge && held == nil && i > 1):
			if !w.extend(ctx, m, l, held) {
				return
			}
			if w.Edge && held == nil {
				deadline = l.until() - 1
			}
		case w.chance(0.2, "valid", i):
			before := w.now()
			_, err := m.ValidContext(ctx)
			if held != nil && errors.Is(err, redlock.ErrExpired) {
				if time.Sleep(time.Nanosecond); held.Err() == nil {
					w.violate("I7 loss signal", "%s: Valid says %v, but the held context goes on", w, err)
				}
			}
			if err != nil && w.solid(l) && ctx.Err() == nil && (held == nil && before+4*time.Millisecond < l.until() || held != nil && held.Err() == nil) {
				w.violate("I12 bounded", "%s: valid: %v", w, err)
			}
			w.react("valid")
		}
	}
	if w.Edge && w.now() < l.until() {
		w.onQuorum(l)
		w.reached("held to the last nanosecond")
	}
}

// probe looks at the nodes at the last moment of the lease, if it has not been extended
// or ended by then.
func (w *worker) probe(l *lease) {
	to := l.until()
	if to <= w.now() {
		return
	}
	time.AfterFunc(to-1-w.now(), func() {
		if l.until() == to {
			w.onQuorum(l)
		}
	})
}

// extend extends the lock and reports whether it is still worth working.
func (w *worker) extend(ctx context.Context, m *redlock.Mutex, l *lease, held context.Context) bool {
	called, most := w.now(), w.clock.Now().Add(w.expiry()-w.drift())
	_, err := m.ExtendContext(ctx)
	returned := w.now()
	defer w.react("extend")
	w.note("%s Extend %s: %v", w, l.name, kinds(err))
	if took := returned - called; took > 2*w.nodeTimeout()+time.Millisecond {
		w.violate("I12 bounded", "%s Extend took %v", w, took)
	}
	if err == nil {
		w.reached("extended")
		if held == nil && called >= l.until() {
			w.violate("I6 continuity", "%s extended %s at %v, after its end at %v", w, plain(l.value), called, l.until())
		}
		if n := w.count(l.value, func(n nodeRecord) bool { return n.extended >= called }); n < w.quorum() && held == nil {
			w.violate("I6 continuity", "%s extended %s on %d of %d nodes", w, plain(l.value), n, w.Nodes)
		}
		if held == nil {
			if m.Until().After(most) {
				w.violate("I2 validity", "%s extended %s until %v, counting from after the call", w, l.name, m.Until().Sub(w.start))
			}
			to := w.clock.truly(m.Until())
			if to <= returned {
				w.violate("I2 validity", "%s extended %s until %v, which is over", w, l.name, to)
			}
			l.prolong(to)
		}
		return true
	}
	switch {
	case errors.Is(err, redlock.ErrExpired):
		w.reached("extend after the end")
		if held != nil {
			if time.Sleep(time.Nanosecond); held.Err() == nil {
				w.violate("I7 loss signal", "%s: Extend says %v, but the held context goes on", w, err)
			}
		}
		l.end(w.now())
		if m.Until().After(w.clock.Now()) {
			w.violate("I13 errors", "%s: Extend says %v, but until is %v", w, err, m.Until().Sub(w.start))
		}
		return false
	case errors.Is(err, redlock.ErrNoQuorum):
		w.reached("extend without a quorum")
	case errors.Is(err, redlock.ErrNotHeld) && held != nil:
		return false
	case errors.Is(err, context.Canceled):
		if ctx.Err() == nil {
			w.violate("I13 errors", "%s: the context has not ended: %v", w, err)
		}
	default:
		w.violate("I13 errors", "%s: Extend: %v", w, err)
	}
	if w.solid(l) && ctx.Err() == nil && called+4*time.Millisecond < l.until() {
		w.violate("I12 bounded", "%s: Extend: %v", w, err)
	}
	return true
}

// update is one read-modify-write of each of the two resources, with some time in between.
func (w *worker) update(l *lease, i int64) {
	if w.now() >= l.until() || !w.chance(0.7, "update", i) {
		return
	}
	takes := w.between(0, w.expiry()/10, "update", i)
	unfenced, _ := w.read(w.unfenced, l.name, 0)
	if w.Edge && w.now()+takes >= l.until() {
		takes = 0
	}
	if l.token == 0 {
		w.sleep(takes)
	} else if v, ok := w.read(w.fenced, l.name, l.token); ok {
		w.sleep(takes)
		w.write(w.fenced, l.name, l.token, v+1)
	}
	w.write(w.unfenced, l.name, 0, unfenced+1)
}

// finishWork releases the lock, or leaves it to its end. It reports whether the mutex is unlocked.
func (w *worker) finishWork(m *redlock.Mutex, l *lease, values []string, held context.Context) bool {
	if w.has(abandon) && held == nil && w.chance(0.2, "abandon") {
		w.reached("abandoned")
		time.Sleep(l.until() - w.now())
		return false
	}
	if held == nil && l.until() > w.now() && w.chance(0.1, "too late") {
		// The nodes still have the key, for the drift.
		time.Sleep(l.until() - w.now() + w.between(0, w.drift()/2, "too late"))
		if _, err := m.Extend(); !errors.Is(err, redlock.ErrExpired) {
			w.violate("I6 continuity", "%s extended %s when it had ended: %v", w, plain(l.value), err)
		}
	}
	inTime := w.now()+4*time.Millisecond < l.until()
	for again := range int64(3) {
		l.end(w.now())
		// Unlock does not end with its context.
		ctx, stop := context.WithCancel(context.Background())
		if w.chance(0.3, "dead context", again) {
			stop()
		}
		called := w.now()
		ok, err := m.UnlockContext(ctx)
		stop()
		w.end(l.value)
		w.note("%s Unlock %s: %v", w, l.name, kinds(err))
		if ok != (err == nil) {
			w.violate("I13 errors", "%s: Unlock: %v, %v", w, ok, err)
		}
		if took := w.now() - called; took > 2*w.nodeTimeout()+time.Millisecond {
			w.violate("I12 bounded", "%s Unlock took %v", w, took)
		}
		if !m.Until().IsZero() {
			w.violate("I13 errors", "%s: after Unlock until is %v", w, m.Until().Sub(w.start))
		}
		switch {
		case err == nil:
			if n := w.count(l.value, func(n nodeRecord) bool { return n.deleted != 0 }); n < w.quorum() {
				w.violate("I8 no leaks", "%s unlocked %s on %d of %d nodes", w, plain(l.value), n, w.Nodes)
			}
			w.gone(values)
			return true
		case errors.Is(err, redlock.ErrExpired):
			w.reached("unlock after the end")
		case errors.Is(err, redlock.ErrNoQuorum):
			w.reached("unlock without a quorum")
		case errors.Is(err, redlock.ErrNotHeld):
		default:
			w.violate("I13 errors", "%s: Unlock: %v", w, err)
		}
		if inTime && w.solid(l) {
			w.violate("I12 bounded", "%s: Unlock: %v", w, err)
		}
		if !errors.Is(err, redlock.ErrNoQuorum) {
			return true
		}
		w.sleep(w.between(0, w.expiry()/4, "unlock again", again))
	}
	return false
}
