package quorum

import (
	"container/list"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

const (
	// maxUnanswered is how many commands may wait on a node that has stopped answering.
	maxUnanswered = 64
	// fewProbes is how many probes may be lost before the next ones come half as often: at least
	// one in each node timeout, until manyProbes are lost.
	fewProbes  = 64
	manyProbes = 1024
)

// breaker keeps commands back from a node that has stopped answering: it has been silent for a
// quarter of the node timeout, and more than maxUnanswered commands wait on it. This bounds the
// goroutines and connections that a frozen node can hold, and what it executes when it thaws. A
// node that answers, however slowly, has no limit.
//
// No command fails because of the breaker. What it keeps back is sent as soon as the node answers
// anything, and ends when its own time is over. A client may never return from earlier calls. So
// the breaker lets a probe through every quarter of a node timeout, of the shortest that it keeps
// waiting. The probe's answer resets it. Probes that the client never returns from would add up:
// they come more rarely the more of them are lost. A node that comes back is asked within a node
// timeout unless manyProbes are lost, which takes more than 900 node timeouts.
//
// The zero value keeps nothing back. A breaker is safe for concurrent use.
type breaker struct {
	unanswered atomic.Int64 // commands in flight
	silent     atomic.Int64 // when the first was sent since its last answer; 0 if none was
	budget     atomic.Int64 // of that command
	tripped    atomic.Bool

	mu     sync.Mutex // guards what follows, and the places in held; taken after a lane's mu
	held   list.List  // of *call, in the order of their arrival
	last   int64      // when the last probe went, or the breaker tripped; see clock.Ticks
	probe  int64      // no probe goes before this
	probes int        // that the client has not returned from
	timer  *time.Timer
	asking bool // a probe is being sent that is not counted in yet; the next is armed after that
}

// UnresponsiveError is the outcome of a command that was not sent, because the node had not
// answered those before it. It matches [ErrTimeout].
type UnresponsiveError struct {
	Unanswered int           // commands waiting on the node
	Silence    time.Duration // since the first that it was sent after its last answer
}

func (e *UnresponsiveError) Error() string {
	return fmt.Sprintf("not sent: the node has answered nothing for %v and leaves %d commands "+
		"waiting",
		clock.Brief(e.Silence), e.Unanswered)
}

// Is reports whether target is [ErrTimeout].
func (e *UnresponsiveError) Is(target error) bool { return target == ErrTimeout }

// unresponsive says why a command that was kept back has not been sent.
func (b *breaker) unresponsive(now int64) error {
	since := b.silent.Load()
	if since == 0 { // it has answered at this very moment
		since = now
	}
	return &UnresponsiveError{
		Unanswered: int(b.unanswered.Load()),
		Silence:    time.Duration(now - since),
	}
}

// enter counts a command that is being sent. It returns how many are in flight, and since when the
// node has been silent.
func (b *breaker) enter(now int64, budget time.Duration) (unanswered, since int64) {
	unanswered = b.unanswered.Add(1)
	since = b.silent.Load()
	if since == 0 || unanswered == 1 {
		since = now
		b.silent.Store(now)
		if b.budget.Load() != int64(budget) {
			b.budget.Store(int64(budget))
		}
	}
	return unanswered, since
}

// pass reports whether c may be sent now, and counts it if so. Otherwise the breaker keeps c, and
// hands it to its lane later unless it is dropped first. The caller holds the lane's mu.
func (b *breaker) pass(c *call) bool {
	if !b.tripped.Load() {
		unanswered, since := b.enter(c.began, c.round.budget)
		if unanswered <= maxUnanswered || c.began-since <= b.patience(c.round.budget) {
			return true
		}
		b.unanswered.Add(-1)
	}
	return b.hold(c)
}

// patience is how long the node may be silent before the breaker trips. The budget is that of the
// next command. The last one that was sent may have had more time.
func (b *breaker) patience(budget time.Duration) int64 {
	return max(int64(budget), b.budget.Load()) / 4
}

// hold trips the breaker and keeps c, unless the node has answered meanwhile or it is time for a
// probe.
func (b *breaker) hold(c *call) (sent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.tripped.Load() {
		// leave notes an answer before it looks at the breaker. So either this sees the answer, or
		// leave sees the breaker tripped and resets it.
		b.tripped.Store(true)
		since, patience := b.silent.Load(), b.patience(c.round.budget)
		if since == 0 || c.began-since <= patience {
			b.tripped.Store(false)
			b.enter(c.began, c.round.budget)
			return true
		}
		b.last, b.probe = c.began, c.began+patience
	}
	// Commands that had more time set the pace until now.
	sooner := b.last + b.pace(int64(c.round.budget)/4)
	if sooner < b.probe {
		b.probe = sooner
		b.disarm()
	}
	if c.began >= b.probe && !b.asking {
		b.letProbe(c)
		return true
	}
	c.place = b.held.PushBack(c)
	b.arm()
	return false
}

// pace is the time between two probes, if the first ones come every so often. The caller holds mu.
func (b *breaker) pace(every int64) int64 {
	doublings := min(b.probes/fewProbes, 2) + max(0, b.probes-manyProbes)/fewProbes
	return min(every, math.MaxInt64>>22) << min(doublings, 20)
}

// letProbe counts c in as a probe. The caller holds mu.
func (b *breaker) letProbe(c *call) {
	b.unanswered.Add(1)
	c.probe = true
	pace := b.pace(b.patience(c.round.budget))
	b.probes++
	b.last, b.probe = c.began, c.began+pace
}

// enterProbe counts c in as a probe.
func (b *breaker) enterProbe(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.letProbe(c)
}

// arm sets the timer for the next probe, if there is something to send. The caller holds mu.
func (b *breaker) arm() {
	if b.timer == nil && b.held.Len() > 0 {
		wait := time.Duration(b.probe - clock.Ticks(time.Now()))
		b.timer = time.AfterFunc(clock.TimerDelay(wait), b.ask)
	}
}

// disarm stops the timer. The caller holds mu.
func (b *breaker) disarm() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// ask sends the first command that was kept back, as a probe.
func (b *breaker) ask() {
	b.mu.Lock()
	b.timer = nil
	if b.asking {
		b.mu.Unlock()
		return
	}
	b.asking = true
	for b.held.Len() > 0 && clock.Ticks(time.Now()) >= b.probe { // else the timer is an old one
		c := b.take()
		b.mu.Unlock()
		asked := c.lane.resume(c, true)
		b.mu.Lock()
		if asked {
			break
		}
	}
	b.asking = false
	b.arm()
	b.mu.Unlock()
}

// take takes the first command that was kept back. The caller holds mu.
func (b *breaker) take() *call {
	c := b.held.Remove(b.held.Front()).(*call)
	c.place = nil
	return c
}

// drop forgets c, if the breaker still keeps it. The caller holds the lane's mu.
func (b *breaker) drop(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.place != nil {
		b.held.Remove(c.place)
		c.place = nil
	}
}

// leave counts a command out. An answer resets the breaker.
func (b *breaker) leave(probe, answered bool) {
	if answered {
		b.silent.Store(0)
	}
	b.unanswered.Add(-1)
	if probe {
		b.mu.Lock()
		b.probes--
		b.mu.Unlock()
	}
	if answered && b.tripped.Load() {
		b.reset()
	}
}

// reset sends all that was kept back.
func (b *breaker) reset() {
	b.mu.Lock()
	b.tripped.Store(false)
	b.disarm()
	calls := make([]*call, 0, b.held.Len())
	for b.held.Len() > 0 {
		calls = append(calls, b.take())
	}
	b.mu.Unlock()
	for _, c := range calls {
		c.lane.resume(c, false)
	}
}
