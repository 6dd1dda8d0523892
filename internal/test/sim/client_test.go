package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/clock/clocktest"
	"github.com/redlock-go/redlock/internal/test/sim"
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
	if w.has(lagging) && d.chance(0.6, "lagging", cl) {
		c.clock.rate = 0.7
	}
	if w.has(skew) {
		most := time.Hour
		if w.has(loss) && !w.has(lossNow|flush) {
			most = w.expiry() / 4 // without the counters, tokens rest on the clocks
		}
		c.clock.offset = d.between(-most, most, "skew", cl)
	}
	if w.has(pause | suspend) {
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
		link.Plan(c.struck(i, w.plan(c, i)))
		switch {
		case w.has(suspend):
			pools[i] = suspendedWay{way{link, c.clock}, c}
		case d.chance(0.5, "starting", cl):
			pools[i] = startingWay{sim.Starting{Link: link}, c.clock}
		default:
			pools[i] = way{link, c.clock}
		}
		c.remove(i, n)
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
	if w.perName() {
		opts = append(opts, redlock.WithFencePerName())
	}
	if w.guarded() {
		opts = append(opts, redlock.WithRestartGuard(w.expiry()))
	}
	if !w.announcing() {
		opts = append(opts, redlock.WithPolling())
	}
	c.rl = redlock.New(pools...).With(opts...)
	return c
}

// suspendedWay is the way of a client whose machine is suspended in its pauses: the monotonic
// clock stands still in them, the wall clock does not.
type suspendedWay struct {
	way
	client *client
}

func (s suspendedWay) Clock() clock.Own {
	return clock.Own{Now: s.Now, Jitter: s.Jitter,
		Name: s.Name}
}

func (s suspendedWay) Now() time.Time {
	now := s.client.now()
	awake := now
	for _, p := range s.client.pauses {
		awake -= max(0, min(now, p.to)-p.from)
	}
	return clocktest.Time(s.client.clock.Now(), time.Duration(float64(awake)*s.client.clock.rate))
}

// remove lets somebody at this client's machine remove the keys of a node now and then: all of
// them, or, as an eviction would, that of a lock alone.
func (c *client) remove(id int, n *sim.Node) {
	if !c.has(flush) {
		return
	}
	for i := range int64(4) {
		if !c.dice().chance(0.5, "remove", int64(c.id), int64(id), i) {
			continue
		}
		time.AfterFunc(c.dice().between(0, c.faultTime(), "remove at", int64(c.id), int64(id), i),
			func() {
				c.note("node %d loses keys", id)
				if c.dice().chance(0.5, "flush", int64(c.id), int64(id), i) {
					n.Flush()
				} else {
					n.Delete(c.lockName(0))
				}
			})
	}
}

// struck counts what befalls the client's commands to a node, by fault class.
func (c *client) struck(node int, plan sim.Plan) sim.Plan {
	return func(op sim.Op) sim.Fate {
		f, now := plan(op), c.now()
		cut := func(direction int64) bool { return c.cut(int64(c.id), int64(node), now, direction) }
		takes := max(f.Request, f.Reply)
		var by faults
		switch {
		case op.Command == "message" && f.ReplyLost && !cut(1):
			by = mute
		case op.Command == "message":
		case f.Lost && cut(0), f.ReplyLost && cut(1):
			by = partition
		case f.Lost:
			by = lostRequest
		case f.Again > 0:
			by = duplicate
		case f.Answer != nil:
			by = failing
		case f.ReplyLost:
			by = lostReply
		case len(c.pauses) > 0: // or whatever takes long would count
		case takes > 2*c.nodeTimeout()+time.Millisecond:
			by = late
		case takes > time.Millisecond:
			by = slow
		}
		if by != 0 {
			c.reached("struck by " + by.String())
		}
		if f.Deaf {
			c.reached("struck by deaf")
		}
		return f
	}
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
	// A release may have waited for a command that was under way for as long as any can be, and
	// be sent once more afterwards.
	ctx, stop := context.WithTimeout(context.Background(), 2*c.longest())
	defer stop()
	if err := c.rl.CloseContext(ctx); err != nil {
		c.violate("I10 nothing runs on", "close: %v", err)
	}
}

