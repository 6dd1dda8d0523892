package queue

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/test/leak"
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var (
	errTaken  = errors.New("taken")
	errClosed = errors.New("closed")
)

const (
	trip    = 2 * time.Millisecond // how long a node takes to answer
	bidLife = time.Second
)

// group is some fake nodes, and a key that one acquirer has at a time. The nodes agree on who has
// it: this package is about the order, not about votes.
type group struct {
	nodes  []*quorum.Node
	boards []*board
	begun  time.Time
	open   context.Context
	end    context.CancelFunc

	takes   time.Duration // an attempt
	expires time.Duration // what nodes say to attempts of when the key does; 0: nothing
	unfit   bool          // every claim fails
	noBids  bool          // the key cannot be bid for

	mu       sync.Mutex // guards what follows
	holder   *acquirer
	attempts []attempt
	claims   []time.Duration // when
	bids     []time.Duration // when
	withdraw []time.Duration // when bids were taken back
	settled  []int           // names of those who gave back what nodes may have granted
	rest     []int           // of these, those who then gave back what nodes had refused
	served   []int           // names, in the order in which they were granted the key
}

// attempt is one at the key.
type attempt struct {
	name int
	at   time.Duration
	how  Attempt
}

// bubble runs a test in virtual time with n nodes, which can be subscribed to if there is a queue.
// Nothing is left in the end.
func bubble(t *testing.T, n int, queue bool, f func(*testing.T, *group, *Queues)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &group{begun: time.Now()}
		g.open, g.end = context.WithCancel(t.Context())
		tracker := quorum.NewTracker()
		var pools []pool.Pool
		for range n {
			b := &board{messages: make(chan string, 100)}
			g.boards = append(g.boards, b)
			if queue {
				pools = append(pools, b)
			} else {
				pools = append(pools, struct{ pool.Pool }{b})
			}
		}
		g.nodes = quorum.Nodes(pools, tracker)
		qs := New(Config{
			Nodes: g.nodes, Tracker: tracker, Channel: "channel:", Open: g.open, Now: time.Now,
			Jitter: func(limit time.Duration) time.Duration { return limit / 2 },
		})
		f(t, g, qs)
		g.end()
		quorum.Finish(t.Context(), g.nodes)
		require.Empty(t, qs.locals)
		require.Empty(t, qs.asking)
	})
}

// want is how somebody waits for the key.
type want struct {
	Tries       int
	Delay       func(int) time.Duration
	NodeTimeout time.Duration
	Queue       bool
}

// request returns the request of somebody who waits for the key like that.
func (g *group) request(w want) *Request {
	if w.NodeTimeout == 0 {
		w.NodeTimeout = 100 * time.Millisecond
	}
	lock := wire.NewLock("key", &wire.Terms{
		Expiry: 8 * time.Second, NodeTimeout: w.NodeTimeout, Queue: w.Queue,
	}, nil)
	return &Request{
		Lock: &lock, Pipelines: quorum.Pipelines(g.nodes), Tries: w.Tries, Delay: w.Delay,
	}
}

// lock waits for the key.
func (g *group) lock(ctx context.Context, qs *Queues, name int, w want) error {
	r := g.request(w)
	a := &acquirer{group: g, ctx: ctx, name: name, hasty: r.Lock.NodeTimeout < trip}
	waiter, answer := qs.Enter(ctx, r, a.Attempt)
	if waiter == nil {
		return answer.Err
	}
	return waiter.Wait(ctx, a)
}

// unlock lets go of the key, and hands it on to the first in the queue. Another process does if
// there are no lines.
func (g *group) unlock(qs *Queues) {
	g.mu.Lock()
	g.holder = nil
	g.mu.Unlock()
	handedOn := false
	for _, b := range g.boards {
		handedOn = b.release() || handedOn
	}
	if qs != nil {
		qs.Released("key", true, handedOn)
	}
}

// occupy gives the key to somebody who never waits.
func (g *group) occupy() { g.take(&acquirer{name: -1}, Attempt{}) }

