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

// gate keeps commands back from a node that has stopped answering: it has been silent for a quarter
// of the node timeout, and more than maxUnanswered commands wait on it. This bounds the goroutines
// and connections that a frozen node can hold, and what it executes when it thaws. A node that
// answers, however slowly, has no limit.
//
// No command fails because of the gate. What it keeps back is sent as soon as the node answers
// anything, and ends when its own time is over. A client may never return from earlier calls. So
// the gate lets a probe through every quarter of a node timeout, of the shortest that it keeps
// waiting. The probe's answer opens it. Probes that the client never returns from would add up:
// they come more rarely the more of them are lost. A node that comes back is asked within a node
// timeout unless manyProbes are lost, which takes more than 900 node timeouts.
//
// The zero value is an open gate. A gate is safe for concurrent use.
type gate struct {
	unanswered atomic.Int64 // commands in the client's hands
	silent     atomic.Int64 // when the first was sent since its last answer; 0 if none was
	budget     atomic.Int64 // of that command
	shut       atomic.Bool

	mu     sync.Mutex // guards what follows, and the places in held; taken after a lane's mu
	held   list.List  // of *call, in the order of their arrival
	last   int64      // when the last probe went, or the gate shut; see clock.Ticks
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
func (g *gate) unresponsive(now int64) error {
	since := g.silent.Load()
	if since == 0 { // it has answered at this very moment
		since = now
	}
	return &UnresponsiveError{
		Unanswered: int(g.unanswered.Load()),
		Silence:    time.Duration(now - since),
	}
}

// enter counts in a command that is sent now. It returns how many are in the client's hands, and
// since when the node has been silent.
func (g *gate) enter(now int64, budget time.Duration) (unanswered, since int64) {
	unanswered = g.unanswered.Add(1)
	since = g.silent.Load()
	if since == 0 || unanswered == 1 {
		since = now
		g.silent.Store(now)
		if g.budget.Load() != int64(budget) {
			g.budget.Store(int64(budget))
		}
	}
	return unanswered, since
}

// pass counts c in and reports true if it is to be sent now. If not, the gate keeps it and hands it
// to its lane later, unless it is dropped before. The caller holds the lane's mu.
func (g *gate) pass(c *call) bool {
	if !g.shut.Load() {
		unanswered, since := g.enter(c.began, c.round.budget)
		if unanswered <= maxUnanswered || c.began-since <= g.patience(c.round.budget) {
			return true
		}
		g.unanswered.Add(-1)
	}
	return g.hold(c)
}

// patience is how long the node may be silent before the gate shuts. The budget is that of the next
// command. The last one that was sent may have had more time.
func (g *gate) patience(budget time.Duration) int64 {
	return max(int64(budget), g.budget.Load()) / 4
}

// hold shuts the gate and keeps c, unless the node has answered meanwhile or it is time for a
// probe.
func (g *gate) hold(c *call) (sent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut.Load() {
		// leave notes an answer before it looks at the gate. So either this sees the answer, or
		// leave sees the gate shut and opens it.
		g.shut.Store(true)
		since, patience := g.silent.Load(), g.patience(c.round.budget)
		if since == 0 || c.began-since <= patience {
			g.shut.Store(false)
			g.enter(c.began, c.round.budget)
			return true
		}
		g.last, g.probe = c.began, c.began+patience
	}
	// Commands that had more time set the pace until now.
	sooner := g.last + g.pace(int64(c.round.budget)/4)
	if sooner < g.probe {
		g.probe = sooner
		g.disarm()
	}
	if c.began >= g.probe && !g.asking {
		g.letProbe(c)
		return true
	}
	c.place = g.held.PushBack(c)
	g.arm()
	return false
}

// pace is the time between two probes, if the first ones come every so often. The caller holds mu.
func (g *gate) pace(every int64) int64 {
	doublings := min(g.probes/fewProbes, 2) + max(0, g.probes-manyProbes)/fewProbes
	return min(every, math.MaxInt64>>22) << min(doublings, 20)
}

// letProbe counts c in as a probe. The caller holds mu.
func (g *gate) letProbe(c *call) {
	g.unanswered.Add(1)
	c.probe = true
	pace := g.pace(g.patience(c.round.budget))
	g.probes++
	g.last, g.probe = c.began, c.began+pace
}

// enterProbe counts c in as a probe.
func (g *gate) enterProbe(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.letProbe(c)
}

// arm sets the timer for the next probe, if there is something to send. The caller holds mu.
func (g *gate) arm() {
	if g.timer == nil && g.held.Len() > 0 {
		g.timer = time.AfterFunc(clock.Ahead(time.Duration(g.probe-clock.Ticks(time.Now()))), g.ask)
	}
}

// disarm stops the timer. The caller holds mu.
func (g *gate) disarm() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

// ask sends the first command that was kept back, as a probe.
func (g *gate) ask() {
	g.mu.Lock()
	g.timer = nil
	if g.asking {
		g.mu.Unlock()
		return
	}
	g.asking = true
	for g.held.Len() > 0 && clock.Ticks(time.Now()) >= g.probe { // else the timer is an old one
		c := g.take()
		g.mu.Unlock()
		asked := c.lane.resume(c, true)
		g.mu.Lock()
		if asked {
			break
		}
	}
	g.asking = false
	g.arm()
	g.mu.Unlock()
}

// take takes the first command that was kept back. The caller holds mu.
func (g *gate) take() *call {
	c := g.held.Remove(g.held.Front()).(*call)
	c.place = nil
	return c
}

// drop forgets c, if the gate still keeps it. The caller holds the lane's mu.
func (g *gate) drop(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.place != nil {
		g.held.Remove(c.place)
		c.place = nil
	}
}

// leave counts a command out. An answer opens the gate.
func (g *gate) leave(probe, answered bool) {
	if answered {
		g.silent.Store(0)
	}
	g.unanswered.Add(-1)
	if probe {
		g.mu.Lock()
		g.probes--
		g.mu.Unlock()
	}
	if answered && g.shut.Load() {
		g.open()
	}
}

// open sends all that was kept back.
func (g *gate) open() {
	g.mu.Lock()
	g.shut.Store(false)
	g.disarm()
	calls := make([]*call, 0, g.held.Len())
	for g.held.Len() > 0 {
		calls = append(calls, g.take())
	}
	g.mu.Unlock()
	for _, c := range calls {
		c.lane.resume(c, false)
	}
}
