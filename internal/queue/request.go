package queue

import (
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// Request is a lock that somebody wants, and how that one waits for it.
type Request struct {
	Lock       *wire.Lock
	Owner      string                        // for people, or ""
	Pipelines  []quorum.Pipeline             // to the nodes
	Tries      int                           // that may be used; below 1: any number
	Delay      func(tries int) time.Duration // the retry delay after so many
	MaxWaiters int                           // of this process, with it; below 1: any number
}

// delay returns the retry delay after so many tries.
func (r *Request) delay(tries int) time.Duration { return max(r.Delay(max(tries, 1)), 0) }

// Acquirer asks the nodes for one waiter, which calls it from one goroutine.
type Acquirer interface {
	// Attempt asks for the key.
	Attempt(how Attempt) Answer
	// Claim asks for the key, which nodes have reserved for the member. If it is not granted, the
	// member keeps its place in the queue, and there is no bid any more. So many nodes have taken
	// the member's bid up: if they are a quorum, Claim has nothing to ask.
	Claim(m wire.Member, takenUp int) Answer
	// Bid tells the nodes in advance what the member will claim, under a number for each node. The
	// member hears that, with the key, from those that take the bid up. It does not wait. It
	// returns for how long nodes keep the bid, 0 if there is none: not every lock can be bid for.
	Bid(m wire.Member, numbers []string) (life time.Duration)
	// Withdraw takes the bid back, if there is one: nodes that have taken it up hand the key on.
	// The member keeps its place in the queue if it stays. Withdraw does not wait.
	Withdraw(stays bool)
	// GiveBack releases what nodes may still grant the latest attempt, or may have granted. It
	// leaves those that refuse to Settle.
	GiveBack()
	// Settle releases what the latest attempt may have left. If the waiter is about to enroll in
	// the nodes' queue, it leaves out the nodes that refuse. It returns the value, if there is one.
	Settle(enrolls bool) (value string)
	// Waits notes what a round of enrolling in the queue has come to. It returns nil if that says
	// nothing, because the context has cut the round short.
	Waits(r *quorum.Round, began time.Time, cut bool) Refusal
	// Stopped returns why the wait is over: the context has ended, or the process waits for nothing
	// any more. It is nil if neither is so. The latest refusal of the local queue may be nil.
	Stopped(latest Refusal) error
}

// Attempt says how the nodes are asked for the key.
type Attempt struct {
	Final bool // it is the last try: it waits to learn why it was refused
	// Keep leaves the release of an attempt that no node has granted yet to [Acquirer.Settle]. If
	// the waiter then enrolls in the nodes' queue, that command releases the attempt on nodes that
	// refused it: 64 processes send 14 % fewer commands.
	Keep bool
	// Free is told when a quorum of nodes will have no key any more, as far as the replies say. It
	// has room for one. Nil: a new one.
	Free chan time.Time
	// Latest is what the local queue was refused last, or nil: for [Acquirer.Stopped].
	Latest Refusal
}

// Answer is what an attempt has come to: the key, an error, or a refusal.
type Answer struct {
	Won     bool
	Err     error   // why further attempts make no sense, or nil
	Refusal Refusal // nil if it won, or was cut short, or if the nodes were not asked
	// Crowd is how many wait if there is no place for one more, as [Request].MaxWaiters has it: the
	// caller cannot wait.
	Crowd int
}

// answered reports whether a quorum of nodes answered.
func (a *Answer) answered() bool {
	return a.Won || a.Refusal != nil && a.Refusal.Answered()
}

// Refusal is an attempt that did not win, or a place in the nodes' queue. It may still change what
// it says, because nodes answer late.
type Refusal interface {
	// Answered reports whether a quorum of nodes answered.
	Answered() bool
	// Failing reports whether there is no quorum because of nodes that answered with errors. They
	// would do so again, also to one whose turn it is.
	Failing() bool
	// Free is the attempt's, see [Attempt]. It is nil if the key was not asked for.
	Free() chan time.Time
}