// take gives the key to an acquirer, unless somebody has it.
func (g *group) take(a *acquirer, how Attempt) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.attempts = append(g.attempts, attempt{a.name, time.Since(g.begun), how})
	if g.holder != nil || a.hasty {
		return false
	}
	g.holder = a
	g.served = append(g.served, a.name)
	for _, b := range g.boards {
		b.hold()
	}
	return true
}

// asked returns how many attempts there have been.
func (g *group) asked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.attempts)
}

// next lets all nodes tell the first in the queue that it is the next.
func (g *group) next() {
	for _, b := range g.boards {
		b.messages <- b.first() + nextUp
	}
	synctest.Wait()
}

// claimed returns how many claims there have been.
func (g *group) claimed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.claims)
}

// stands returns how often each node has been asked for a place.
func (g *group) stands() (times []int) {
	for _, b := range g.boards {
		b.mu.Lock()
		times = append(times, b.stands)
		b.mu.Unlock()
	}
	return times
}

// gaveBack returns the names of those who gave back what nodes may have granted.
func (g *group) gaveBack() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.settled)
}

// gaveRest returns the names of those who gave back what nodes had refused, too.
func (g *group) gaveRest() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.rest)
}

// acquirer is one who wants the key.
type acquirer struct {
	*group
	ctx       context.Context
	name      int
	hasty     bool // no node answers it in time
	unsettled bool
	refused   bool // what it left is settled but for the nodes that refused
}

// refusal is one that says nothing but this.
type refusal struct {
	silent bool
	free   chan time.Time
}

func (r refusal) Answered() bool       { return !r.silent }
func (r refusal) Failing() bool        { return false }
func (r refusal) Free() chan time.Time { return r.free }

func (a *acquirer) Attempt(how Attempt) Answer {
	if err := a.Stopped(how.Latest); err != nil {
		return Answer{Err: err}
	}
	for _, b := range a.boards { // where somebody queues, the key is never free
		if b.isReserved() {
			return Answer{Refusal: refusal{}}
		}
	}
	time.Sleep(a.takes)
	a.unsettled = how.Keep
	answer := Answer{Won: a.take(a, how)}
	if !answer.Won {
		free := how.Free
		if free == nil {
			free = make(chan time.Time, 1)
		}
		if a.expires > 0 {
			select {
			case free <- time.Now().Add(a.expires):
			default:
			}
		}
		answer.Refusal = refusal{a.hasty, free}
		if how.Final {
			answer.Err = errTaken
		}
	}
	return answer
}

func (a *acquirer) Bid(m wire.Member, numbers []string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.noBids {
		return 0
	}
	a.bids = append(a.bids, time.Since(a.begun))
	for i, b := range a.boards {
		b.offer(m.ID, numbers[i])
	}
	return bidLife
}

func (a *acquirer) Withdraw(bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.withdraw = append(a.withdraw, time.Since(a.begun))
	for _, b := range a.boards {
		b.offer("", "")
	}
}

func (a *acquirer) Claim(m wire.Member, takenUp int) Answer {
	if takenUp > len(a.boards)/2 {
		return Answer{Won: a.take(a, Attempt{})}
	}
	votes := 0
	for _, b := range a.boards {
		if b.keepsFor(m.ID) {
			votes++
		}
	}
	a.mu.Lock()
	a.claims = append(a.claims, time.Since(a.begun))
	a.mu.Unlock()
	return Answer{Won: !a.unfit && votes > len(a.boards)/2 && a.take(a, Attempt{})}
}

func (a *acquirer) Settle(stands bool) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case stands:
	case a.unsettled:
		a.settled = append(a.settled, a.name)
	case a.refused:
		a.rest = append(a.rest, a.name)
	}
	a.unsettled, a.refused = false, false
	return ""
}

func (a *acquirer) GiveBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unsettled {
		a.settled = append(a.settled, a.name)
		a.unsettled, a.refused = false, true
	}
}

func (a *acquirer) Waits(*quorum.Round, time.Time, bool) Refusal { return refusal{} }

