package quorum

import (
	"context"
	"time"
)

// Claim is what one acquisition has to do with the nodes: the lanes of its owner, and a mark of
// what it has written on each of them. It is safe for concurrent use once it is open.
type Claim struct {
	lanes  []Lane
	marks  []Mark // one a lane
	few    [5]Mark
	budget time.Duration
	expiry time.Duration
}

// Open makes the zero Claim ready for use: nothing has been written. A node has the budget to
// answer, unless a Spec says otherwise. What is written expires after the expiry: until then an
// Undo is owed.
func (c *Claim) Open(lanes []Lane, budget, expiry time.Duration) {
	c.lanes, c.budget, c.expiry = lanes, budget, expiry
	if n := len(lanes); n > len(c.few) {
		c.marks = make([]Mark, n)
	} else {
		c.marks = c.few[:n]
	}
}

// TakeOver says that somebody else has sent the Writes.
func (c *Claim) TakeOver() {
	for i := range c.marks {
		c.marks[i].sent = 1
	}
}

// Ask starts a round of a command that never sets a key that was not there. See [Start].
func (c *Claim) Ask(ctx context.Context, s Spec) *Round { return c.start(ctx, Ask, s) }

// Write starts a round of a command that may set the key.
func (c *Claim) Write(ctx context.Context, s Spec) *Round { return c.start(ctx, Write, s) }

// Undo starts a round of a command that takes back what the claim has written. Nothing else of the
// claim is sent any more.
func (c *Claim) Undo(ctx context.Context, s Spec) *Round { return c.start(ctx, Undo, s) }

// Undone reports whether an Undo has taken back something on a node.
func (c *Claim) Undone(node int) bool {
	l := &c.lanes[node]
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.marks[node].undone
}

// Majority is how many of n nodes are a quorum of them.
func Majority(n int) int { return n/2 + 1 }