// worker is one goroutine that locks again and again.
type worker struct {
	*client
	id     int
	try    int64 // cycle
	shared bool  // it shares the lock

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
		if w.has(suspend) {
			w.reached("suspended")
		} else {
			w.reached("paused")
		}
		time.Sleep(w.pauses.until(now) - now)
	}
}

// react lets a moment pass, so that the worker does not go on at the instant at which the library
// is busy with the same thing.
func (w *worker) react(to string) {
	w.sleep(w.between(time.Microsecond, 100*time.Microsecond, "reaction to "+to, int64(w.now())))
}

func (w *worker) run() {
	var m *redlock.Mutex
	var name string
	ledger := &ledger{history: w.history, owner: w.String()}
	for range w.Cycles {
		w.try++
		idle := w.expiry() / 2
		if w.Brief {
			idle /= 20
		}
		w.sleep(w.between(0, idle, "idle"))
		if m == nil || w.chance(0.5, "new mutex") {
			name = w.lockName(w.dice().below(w.names(), "name", w.roll("name")...))
			cut := w.dice().below(len(name), "prefix", w.roll("prefix")...)
			opts := []redlock.Option{redlock.WithKeyPrefix(name[:cut]),
				redlock.WithGenValueFunc(w.gen), redlock.WithEvents(ledger.events())}
			if w.shared = w.Shared && w.chance(0.6, "shared"); w.shared {
				opts = append(opts, redlock.WithShared())
			}
			m = w.rl.NewMutex(name[cut:], opts...)
		}
		if !w.cycle(m, name) {
			m = nil
		}
	}
	ledger.check()
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
	parcel := w.parcel(name)
	switch {
	case parcel != nil:
		what = "Adopt"
		held, err = m.Adopt(ctx, parcel.handoff)
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
		w.violate("I17 promptness", "%s %s returned %v after its context ended", w, what,
			returned-ended)
	}
	endedMu.Unlock()
	w.mu.Lock()
	values := append([]string(nil), w.values...)
	last, began := w.last, w.began
	w.mu.Unlock()
	// Acquire, raise, release; and all again after a refusal by its own key.
	if bound := time.Duration(3*len(values))*w.nodeTimeout() +
		time.Millisecond; what == "TryLock" && returned-called > bound {
		w.violate("I12 bounded", "%s TryLock took %v for %d attempts", w, returned-called,
			len(values))
	}
	if err != nil {
		if parcel != nil {
			w.notAdopted(ctx, parcel, m, err, called)
			values = append(values, parcel.from.value)
		} else {
			w.failed(ctx, what, name, m, err)
		}
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
		w.violate("I2 validity", "%s: until %v, but the attempt began at %v", w, until.Sub(w.start),
			began.Sub(w.start))
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
		l.shared = w.shared
		w.work(ctx, m, l, nil)
		return w.finishWork(m, l, values, nil)
	}
	l := w.begin(w.String(), name, last, m.FencingToken(), forever)
	l.shared = w.shared
	if parcel != nil {
		w.adopted(parcel, l)
	}
	l.kept.Store(int64(end))
	go w.renewals(m, l, held)
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
	redlock.ErrFailed, redlock.ErrTaken, redlock.ErrNoQuorum, redlock.ErrExpired,
	redlock.ErrNotHeld, redlock.ErrLost,
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
func (w *worker) failed(ctx context.Context, what, name string, m *redlock.Mutex, err error) {
	bad := func(why string) { w.violate("I13 errors", "%s %s: %s: %v", w, what, why, err) }
	if !errors.Is(err, redlock.ErrFailed) {
		bad("is not ErrFailed")
	}
	if errors.Is(err, context.Canceled) != errors.Is(err, errImpatient) {
		bad("the context's error without its cause")
	}
	switch {
	case errors.Is(err, context.Canceled):
		if ctx.Err() == nil {
			bad("the context has not ended")
		}
		w.reached("cancelled")
	case errors.Is(err, redlock.ErrTaken):
		w.reached("taken")
		refused := func(n nodeRecord) bool { return n.taken != 0 || n.own != 0 && w.has(duplicate) }
		answered := func(n nodeRecord) bool { return n.granted != 0 || n.gone != 0 || refused(n) }
		if n, all := w.count(w.last, refused), w.count(w.last, answered); n < w.blocking() &&
			(n == 0 || all < w.quorum()) {
			bad(fmt.Sprintf("it was somebody else's on %d of %d nodes, of which %d answered", n,
				w.Nodes, all))
		}
		if w.split(name) {
			w.reached("split vote")
		}
	case errors.Is(err, redlock.ErrNoQuorum):
		w.reached("no quorum")
		if w.calm() && w.Faults&^(rates|skew|mute) == 0 {
			bad("every node answered")
		}
		if w.calm() && w.surelyTaken(w.last) {
			bad("enough nodes that answered had somebody else's key when it was released")
		}
	case errors.Is(err, redlock.ErrExpired):
		w.reached("attempt expired")
		if n := w.count(w.last, func(n nodeRecord) bool { return n.granted != 0 }); n < w.quorum() {
			bad(fmt.Sprintf("it was granted by %d of %d nodes", n, w.Nodes))
		}
		if left := w.began.Add(w.expiry() - w.drift()).Sub(w.clock.Now()); left > 0 {
			bad(fmt.Sprintf("%v were left", left))
		}
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
				has := func(value string) bool { return plain(value) == plain(v) }
				if n.Has(w.lockName(name), has) {
					w.violate("I8 no leaks", "node %d holds %s, which %s gave up", i, plain(v), w)
				}
			}
		}
	}
}

