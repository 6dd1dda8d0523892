package sim_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

// world is one schedule while it runs.
type world struct {
	*history
	nodes sim.Nodes
}

// run runs one schedule in a bubble of its own and returns what happened. Whatever the
// library leaves behind, a goroutine or a call that hangs, fails the bubble and with it the test.
func run(t *testing.T, s setup, traces bool) *history {
	t.Helper()
	var h *history
	bubble(t, s.replay(), func(t *testing.T) {
		h = newHistory(s)
		h.traces = traces
		if traces {
			h.picture = newPicture()
		}
		w := &world{history: h, nodes: sim.NewNodes(s.Nodes)}
		w.nodes.Log().Watch(h.watch)
		if s.Op != "" {
			w.playCancelled()
		} else {
			w.play()
		}
		h.finish()
	})
	return h
}

// bubble is synctest.Test that says how to run again what fails in it. When all that is left in a
// bubble waits for ever, synctest panics, and that would be all one knew.
func bubble(t *testing.T, again string, f func(*testing.T)) {
	t.Helper()
	over := false
	defer func() {
		if !over {
			t.Errorf("1 violations in\n\tthe bubble of: %s\nI10 nothing runs on: the bubble did "+
				"not end, or the test was stopped", again)
		}
	}()
	synctest.Test(t, f)
	over = true
}

// replay is the command that runs the schedule again and prints everything that happens.
func (s setup) replay() string {
	return fmt.Sprintf("go test ./internal/test/sim -run TestReplay -v -schedule '%s'", s)
}

// verdict says what was wrong in the schedule and how to run it again.
func (h *history) verdict() string {
	return fmt.Sprintf("%d violations in\n\t%s\n%s%s", len(h.violations), h.setup,
		some(h.violations), h.replay())
}

// play lets the clients and the nemesis have their time, then heals everything, and looks at what
// is left.
func (w *world) play() {
	var clients, nemesis sync.WaitGroup
	over := make(chan struct{})
	for i, n := range w.nodes {
		nemesis.Go(func() { w.trouble(i, n, over) })
	}
	nemesis.Go(func() { w.mixUp(over) })
	var all []*client
	for i := range w.Clients {
		c := w.newClient(i)
		all = append(all, c)
		for k := range w.Workers {
			wk := &worker{client: c, id: k}
			if w.Live {
				clients.Go(wk.live)
			} else {
				clients.Go(wk.run)
			}
		}
	}
	if w.Live {
		time.Sleep(w.faultTime() - w.now())
		w.breakDown()
	}
	clients.Wait()
	for _, c := range all {
		c.close()
	}
	close(over)
	nemesis.Wait()

	// What is under way lands, and then expires by the slowest clock.
	time.Sleep(w.longest() + 2*w.expiry())
	for i, n := range w.nodes {
		for name := range w.names() {
			if v := n.Value(w.lockName(name)); v != "" {
				w.violate("I8 no leaks", "node %d still holds %s", i, plain(v))
			}
		}
		if n := n.Subscriptions(); n != 0 {
			w.violate("I10 nothing runs on", "node %d has %d subscriptions", i, n)
		}
	}
	// Who leaves a queue may not reach every node. What is left there ends by itself.
	time.Sleep(2 * time.Minute)
	for i, n := range w.nodes {
		for name := range w.names() {
			if q := n.Queue(wire.QueueKey(w.lockName(name))); len(q) > 0 {
				w.violate("I8 no leaks", "%d still queue on node %d", len(q), i)
			}
		}
	}
	w.nodes.Close()
}

// longest is how long a command may be under way.
func (w *world) longest() time.Duration { return 6*w.expiry() + time.Second }

// mixUp lets nodes take what is beside one lock for what is beside another, now and then.
func (w *world) mixUp(over <-chan struct{}) {
	if !w.has(mixed) || w.names() < 2 {
		return
	}
	d := w.dice()
	for i := int64(0); w.now() < w.faultTime(); i++ {
		if !sleep(over, d.between(0, w.expiry()/10, "mix-up", i)) {
			return
		}
		one := d.below(2, "mixed up", i)
		for id, n := range w.nodes {
			if w.faulty(id) && n.Confuse(w.lockName(one), w.lockName(1-one)) {
				w.note("node %d mixes up keys", id)
			}
		}
	}
}