func (a *acquirer) Stopped(Refusal) error {
	switch {
	case a.ctx.Err() != nil:
		return a.ctx.Err()
	case a.open.Err() != nil:
		return errClosed
	}
	return nil
}

// board is a node: its queue, and for whom it keeps the key.
type board struct {
	pool.Pool
	messages chan string
	deaf     bool          // its messages are lost
	slow     time.Duration // what it takes longer than the others
	opens    time.Duration // what a subscription takes

	mu       sync.Mutex  // guards what follows
	fails    error       // of each who stands here, or nil
	stands   int         // commands
	renewals []time.Time // of the queue
	opened   time.Time   // when the latest subscription was asked for
	queue    []wire.Member
	last     int64
	held     bool
	reserved string
	bidder   string // member
	number   string // of its bid
}

// tickets returns those of the queue, in order.
func (b *board) tickets() (all []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.queue {
		all = append(all, m.Ticket)
	}
	return all
}

// fail makes the board fail with an error, or not any more. It returns how often it has been asked
// for a place.
func (b *board) fail(err error) (stands int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails = err
	return b.stands
}

// asked returns when the latest subscription was asked for.
func (b *board) asked() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

func (b *board) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.reserved = true, ""
}

// release reports whether the key is handed on.
func (b *board) release() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = false
	return b.reserve()
}

// offer keeps a bid instead of the one before it.
func (b *board) offer(id, number string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bidder, b.number = id, number
}

// first returns the number of the first in the queue.
func (b *board) first() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queue[0].ID[len("channel:"):]
}

func (b *board) isReserved() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reserved != ""
}

// reserve keeps the key for the first in the queue, and tells that one. It reports whether there is
// one. The caller holds mu.
func (b *board) reserve() bool {
	if len(b.queue) == 0 {
		return false
	}
	b.reserved = b.queue[0].ID
	b.queue = b.queue[1:]
	text := b.reserved[len("channel:"):]
	if b.bidder == b.reserved && b.bidder != "" {
		text = "key " + b.number
	}
	if !b.deaf {
		b.messages <- text
	}
	return true
}

func (b *board) keepsFor(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reserved == id
}

func (b *board) Eval(_ context.Context, s *pool.Script, _ []string, args ...any) (any, error) {
	time.Sleep(trip + b.slow)
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Name == "stand" {
		b.stands++
	}
	if b.fails != nil {
		return nil, b.fails
	}
	if s.Name == "release" { // it leaves
		b.leave(args[2].(string))
		return int64(0), nil
	}
	id, ticket := args[1].(string), args[2].(int64)
	if len(args) > 6 && args[6] == 1 {
		b.renewals = append(b.renewals, time.Now())
	}
	if b.reserved == id {
		return []any{ticket, int64(-1), int64(-1)}, nil
	}
	b.leave(id)
	if args[3] == 0 {
		ticket = max(ticket, b.last+1)
	}
	b.last = max(b.last, ticket)
	b.queue = append(b.queue, wire.Member{ID: id, Ticket: ticket})
	slices.SortStableFunc(b.queue, func(x, y wire.Member) int { return int(x.Ticket - y.Ticket) })
	if !b.held && b.reserved == "" {
		b.reserve()
		if b.reserved == id {
			return []any{ticket, int64(-1), int64(-1)}, nil
		}
	}
	before := slices.IndexFunc(b.queue, func(m wire.Member) bool { return m.ID == id })
	return []any{ticket, int64(before), int64(-1)}, nil
}

// leave ends a place. The caller holds mu.
func (b *board) leave(id string) {
	if b.reserved == id {
		b.reserved = ""
		b.reserve()
	}
	b.queue = slices.DeleteFunc(b.queue, func(m wire.Member) bool { return m.ID == id })
}

func (b *board) Subscribe(context.Context, string) (pool.Subscription, error) {
	b.mu.Lock()
	b.opened = time.Now()
	b.mu.Unlock()
	time.Sleep(b.opens)
	return b, nil
}

func (b *board) Messages() <-chan string { return b.messages }
func (b *board) Close() error            { return nil }
