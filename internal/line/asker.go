package line

import (
	"time"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// Wish is a key that somebody wants, and how that one waits for it.
type Wish struct {
	Key         string
	Lanes       []quorum.Lane                 // to the nodes
	Tries       int                           // that may be used; below 1: any number
	Delay       func(tries int) time.Duration // the retry delay after so many
	NodeTimeout time.Duration
	Expiry      time.Duration // of the key
	Queue       bool          // the waiter may stand in the queue on the nodes
	MaxWaiters  int           // of this process, with the waiter; below 1: any number
	// Long is told of the waiter when it is the head of its line and has waited for long, or is
	// nil. It must not block.
	Long func(LongWait)
}

// delay returns the retry delay after so many tries.
func (w *Wish) delay(tries int) time.Duration { return max(w.Delay(max(tries, 1)), 0) }

// Asker asks the nodes for one waiter, which calls it from one goroutine.
type Asker interface {
	// Attempt asks for the key.
	Attempt(how Attempt) Answer
	// Claim asks for the key, which nodes have reserved for the member. If it is not granted, the
	// member keeps its place in the queue, and there is no bid any more. So many nodes have taken
	// the member's bid up: if they are a quorum, Claim has nothing to ask.
	Claim(m wire.Member, takenUp int) Answer
	// Bid tells the nodes in advance what the member will claim, under a number that it hears, with
	// the key, from those that take the bid up. It does not wait. It returns for how long nodes
	// keep the bid, 0 if there is none: not every lock can be bid for.
	Bid(m wire.Member, number string) (life time.Duration)
	// Withdraw takes the bid back, if there is one: nodes that have taken it up hand the key on.
	// The member keeps its place in the queue if it stays. Withdraw does not wait.
	Withdraw(stays bool)
	// Unsettled reports whether a node may still grant the latest attempt, or may have done so.
	Unsettled() bool
	// GiveBack releases what nodes may still grant, or may have granted. It leaves those that
	// refuse to Settle.
	GiveBack()
	// Settle releases what the latest attempt may have left. If the waiter is about to stand in the
	// queue, it leaves out the nodes that refuse. It returns the value, if there is one.
	Settle(stands bool) (value string)

	// Stand is the command that stands in the queue. Its reply means [quorum.Standing] or
	// [quorum.Turn].
	Stand(m wire.Member) quorum.Command
	// Leave is the command that leaves the queue.
	Leave(m wire.Member) quorum.Command
	// Waits notes what a round of standing in the queue has come to. It returns nil if that says
	// nothing, because the context has cut the round short.
	Waits(r *quorum.Round, began time.Time, cut bool) Refusal

	// Stopped returns why the wait is over: the context has ended, or the process waits for nothing
	// any more. It is nil if neither is so. The latest refusal of the line may be nil.
	Stopped(latest Refusal) error
}

// Attempt says how the nodes are asked for the key.
type Attempt struct {
	Final bool // it is the last try: it waits to learn why it was refused
	// Keep leaves the release of an attempt that no node has granted yet to [Asker.Settle]. If the
	// waiter then stands in the queue, the command of [Asker.Stand] releases the attempt on nodes
	// that refused it. That saves 14 % of the commands of 64 processes that come once.
	Keep bool
	Keys *Expiry // which learns from the replies; nil: a new one
	// Latest is what the line was refused last, or nil: for [Asker.Stopped].
	Latest Refusal
}

// Answer is what an attempt has come to: the key, an error, or a refusal.
type Answer struct {
	Won     bool
	Err     error   // why further attempts make no sense, or nil
	Refusal Refusal // nil if it won, or was cut short, or if the nodes were not asked
	Keys    *Expiry // that has learnt from the replies
	// Crowd is how many wait if there is no place for one more, as [Wish].MaxWaiters has it: the
	// caller cannot wait.
	Crowd int
}

// Refusal is an attempt that did not win, or a place in the queue. It may still change what it
// says, because nodes answer late.
type Refusal interface {
	// Taken reports whether a node has the key of somebody else.
	Taken() bool
	// Answered reports whether a quorum of nodes answered.
	Answered() bool
	// Failing reports whether there is no quorum because of nodes that answered with errors. They
	// would do so again, also to one whose turn it is.
	Failing() bool
}