// trouble is the nemesis of one node. It does one thing after the other, so that one
// fault cannot end another too early.
func (w *world) trouble(id int, n *sim.Node, over <-chan struct{}) {
	d, node := w.dice(), int64(id)
	if w.has(rates) {
		n.Clock(1+0.0045*(2*d.unit("node rate", node)-1), 0)
	}
	if w.has(fast) && d.chance(0.6, "fast node", node) {
		n.Clock(1.3, 0)
	}
	if !w.faulty(id) {
		return
	}
	var kinds []faults
	for _, f := range []faults{freeze, crash, loss, lossNow, jump} {
		if w.has(f) {
			kinds = append(kinds, f)
		}
	}
	if len(kinds) == 0 {
		return
	}
	for i := int64(0); ; i++ {
		if !sleep(over, d.between(0, w.faultTime()/2, "peace", node, i)) ||
			w.now() >= w.faultTime() {
			return
		}
		last := min(d.between(0, 2*w.expiry(), "trouble", node, i), max(0, w.faultTime()-w.now()))
		switch f := kinds[d.below(len(kinds), "which", node, i)]; f {
		case freeze:
			w.note("node %d freezes", id)
			n.Freeze()
			sleep(over, last)
			n.Thaw()
		case crash:
			w.note("node %d crashes", id)
			n.Crash()
			sleep(over, last/2)
			n.Restart(true)
		case loss, lossNow:
			w.note("node %d loses its data", id)
			n.Crash()
			if f == loss && !w.guarded() {
				// Until every lock that it granted has expired, by the slowest clock.
				time.Sleep(w.expiry() + w.expiry()/100)
			}
			sleep(over, last/10)
			n.Restart(false)
			w.reached("node lost its data")
		case jump:
			by := d.between(-w.expiry(), 2*w.expiry(), "jump", node, i)
			w.note("clock of node %d jumps by %v", id, by)
			n.Clock(1, by)
		}
	}
}

// sleep waits for d, or less when over is closed, and reports whether it is not.
func sleep(over <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-over:
		return false
	}
}

// unit returns a number from 0 to 1.
func (d dice) unit(what string, n ...int64) float64 {
	return float64(d.roll(what, n...)>>11) / (1 << 53)
}

var (
	errBefore = []error{
		errors.New("OOM command not allowed when used memory > 'maxmemory'"),
		errors.New("READONLY You can't write against a read only replica"),
		errors.New("LOADING Redis is loading the dataset in memory"),
		errors.New("MISCONF Redis is configured to save RDB snapshots"),
		sim.ErrRefused,
	}
	errAfter = sim.ErrReset
)

// plan returns what becomes of the commands of one client to one node.
func (w *world) plan(c *client, node int) sim.Plan {
	d := w.dice()
	cl, nd := int64(c.id), int64(node)
	timeout := w.nodeTimeout()
	// What is on the way takes from 20 µs to 1 ms; some nodes are farther away.
	far := d.between(20*time.Microsecond, time.Millisecond, "far", cl, nd)
	faulty := w.faulty(node)
	isDeaf := w.has(deaf) && d.chance(0.5, "deaf", cl)
	rate := []float64{0.02, 0.1, 0.3}[d.below(3, "fault rate")]
	expiry, faultTime := w.expiry(), w.faultTime()
	var names []string
	for i := range w.names() {
		names = append(names, w.lockName(i))
	}

	return func(op sim.Op) sim.Fate {
		now := w.now()
		w.sent(op)
		// One command is like another only if everything about it is. What a lock is called changes
		// nothing else.
		key := plain(op.Key)
		if i := slices.Index(names, op.Key); i >= 0 {
			key = fmt.Sprint("lock", i)
		}
		sum := digest(op.Command).and(" ").and(key).and(" ").and(plain(op.Value)).
			and(" ").and(plain(op.Member))
		id := []int64{cl, nd, int64(sum), int64(now)}
		hits := func(f faults, what string) bool {
			return faulty && w.has(f) && now < faultTime && d.chance(rate, what, id...)
		}

		f := sim.Fate{
			Request: d.between(10*time.Microsecond, far, "request", id...),
			Reply:   d.between(10*time.Microsecond, far, "reply", id...),
			Deaf:    isDeaf,
			// Not at the same instant as the library, or the traces of two runs could differ.
			Early: d.between(time.Microsecond, min(time.Millisecond, timeout/50), "early", id...),
			Order: d.roll("order", id...) | 1,
		}
		if isDeaf {
			f.Timeout = d.between(expiry, 2*expiry, "client timeout", id...)
		}
		if op.Command == "message" {
			w.reached("announcement")
			if w.Live && w.has(mute) {
				f.ReplyLost = true // for ever
			} else if hits(mute, "mute") {
				f.ReplyLost = d.chance(0.8, "message lost", id...)
				f.Reply += d.between(0, expiry, "message late", id...)
			}
			if w.cut(cl, nd, now, 1) {
				f.ReplyLost = true
			}
			f.Reply = c.through(now, 0, f.Reply, id...)
			return f
		}
		if hits(slow, "slow") {
			if d.chance(0.5, "slow request", id...) {
				// As long as a release that follows it takes it back.
				f.Request = d.between(f.Request, 2*timeout, "slower", id...)
			} else {
				f.Reply += d.between(0, 2*timeout, "slower", id...)
			}
		}
		if w.has(slow) && !w.Few && timeout == expiry && now < faultTime &&
			d.chance(0.3, "close", cl, int64(sum)) {
			// All nodes answer one command just before the lease ends: the vote is won too late.
			f.Reply = expiry - f.Request - d.between(2500*time.Microsecond, w.drift(),
				"how close", id...)
		}
		if hits(late, "late") {
			f.Request += d.between(timeout, 2*expiry, "later", id...)
		}
		if hits(lostRequest, "lost request") || w.cut(cl, nd, now, 0) {
			f.Lost = true
		}
		if hits(lostReply, "lost reply") || w.cut(cl, nd, now, 1) {
			f.ReplyLost = true
		}
		if hits(duplicate, "duplicate") {
			f.Again = d.between(0, timeout, "again", id...)
			f.ReplyLost = f.ReplyLost || d.chance(0.5, "resent", id...)
		}
		if hits(failing, "failing") {
			if i := d.below(len(errBefore)+2, "error", id...); i < len(errBefore) {
				f.Skip, f.Answer = true, &sim.Answer{Err: errBefore[i]}
			} else {
				f.Answer = &sim.Answer{Err: errAfter}
			}
		}
		f.Request = c.through(now, 0, f.Request, id...)
		f.Reply = c.through(now, f.Request, f.Reply, id...)
		return f
	}
}