// onQuorum checks that a quorum of nodes holds the lease now. A node that has lost the key with
// all its data is as good, for as long as the key would have lived: until then it takes no part.
func (w *worker) onQuorum(l *lease) {
	values, now := w.nodes.Values(l.name), w.now()
	has := func(value string) bool { return plain(value) == plain(l.value) }
	w.history.mu.Lock()
	n := 0
	for i, r := range w.of(l.value).node {
		switch at := r.confirmed(); {
		case w.nodes[i].Has(l.name, has):
			n++
		case w.has(loss) && (values[i] == "" || strings.HasPrefix(values[i], "~")) &&
			r.deleted < at && now < at+w.expiry()-w.expiry()/200:
			n++
		}
	}
	w.history.mu.Unlock()
	if n < w.quorum() {
		w.violate("I2 quorum", "%s: %s is on %d of %d nodes", w, plain(l.value), n, w.Nodes)
	}
}

// solid tells whether nothing can happen to the lease: a quorum that always answers had granted it
// by then. A node that was healed later has not been asked as a holder's.
func (w *worker) solid(l *lease, then time.Duration) bool {
	if !w.calm() {
		return false
	}
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	n := 0
	for i, r := range w.of(l.value).node {
		if r.granted != 0 && r.granted <= then && !(w.Few && w.faulty(i)) {
			n++
		}
	}
	return n >= w.quorum()
}

// surelyTaken tells whether so many nodes to which nothing happens had somebody else's key, when
// they were to release value, that a client cannot have missed it. It may have listened to the
// others instead, if one of those said the same.
func (w *worker) surelyTaken(value string) bool {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	n := 0
	for i, r := range w.of(value).node {
		switch taken := r.taken != 0 && r.taken == r.gone; {
		case w.Few && w.faulty(i) && taken:
			return false
		case taken:
			n++
		}
	}
	return n >= w.blocking()
}

// provenLost tells whether so many nodes have said that they do not have the value's key that
// there is no quorum of others.
func (w *worker) provenLost(value string) bool {
	return w.count(value, func(n nodeRecord) bool { return n.gone != 0 }) >= w.blocking()
}

