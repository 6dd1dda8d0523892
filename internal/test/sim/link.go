package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlock-go/redlock/pool"
)

// Errors of the network.
var (
	// ErrRefused is the error of a command to a node that is down.
	ErrRefused = errors.New("sim: connection refused")
	// ErrReset is the error of a command whose node crashed while it was under way.
	ErrReset = errors.New("sim: connection reset by peer")
	// ErrTimeout is the error of a client that gave up by its own time limit.
	ErrTimeout = errors.New("sim: i/o timeout")
	// ErrClosed is the error of a command that was waiting when the node was closed.
	ErrClosed = errors.New("sim: closed")
)

// Fate is what becomes of one command between its client and its node. The zero value
// is a command that is executed and answered at once.
//
// A command that has left its client is executed even if the client gives up in the meantime.
// That is how a real one arrives late.
type Fate struct {
	// Request and Reply are the times the command and its answer are on their way.
	Request, Reply time.Duration
	// Lost means that the command never arrives.
	Lost bool
	// ReplyLost means that the command is executed and its answer never arrives.
	ReplyLost bool
	// Again, if positive, executes the command a second time so much later. If the first answer
	// is lost, the second is delivered: a client that resends.
	Again time.Duration
	// Skip means that the command arrives and is not executed.
	Skip bool
	// Answer, if set, replaces the node's answer.
	Answer *Answer
	// Deaf means that the client does not look at the context once the command is sent.
	Deaf bool
	// Timeout, if positive, is the time after which the client gives up by itself.
	Timeout time.Duration
	// Early is how long before the context's deadline the client gives up, unless it is Deaf.
	Early time.Duration
	// Order, if not zero, is its place among what happens at the same nanosecond. Of that the least
	// comes first, and the next a nanosecond later.
	Order uint64
}

// The places of what becomes of one command.
const (
	requested = iota
	replied
	gaveUp
	places
)

// turnKey is the key of a context's turn.
type turnKey struct{}

// WithTurn returns a context whose commands have their place after those of lower turns. That
// counts if all else about them is the same, their Order included. A release
// and one that is sent again may take back one value at the same nanosecond. Other contexts have
// turn 0.
func WithTurn(ctx context.Context, turn uint64) context.Context {
	return context.WithValue(ctx, turnKey{}, turn)
}

// Answer is a reply or an error.
type Answer struct {
	Value any
	Err   error
}

// Hang is the fate of a command to a node that never answers and never executes it.
func Hang() Fate { return Fate{Lost: true} }

// LoseReply is the fate of a command that is executed and never answered.
func LoseReply() Fate { return Fate{ReplyLost: true} }

// Fail is the fate of a command that is answered with err and not executed.
func Fail(err error) Fate { return Fate{Skip: true, Answer: &Answer{Err: err}} }

// FailAfter is the fate of a command that is executed, though its client sees err.
func FailAfter(err error) Fate { return Fate{Answer: &Answer{Err: err}} }

// Reply is the fate of a command that is answered with v and not executed.
func Reply(v any) Fate { return Fate{Skip: true, Answer: &Answer{Value: v}} }

// Refuse is the fate of a command that is not executed. It is answered as if the key were
// somebody else's, for another minute.
func Refuse() Fate { return Reply(refusal{}) }

// refusal is the answer to a refused command; its form depends on the command.
type refusal struct{}

var refusals = [commandCount]any{
	cmdSet: false, cmdAcquire: int64(0), cmdRelease: int64(-2 - 60_000),
	cmdSwap: int64(0), cmdShare: int64(0), cmdUnshare: int64(-2 - 60_000),
	cmdSeat: int64(-1), cmdLift: int64(-1),
	cmdExtend: int64(-1), cmdValid: int64(-1), cmdRaise: int64(-1),
}

// Slow is the fate of a command that is executed and answered, with half of d on either way.
func Slow(d time.Duration) Fate { return Fate{Request: d / 2, Reply: d - d/2} }

// Deaf is f for a client that does not look at the context.
func Deaf(f Fate) Fate {
	f.Deaf = true
	return f
}

// Op says which command a plan decides about.
type Op struct {
	Client  string
	Node    int
	Command string // "set", "subscribe", "message" or a script's name
	Key     string // the channel for "subscribe" and "message"
	Value   string
	Member  string // of the queue
}

// Plan gives commands their fates. It is called from many goroutines at once. For a
// "message", a published one on its way to a subscriber, only Reply and ReplyLost count.
type Plan func(Op) Fate

// Link is one client's way to one node. It implements pool.Pool and pool.Subscriber and is
// safe for concurrent use. Commands on one link may overtake each other, as they do
// between the connections of a pool.
type Link struct {
	node   *Node
	client string

	mu   sync.Mutex
	plan Plan
}

var (
	_ pool.Pool       = (*Link)(nil)
	_ pool.Subscriber = (*Link)(nil)
)

// Plan makes p decide about commands from now on; nil means that all are executed
// and answered at once.
func (l *Link) Plan(p Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plan = p
}

// Starting is a Link that implements pool.Starter as well.
type Starting struct{ *Link }