// cut tells whether client and node cannot talk at that time, in one direction: 0 for requests, 1
// for replies. It changes every now and then.
func (w *world) cut(client, node int64, now time.Duration, direction int64) bool {
	if !w.has(partition) || !w.faulty(int(node)) || now > w.faultTime() {
		return false
	}
	d := w.dice()
	window := int64(now / (w.expiry() * 2 / 3))
	if !d.chance(0.25, "partition", client, node, window) {
		return false
	}
	which := int64(d.below(3, "which way", client, node, window))
	return which == 2 || which == direction
}

// pauses tells when a client stands still.
type pauses []struct{ from, to time.Duration }

func (p pauses) until(at time.Duration) time.Duration {
	for _, x := range p {
		if x.from <= at && at < x.to {
			return x.to
		}
	}
	return at
}

// through returns how long something takes that leaves at now+before, if it cannot be sent or
// received while the client is paused. Afterwards everything comes in a random order.
func (c *client) through(now, before, takes time.Duration, id ...int64) time.Duration {
	at := now + before + takes
	if end := c.pauses.until(at); end != at {
		return end - now - before + c.dice().between(0, time.Millisecond, "resume",
			append(id, int64(before))...)
	}
	return takes
}

// clientClock is the clock of one client: what it shows at true time t is start + offset + rate ×
// t.
type clientClock struct {
	start  time.Time
	offset time.Duration
	rate   float64
	dice   dice
	id     int64
}

func (c clientClock) Clock() clock.Own {
	return clock.Own{Now: c.Now, Jitter: c.Jitter,
		Name: c.Name}
}

// Name follows from the client, too.
func (c clientClock) Name() string { return fmt.Sprintf("%026d", c.id) }

func (c clientClock) Now() time.Time {
	gone := time.Since(c.start)
	return time.Now().Add(c.offset + time.Duration(math.Round(float64(gone)*(c.rate-1))))
}

// Jitter is random, but follows from the seed.
func (c clientClock) Jitter(limit time.Duration) time.Duration {
	return c.dice.between(0, limit, "jitter", c.id, int64(time.Since(c.start)))
}

// truly returns the true time, since the start, at which the clock shows t.
func (c clientClock) truly(t time.Time) time.Duration {
	return time.Duration(float64(t.Sub(c.start)-c.offset) / c.rate)
}

// way is a client's way to a node, and its clock.
type way struct {
	*sim.Link
	clientClock
}

// startingWay is a way whose commands need no goroutine of redlock's.
type startingWay struct {
	sim.Starting
	clientClock
}

var (
	_ pool.Starter    = startingWay{}
	_ pool.Subscriber = startingWay{}
	_ clock.Source    = startingWay{}
	_ pool.Pool       = way{}
	_ pool.Subscriber = way{}
	_ clock.Source    = way{}
)
