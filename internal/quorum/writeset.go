package quorum

import (
	"cmp"
	"context"
	"time"
)

// WriteSet is what one acquisition leaves on the nodes: the pipelines of its owner, and for each of
// them what was written there. It is safe for concurrent use once it is open, and is not copied.
type WriteSet struct {
	pipelines []Pipeline
	writes    []WriteState    // one a pipeline
	room      [few]WriteState // for the writes, unless there are more
	budget    time.Duration
	expiry    time.Duration
}

// Open makes the zero WriteSet ready for use: nothing has been written. A node has the budget to
// answer, unless a Spec says otherwise. What is written expires after the expiry: until then a
// Release stays pending.
func (w *WriteSet) Open(pipelines []Pipeline, budget, expiry time.Duration) {
	w.pipelines, w.writes = pipelines, append(w.room[:0], make([]WriteState, len(pipelines))...)
	w.budget, w.expiry = budget, expiry
}

// TakeOver says that somebody else has sent the Writes. If one may yet arrive, a Release that finds
// nothing is followed by another.
func (w *WriteSet) TakeOver(unsure bool) {
	for i := range w.writes {
		w.writes[i] = WriteState{sent: 1, granted: true, unsure: unsure}
	}
}

// Cease says that nothing of these writes is sent any more: what waits on its pipeline is dropped.
func (w *WriteSet) Cease() {
	for i := range w.writes {
		p := &w.pipelines[i]
		p.mu.Lock()
		w.writes[i].over = true
		p.mu.Unlock()
	}
}

// Ask starts a round of a command that never sets a key that was not there. See [Start].
func (w *WriteSet) Ask(ctx context.Context, s Spec) *Round { return w.start(ctx, Ask, s) }

// Write starts a round of a command that may set the key.
func (w *WriteSet) Write(ctx context.Context, s Spec) *Round { return w.start(ctx, Write, s) }

// Release starts a round of a command that takes back what was written. No other command with these
// writes is sent any more.
func (w *WriteSet) Release(ctx context.Context, s Spec) *Round { return w.start(ctx, Release, s) }

// Spec says what a round does.
type Spec struct {
	Command Command
	Need    int           // yes votes that make the round a success; 0: a quorum
	Budget  time.Duration // for each node's answer; 0: the write set's
	// Hasty gives the round up, as undecided as it is, when votes are still missing long after a
	// first no: after eight times the time that one took, and not before minPatience. It is for
	// those who hold votes that others are waiting for, and will ask again.
	Hasty bool
	// Waits says that the caller waits for the round next, and for nothing else until that is over.
	// With one node, the caller then sends the command itself where the client allows that. Ask,
	// Write or Release returns with the outcome.
	Waits bool
	// Trusts leaves a node out of a Release that has answered every Write with a no, or with a
	// place in the queue. It is for those who next send what takes back a Write that a client has
	// sent twice, and for a waiter that was granted the key: its claim has ended its places.
	Trusts bool
	// Vote tells whether a reply counts as a yes. If nil, it does if it is one.
	Vote func(node int, reply Reply) bool
	// Skip leaves a node out: its outcome is [ErrUnsent]. If nil, none is.
	Skip func(node int) bool
	// Have leaves a node out that has done before what is asked for: that is a yes. If nil, none
	// has.
	Have func(node int) bool
}

// start submits a command to every pipeline and returns at once. Only the values of ctx are used:
// the commands do not end with it.
func (w *WriteSet) start(ctx context.Context, kind Kind, s Spec) *Round {
	s.Need = cmp.Or(s.Need, Majority(len(w.pipelines)))
	s.Budget = cmp.Or(s.Budget, w.budget)
	s.Waits = s.Waits && len(w.pipelines) == 1
	r := newRound(detach(ctx), kind, s, w.expiry, len(w.pipelines))
	for i := range r.calls {
		r.calls[i].pipeline, r.calls[i].write = &w.pipelines[i], &w.writes[i]
	}
	r.begin()
	for i := range r.calls {
		switch c := &r.calls[i]; {
		case s.Have != nil && s.Have(i):
			r.settle(c, Reply{Means: Done}, nil)
		case s.Skip != nil && s.Skip(i):
			r.settle(c, Reply{}, ErrUnsent)
		default:
			c.pipeline.submit(c)
		}
	}
	return r
}

// detach keeps the values of ctx and drops its end.
func detach(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// ReleasedOn reports whether a Release has taken back something on a node.
func (w *WriteSet) ReleasedOn(node int) bool {
	p := &w.pipelines[node]
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.writes[node].released
}

// Majority is how many of n nodes are a quorum of them.
func Majority(n int) int { return n/2 + 1 }

// Blocking is how many of n nodes rule a quorum of them out.
func Blocking(n int) int { return n - Majority(n) + 1 }
