package quorum

import (
	"errors"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
)

// Kind says what a command means for its lane.
type Kind uint8

const (
	// Ask is a command that never sets a key that was not there. If it has not been sent when its
	// round is over, it is not sent any more.
	Ask Kind = iota
	// Write is a command that may set the key. It leaves the same way as an Ask.
	Write
	// Undo takes back the Writes with the same WriteState. It is sent however late its turn comes,
	// unless none of those Writes was ever sent. From its submission on no other command with the
	// WriteState is sent, not even one that is ahead of it on the lane.
	Undo
)

// WriteState is what a lane knows of the Writes of one acquisition on its node: the memory that
// lets an Undo be left out, or be sent again. The lane's mutex guards it.
type WriteState struct {
	sent    int32  // Writes that were handed to the client, unless that has not sent them
	out     int32  // Writes that were given up and have not returned from the client
	over    bool   // after an Undo or Cease: what else has not been sent is not sent any more
	unsure  bool   // a Write failed or was given up: it may have been executed, or may yet be
	granted bool   // the node has answered a Write with a yes
	undone  bool   // an Undo found something and took it back
	sentAt  uint32 // when the latest Write was, in microseconds of clock.Ticks, modulo 2^32
	debt    *debt  // the Undo, once it has failed, is overdue or may have come too early
}

// landed returns by when the Writes have arrived, in ticks, if from now on no client waits for one
// of them. That is two budgets after the latest was sent, and at least a budget from now. What
// arrives even later is beyond any client. The lane's mutex guards the WriteState.
func (w *WriteState) landed(now int64, budget time.Duration) int64 {
	since := time.Duration(uint32(now/1000)-w.sentAt) * time.Microsecond
	left := max(budget, clock.Sub(clock.Times(budget, 2), since))
	return int64(clock.Add(time.Duration(now), left))
}

// refused reports whether the node has answered every Write that was sent with a no. The lane's
// mutex guards the WriteState.
func (w *WriteState) refused() bool { return !w.unsure && !w.granted }

// wrote notes the outcome of a Write, and says when the Undo is sent again that may have overtaken
// it. Only a Write that was given up can be overtaken. After a yes that is at once; after a failure
// when the Write has landed. A no has set nothing. If no Write was sent after all, the Undo leaves
// the ledger. The caller holds mu.
func (l *Lane) wrote(c *call, reply Reply, err error) (*debt, when) {
	w := c.write
	unsent := errors.Is(err, ErrUnsent) || errors.Is(err, pool.ErrNotSent)
	switch {
	case unsent:
		w.sent--
	case err != nil:
		w.unsure = true
	case reply.Yes():
		w.granted = true
	}
	if l.running == c {
		return nil, never
	}
	w.out--
	switch {
	case w.sent == 0:
		return w.debt, never
	case unsent:
		return nil, never
	case err != nil:
		if d := w.debt; d != nil && d.final != 0 {
			d.final = w.landed(clock.Ticks(time.Now()), d.budget)
		}
		return w.debt, onceLanded
	case reply.Yes():
		return w.debt, atOnce
	}
	return nil, never
}

// undid notes the outcome of an Undo's first sending, and says when the Undo is sent again:
//   - never, if no Write was sent, or if the Undo was left out,
//   - as soon as the node answers, if the Undo failed,
//   - never, if the answer leaves nothing to take back, see settledBy,
//   - when the ledger says, if the ledger has sent the Undo meanwhile and was answered,
//   - as debt.answered says, in all other cases: a Write may yet arrive.
//
// An Undo that is never sent again leaves the ledger. The caller holds mu.
func (l *Lane) undid(c *call, reply Reply, err error) (*debt, when) {
	w := c.write
	switch {
	case w.sent == 0, c.unsent == errNothing:
		return w.debt, never
	case err != nil:
		return c.debt(), onceItAnswers
	}
	w.undone = w.undone || reply.Yes()
	if w.settledBy(reply) {
		return w.debt, never
	}
	d := c.debt()
	if d.final != 0 {
		return nil, never // the ledger knows more
	}
	return d, d.answered()
}

// settledBy reports whether an answer to an Undo leaves nothing to take back. That is so if no
// Write can arrive any more, or if only one was sent and the Undo took it back. The lane's mutex
// guards the WriteState.
func (w *WriteState) settledBy(reply Reply) bool { return !w.unsure || reply.Yes() && w.sent == 1 }