// span is how long a lease lasts, at most, from the start of its round.
func (w *worker) span() time.Duration {
	return time.Duration(float64(w.expiry()-w.drift()) / w.clock.rate)
}

// renewals looks at each extension of a held lock, for as long as it is held.
func (w *worker) renewals(m *redlock.Mutex, l *lease, held context.Context) {
	for sleep(held.Done(), w.expiry()/16) {
		w.confirmed(m, l)
	}
}

// confirmed checks that the lock lasts no longer than a quorum has said: it was extended by one
// from the time on from which until counts.
func (w *worker) confirmed(m *redlock.Mutex, l *lease) {
	until := m.Until()
	to := w.clock.truly(until)
	if until.IsZero() || to == time.Duration(l.kept.Swap(int64(to))) {
		return
	}
	w.reached("renewed")
	from := to - w.span()
	n := w.count(l.value, func(n nodeRecord) bool {
		return n.within(from-rounding,
			from+max(w.nodeTimeout(), w.span()*2/3)+rounding) // which a renewal has at most
	})
	if n < w.quorum() {
		w.violate("I6 continuity", "%s: until is %v, and counts from %v: since then %s was "+
			"extended on %d of %d nodes",
			w, to, from, plain(l.value), n, w.Nodes)
	}
}

// rounding is how much clocks with a rate may be off.
const rounding = 2 * time.Nanosecond

