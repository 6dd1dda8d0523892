package quorum

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

const (
	// maxOwed is how many Undos may be owed to a node. Beyond that some are forgotten, and their
	// keys stay until they expire: see ledger.
	maxOwed = 8192
	// maxTries is how many of them are under way at a time.
	maxTries = 16
	// maxLost is how many tries a client may keep beyond their time before a silent node is probed
	// no more.
	maxLost = 64
	// leastOwed is how long an Undo is owed at least. A frozen node executes what it has buffered
	// when it thaws, and only then do the keys begin to expire.
	leastOwed = time.Minute
)

// ledger is what is owed to a node. It sends the Undos again, at most maxTries at a time. While the
// node does not answer, it sends one in a budget. Any answer of the node, to whatever command,
// makes the ledger go on.
//
// An Undo leaves the ledger
//   - when it turns out that no Write was sent,
//   - when the node has answered it, and no Write can arrive any more,
//   - when the node has answered it, and a client still has a Write that was given up. The Undo
//     enters again when that Write succeeds or fails,
//   - when a try fails, if the Undo has expired,
//   - when the ledger asks a silent node again, if the Undo has expired,
//   - when it is the oldest that is due, and a new one would make it more than maxOwed. If none is
//     due, the new one does not enter,
//   - by forget.
//
// An Undo expires with its key, but not before leastOwed has passed.
//
// The zero value is empty. A ledger is safe for concurrent use.
type ledger struct {
	stalled atomic.Bool // since a try failed, the node has answered nothing; written under mu

	mu      sync.Mutex            // guards what follows; taken after a lane's mu
	debts   [trying + 1]list.List // of *debt, by state, in order
	lost    int                   // tries whose time is over, still in flight
	paying  bool                  // a goroutine is in pay
	failed  time.Time             // the last try that did
	probe   *time.Timer           // ends in ask; nil if none is set
	last    int                   // calls of Finish, during which a silent node is asked no more
	over    bool                  // a Finish has forgotten what was owed: nothing is owed any more
	changed chan struct{}         // closed at the next change; nil unless somebody waits for it
}

// note notes when d is sent the next time, and does not send it: the caller calls pay. If w follows
// from the WriteState, the caller holds the lane's mu from reading the WriteState to the end of
// note. Otherwise it could overwrite what another caller has read later and noted earlier. The
// value onceLanded always follows from the WriteState.
func (o *ledger) note(d *debt, w when) {
	if d == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if d.state == trying {
		d.again = d.again || w == atOnce
	} else {
		o.book(d, w)
	}
}

// book puts d where it belongs. The caller holds mu.
func (o *ledger) book(d *debt, w when) {
	if w == never || o.over {
		o.move(d, paid)
		return
	}
	if d.state == paid && o.size() >= maxOwed {
		oldest := o.debts[due].Front()
		if oldest == nil {
			return
		}
		o.move(oldest.Value.(*debt), paid)
	}
	switch {
	case w == onceLanded:
		o.move(d, landing)
		d.timer = time.AfterFunc(clock.TimerDelay(d.untilLanded()), func() {
			o.note(d, atOnce)
			o.pay()
		})
	case d.state != due:
		o.move(d, due)
	}
	if w == onceItAnswers {
		o.stall(d.budget)
	}
}

// move changes the state of d. The caller holds mu.
func (o *ledger) move(d *debt, s state) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.place != nil {
		o.debts[d.state].Remove(d.place)
		d.place = nil
	}
	d.state = s
	if s != paid {
		d.place = o.debts[s].PushBack(d)
	}
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// size is how much is owed. The caller holds mu.
func (o *ledger) size() int {
	return o.debts[landing].Len() + o.debts[due].Len() + o.debts[trying].Len()
}

// stall waits for an answer of the node, or for the time of the next probe. The caller holds mu.
func (o *ledger) stall(budget time.Duration) {
	o.stalled.Store(true)
	o.failed = time.Now()
	if o.probe == nil {
		o.probe = time.AfterFunc(clock.TimerDelay(budget), o.ask)
	}
}

// answered makes the ledger go on, as the node has answered a command. If a node answers others and
// fails the Undos, it is sent those no more often than every quarter of a budget.
func (o *ledger) answered() {
	if !o.stalled.Load() {
		return
	}
	o.mu.Lock()
	first := o.debts[due].Front()
	if first == nil || time.Since(o.failed) >= first.Value.(*debt).budget/4 {
		o.stalled.Store(false)
	}
	o.mu.Unlock()
	o.pay()
}

// pay sends what is due.
func (o *ledger) pay() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.paying {
		return // that goroutine will see what has changed
	}
	o.paying = true
	defer func() { o.paying = false }()
	for !o.stalled.Load() && o.debts[due].Len() > 0 && o.debts[trying].Len() < maxTries {
		o.try()
	}
}

// ask sends one of the Undos to a node that does not answer, to see whether it does.
func (o *ledger) ask() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probe = nil
	if o.last == 0 {
		o.askOne()
	}
}

// askOne is ask. The caller holds mu.
func (o *ledger) askOne() {
	now := time.Now()
	for e := o.debts[due].Front(); e != nil; {
		d := e.Value.(*debt)
		e = e.Next()
		if now.After(d.expires) {
			o.move(d, paid)
		}
	}
	switch first := o.debts[due].Front(); {
	case !o.stalled.Load() || o.debts[trying].Len() > 0:
	case first == nil:
		o.stalled.Store(false) // what is due next finds out
	case o.lost >= maxLost:
		o.stall(first.Value.(*debt).budget)
	default:
		o.try()
	}
}

// try sends the first Undo that is due. The caller holds mu, and try releases it meanwhile.
func (o *ledger) try() {
	d := o.debts[due].Front().Value.(*debt)
	d.again = false
	o.move(d, trying)
	o.mu.Unlock()
	defer o.mu.Lock()
	d.send()
}

// tried notes what a try has come to, by the client's return or the end of its time. See note.
func (o *ledger) tried(d *debt, w when, returned bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !returned {
		o.lost++
	}
	switch {
	case d.state != trying: // forgotten
	case w == onceItAnswers && !time.Now().Before(d.expires):
		o.move(d, paid)
		o.stall(d.budget)
	case w != onceItAnswers && d.again:
		o.book(d, atOnce)
	default:
		o.book(d, w)
	}
	if w != onceItAnswers {
		o.stalled.Store(false)
	}
}

// returned notes that a client has returned from a try whose time was over. See note.
func (o *ledger) returned(d *debt, w when) {
	o.mu.Lock()
	o.lost--
	o.mu.Unlock()
	if w != onceItAnswers {
		o.note(d, w)
	}
}

// lastTry sends one of the Undos at once to a node that does not answer. It is the last one until
// forget.
func (o *ledger) lastTry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = false
	o.askOne()
	o.last++
}

// drain blocks until nothing is owed any more, the node does not answer, or ctx is done.
func (o *ledger) drain(ctx context.Context) {
	for {
		o.mu.Lock()
		if o.size() == 0 || o.stalled.Load() && o.debts[trying].Len() == 0 {
			o.mu.Unlock()
			return
		}
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// forget drops all that is owed, and returns how much it was. Until the next lastTry nothing
// is owed any more, also if a client returns later: nothing is sent by itself after Close.
func (o *ledger) forget() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.size()
	for s := range o.debts {
		for o.debts[s].Len() > 0 {
			o.move(o.debts[s].Front().Value.(*debt), paid)
		}
	}
	if o.probe != nil {
		o.probe.Stop()
		o.probe = nil
	}
	o.stalled.Store(false)
	o.last--
	o.over = true
	return n
}