var _ pool.Starter = Starting{}

// Start implements pool.Starter.
func (s Starting) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
	if err := ctx.Err(); err != nil {
		to.Receive(nil, err)
		return
	}
	go func() { to.Receive(c.Run(ctx, s)) }()
}

func (l *Link) currentPlan() Plan {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.plan
}

// SetNX implements pool.Pool.
func (l *Link) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	reply, err := l.do(ctx, &command{code: cmdSet, key: key, value: value,
		expiry: expiry.Truncate(time.Millisecond)})
	if err != nil {
		return false, err
	}
	ok, isBool := reply.(bool)
	if !isBool {
		return false, fmt.Errorf("sim: SET NX answered with %T, not a bool", reply)
	}
	return ok, nil
}

// Eval implements pool.Pool for the scripts of internal/scripts, which it knows by name.
func (l *Link) Eval(ctx context.Context, script *pool.Script, keys []string, args ...any) (any,
	error) {
	var c command
	if err := c.parse(script, keys, args); err != nil {
		return nil, err
	}
	return l.do(ctx, &c)
}

// do executes c at once if nothing stands in the way, and else sends it off.
func (l *Link) do(ctx context.Context, c *command) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	plan := l.currentPlan()
	n := l.node
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil, ErrClosed
	}
	fate := n.fate(c)
	if fate == nil && plan == nil && !n.frozen && !n.down {
		defer n.mu.Unlock()
		return n.execute(l.client, c)
	}
	epoch := n.epoch
	n.mu.Unlock()
	if fate == nil {
		fate = l.planned(plan, c)
	}
	return l.send(ctx, c, fate, epoch)
}

// planned is the fate that a plan, or no plan, gives to c.
//
//go:noinline
func (l *Link) planned(plan Plan, c *command) *Fate {
	if plan == nil {
		return &Fate{}
	}
	f := plan(Op{Client: l.client, Node: l.node.id, Command: commandNames[c.code], Key: c.key,
		Value: c.value, Member: c.member})
	return &f
}

// send lets a command meet its fate and waits for the answer. Most commands have a goroutine of
// their own, whose stack must not have to grow often. So planned and [Node.note] are apart: with
// them in here, campaigns take 1.1 times the processor time.
func (l *Link) send(ctx context.Context, sent *command, fate *Fate, epoch int) (any, error) {
	n, c, f := l.node, *sent, *fate
	if turn, ok := ctx.Value(turnKey{}).(uint64); ok && f.Order != 0 {
		f.Order += places * turn
	}
	answer := make(chan Answer, 2) // first and second execution; nobody waits to send
	if !f.Lost {
		n.after(f.Request, &f, requested, func() {
			n.arrive(func() {
				a := n.run(l.client, &c, &f, epoch)
				if f.Again > 0 {
					again := f
					n.after(f.Again, &f, requested, func() {
						n.arrive(func() {
							a := n.run(l.client, &c, &again, epoch)
							if f.ReplyLost {
								n.after(f.Reply, &f, replied, func() { answer <- a })
							}
						})
					})
				}
				if !f.ReplyLost {
					n.after(f.Reply, &f, replied, func() { answer <- a })
				}
			})
		})
	}

	done, timeout := ctx.Done(), f.Timeout
	if f.Deaf {
		done = nil
	} else if deadline, ok := ctx.Deadline(); ok && f.Early > 0 {
		timeout = max(time.Until(deadline)-f.Early, 1)
	}
	var limit chan struct{}
	if timeout > 0 {
		limit = make(chan struct{})
		defer n.after(timeout, &f, gaveUp, func() { close(limit) })()
	}
	select {
	case a := <-answer:
		return a.Value, a.Err
	case <-done:
		return nil, ctx.Err()
	case <-limit:
		return nil, ErrTimeout
	case <-n.done:
		return nil, ErrClosed
	}
}

// arrive runs what has reached the node, at once or when it thaws.
func (n *Node) arrive(run func()) {
	n.mu.Lock()
	if n.frozen {
		n.backlog = append(n.backlog, run)
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	run()
}

// run executes a command that was sent in that epoch and returns the answer to it.
func (n *Node) run(client string, c *command, f *Fate, epoch int) Answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.epoch != epoch:
		return Answer{Err: ErrReset}
	case n.down:
		return Answer{Err: ErrRefused}
	}
	var a Answer
	if !f.Skip {
		a.Value, a.Err = n.execute(client, c)
	}
	if f.Answer != nil {
		a = *f.Answer
	}
	if _, ok := a.Value.(refusal); ok {
		a.Value = refusals[c.code]
	}
	return a
}

// after calls fn in d, in a goroutine of its own, or now if d is 0. What it returns prevents that
// if it is not too late.
func (n *Node) after(d time.Duration, f *Fate, place uint64, fn func()) (stop func()) {
	switch {
	case d <= 0:
		fn()
		return func() {}
	case f.Order == 0:
		t := time.AfterFunc(d, fn)
		return func() { t.Stop() }
	}
	e := n.agenda.add(d, f.Order+place, fn)
	return func() { n.agenda.remove(e) }
}
