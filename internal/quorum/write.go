package quorum

import (
	"errors"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
)

// Kind says what a command means for its pipeline.
type Kind uint8

const (
	// Ask is a command that never sets a key that was not there. If it has not been sent when its
	// round is over, it is not sent any more.
	Ask Kind = iota
	// Write is a command that may set the key. It leaves the same way as an Ask.
	Write
	// Release takes back the Writes with the same WriteState. It is sent however late its turn
	// comes, unless none of those Writes was ever sent, and again until that has done what it is
	// for, see retries. From its submission on no other command with the WriteState is sent, not
	// even one that is ahead of it on the pipeline.
	Release
)

// WriteState is what a pipeline knows of the Writes of one acquisition on its node: the memory that
// lets a Release be left out, or be sent again. The pipeline's mutex guards it.
type WriteState struct {
	sent     int32    // Writes that were handed to the client, unless that has not sent them
	out      int32    // Writes that were given up and have not returned from the client
	over     bool     // after a Release or Cease: what else has not been sent is not sent any more
	unsure   bool     // a Write failed or was given up: it may have been executed, or may yet be
	granted  bool     // the node has answered a Write, and done what it asked for
	released bool     // a Release found something and took it back
	sentAt   uint32   // when the latest Write was, in microseconds of clock.Ticks, modulo 2^32
	pending  *pending // once the Release has failed, or has been answered too early
}

// landed returns by when the Writes have arrived, in ticks, if from now on no client waits for one
// of them. That is two budgets after the latest was sent, and at least a budget from now. What
// arrives even later is beyond any client. The pipeline's mutex guards the WriteState.
func (w *WriteState) landed(now int64, budget time.Duration) int64 {
	since := time.Duration(uint32(now/1000)-w.sentAt) * time.Microsecond
	left := max(budget, clock.Sub(clock.Times(budget, 2), since))
	return int64(clock.Add(time.Duration(now), left))
}

// refused reports whether the node has answered every Write that was sent, and done none: it said
// no, or gave a place in the queue. The pipeline's mutex guards the WriteState.
func (w *WriteState) refused() bool { return !w.unsure && !w.granted }

// settledBy reports whether an answer to a Release leaves nothing to take back. That is so if no
// Write can arrive any more, or if only one was sent and the Release took it back. The pipeline's
// mutex guards the WriteState.
func (w *WriteState) settledBy(reply Reply) bool { return !w.unsure || reply.Yes() && w.sent == 1 }

// wrote notes the outcome of a Write. Only one that was given up can have been overtaken by the
// Release, which is sent again then: at once after a yes; after a failure when the Write has
// landed. A no has set nothing. The caller holds mu.
func (p *Pipeline) wrote(c *call, reply Reply, err error) {
	w, retries := c.write, &p.node.retries
	unsent := errors.Is(err, ErrUnsent) || errors.Is(err, pool.ErrNotSent)
	switch {
	case unsent:
		w.sent--
	case err != nil:
		w.unsure = true
	case reply.Means == Done:
		w.granted = true
	}
	if c.inHand { // not given up
		return
	}
	w.out--
	again, now := w.pending, clock.NowTicks()
	switch {
	case w.sent == 0:
		retries.set(again, c, never)
	case again == nil || again.final == 0 || unsent: // nothing has overtaken it
	case err != nil:
		again.final = w.landed(now, again.release.round.spec.Budget)
		retries.set(again, c, again.final)
	case reply.Yes():
		again.final = max(again.final, now) // one that is under way has come too early
		retries.set(again, c, now)
	}
}

// released notes the outcome of a Release, and decides whether it is sent again:
//   - no, if no Write was sent, or if the Release was left out,
//   - as soon as the node answers, if the Release failed,
//   - no, if the answer leaves nothing to take back: see settledBy, and pending.final,
//   - when the Writes have landed, or when the client returns from one, see wrote.
//
// The caller holds mu.
func (p *Pipeline) released(c *call, reply Reply, err error) {
	w, retries, due := c.write, &p.node.retries, int64(never)
	switch {
	case w.sent == 0, c.unsent == errNothing:
	case err != nil:
		if c.inHand || c.unsent != nil { // else it was sent again when its time was over
			retries.failed(c.pending(), c)
		}
		return
	default:
		w.released = w.released || reply.Yes()
		if !w.settledBy(reply) {
			due = c.due()
		}
	}
	retries.set(w.pending, c, due)
}

// due returns when a Release that was answered is sent again, as a Write may arrive after it, and
// notes in the write's pending release what is final. The caller holds the pipeline's mu.
func (c *call) due() int64 {
	p, w := c.pending(), c.write
	switch {
	case p.final == 0:
		p.final = w.landed(clock.NowTicks(), c.round.spec.Budget)
	case c.began >= p.final:
		return never
	}
	return p.final
}