// lost looks at a held context that has ended.
func (w *worker) lost(held context.Context, l *lease) {
	cause := context.Cause(held)
	w.note("%s: held context of %s ended: %v", w, l.name, kinds(cause))
	// Timers run in true time, also those of a client whose clock is faster.
	if now, most := w.now(), w.latest(l.value)+max(w.span(),
		w.expiry()-w.drift()); now > most+rounding {
		w.violate("I7 loss signal", "%s: the held context of %s ended at %v, though no quorum "+
			"has extended it beyond %v", w, plain(l.value), now, most)
	}
	switch {
	case errors.Is(cause, redlock.ErrReleased), errors.Is(cause, errImpatient):
	case errors.Is(cause, redlock.ErrLost):
		w.reached("lost")
		w.onQuorum(l) // the local timer ends it before the nodes do
		if to := time.Duration(l.kept.Load()); w.now() < to-rounding && !w.provenLost(l.value) {
			w.violate("I7 loss signal", "%s: %v, though it lasted until %v", w, cause, to)
		}
		if w.solid(l, w.now()) {
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
	if w.Brief {
		length = w.between(0, w.expiry()/20, "brief work")
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
					w.violate("I7 loss signal", "%s: Valid says %v, but the held context goes on",
						w, err)
				}
			}
			if err != nil && w.solid(l, before) && ctx.Err() == nil &&
				(held == nil && before+4*time.Millisecond < l.until() || held != nil &&
					held.Err() == nil) {
				w.violate("I12 bounded", "%s: valid: %v", w, err)
			}
			if held == nil && errors.Is(err, redlock.ErrExpired) {
				l.end(w.now()) // what is left of it is being released
				return
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
func (w *worker) extend(ctx context.Context, m *redlock.Mutex, l *lease,
	held context.Context) bool {
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
			w.violate("I6 continuity", "%s extended %s at %v, after its end at %v", w,
				plain(l.value), called, l.until())
		}
		if n := w.count(l.value, func(n nodeRecord) bool {
			return n.within(called,
				returned)
		}); n < w.quorum() {
			w.violate("I6 continuity", "%s extended %s on %d of %d nodes", w, plain(l.value), n,
				w.Nodes)
		}
		w.confirmed(m, l)
		if held == nil {
			if m.Until().After(most) {
				w.violate("I2 validity", "%s extended %s until %v, counting from after the call", w,
					l.name, m.Until().Sub(w.start))
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
				w.violate("I7 loss signal", "%s: Extend says %v, but the held context goes on", w,
					err)
			}
		}
		if held == nil && returned < l.until() && !w.provenLost(l.value) {
			w.violate("I13 errors", "%s: Extend says %v, but %s lasts until %v", w, err,
				plain(l.value), l.until())
		}
		l.end(w.now())
		if m.Until().After(w.clock.Now()) {
			w.violate("I13 errors", "%s: Extend says %v, but until is %v", w, err,
				m.Until().Sub(w.start))
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
	if w.solid(l, called) && ctx.Err() == nil && called+4*time.Millisecond < l.until() {
		w.violate("I12 bounded", "%s: Extend: %v", w, err)
	}
	return true
}

// update is one read-modify-write of each of the three resources, with some time in between. One
// is claimed with the token before it is read. One was read when the lease began, and is shown
// the token with the writes alone. One is shown none.
func (w *worker) update(l *lease, i int64) {
	if l.shared || w.now() >= l.until() || !w.chance(0.7, "update", i) {
		return
	}
	takes := w.between(0, w.expiry()/10, "update", i)
	claimed := l.token != 0 && w.claim(w.fenced, l.name, l.token)
	fenced, unfenced := w.read(w.fenced, l.name), w.read(w.unfenced, l.name)
	if w.Edge && w.now()+takes >= l.until() {
		takes = 0
	}
	w.sleep(takes)
	if claimed {
		w.write(w.fenced, l.name, l.token, fenced+1)
	}
	if l.token != 0 {
		l.late++
		w.write(w.late, l.name, l.token, l.late)
	}
	w.write(w.unfenced, l.name, 0, unfenced+1)
}

// finishWork releases the lock, or leaves it to its end. It reports whether the mutex is unlocked.
func (w *worker) finishWork(m *redlock.Mutex, l *lease, values []string,
	held context.Context) bool {
	if w.handOff(m, l, held) {
		return true
	}
	if w.has(abandon) && held == nil && w.chance(0.2, "abandon") {
		w.reached("abandoned")
		time.Sleep(l.until() - w.now())
		return false
	}
	if held == nil && l.until() > w.now() && w.chance(0.1, "too late") {
		// The nodes still have the key, for the drift.
		time.Sleep(l.until() - w.now() + w.between(0, w.drift()/2, "too late"))
		if _, err := m.Extend(); !errors.Is(err, redlock.ErrExpired) {
			w.violate("I6 continuity", "%s extended %s when it had ended: %v", w, plain(l.value),
				err)
		}
	}
	inTime := w.now()+4*time.Millisecond < l.until()
	for again := range int64(3) {
		l.end(w.now())
		// Unlock does not end with its context.
		ctx, stop := context.WithCancel(sim.WithTurn(context.Background(), uint64(again)+1))
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
			deleted := func(n nodeRecord) bool { return n.deleted != 0 }
			if n := w.count(l.value, deleted); n < w.quorum() {
				w.violate("I8 no leaks", "%s unlocked %s on %d of %d nodes", w, plain(l.value), n,
					w.Nodes)
			}
			w.gone(values)
			return true
		case errors.Is(err, redlock.ErrExpired):
			w.reached("unlock after the end")
			if inTime && held == nil && w.count(l.value,
				func(n nodeRecord) bool { return n.gone != 0 || n.granted == 0 }) < w.blocking() {
				w.violate("I13 errors", "%s: Unlock says %v, but %s was not gone", w, err,
					plain(l.value))
			}
		case errors.Is(err, redlock.ErrNoQuorum):
			w.reached("unlock without a quorum")
		case errors.Is(err, redlock.ErrNotHeld):
		default:
			w.violate("I13 errors", "%s: Unlock: %v", w, err)
		}
		if inTime && w.solid(l, called) {
			w.violate("I12 bounded", "%s: Unlock: %v", w, err)
		}
		if !errors.Is(err, redlock.ErrNoQuorum) {
			return true
		}
		w.sleep(w.between(0, w.expiry()/4, "unlock again", again))
	}
	return false
}
