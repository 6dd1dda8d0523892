package redlock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// handoff is a lock on its way from one process to another.
type handoff struct{ key, value string }

// handoffText is a handoff as its text has it. Keys and values are any bytes.
type handoffText struct {
	Key   []byte `json:"k"` // of the lock
	Value []byte `json:"v"`
}

// handoffPrefix begins the text of a handoff. The number is that of the format.
const handoffPrefix = "redlock1."

// String encodes the handoff.
func (h handoff) String() string {
	b, _ := json.Marshal(handoffText{[]byte(h.key), []byte(h.value)}) // cannot fail
	return handoffPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// parseHandoff decodes a handoff.
func parseHandoff(text string) (h handoff, ok bool) {
	coded, ok := strings.CutPrefix(text, handoffPrefix)
	if !ok {
		return h, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(coded)
	var t handoffText
	if err != nil || json.Unmarshal(b, &t) != nil {
		return h, false
	}
	h = handoff{string(t.Key), string(t.Value)}
	return h, h.key != "" && h.value != "" && !strings.HasPrefix(h.value, wire.Reservation)
}

// Handoff gives the lock away without releasing it: another process goes on with it, by
// [Mutex.Adopt] of what Handoff returns, and nobody else can have it in between. Stop the work
// under the lock first. Handoff sends nothing to the nodes.
//
// The mutex is not locked any more when Handoff returns, as after Unlock: a held context is done
// with the cause [ErrReleased], and nothing extends the lock. Unlock and Extend fail with
// [ErrNotHeld]. The lock stays taken until it is adopted and released, or until its keys expire,
// within the expiry. To take it back, adopt it with the same mutex.
//
// The text is a secret: one who has it can take the lock, once. The error matches [ErrNotHeld] if
// the mutex is not locked, and [ErrExpired] if the lock was lost or has run out.
func (m *Mutex) Handoff() (string, error) {
	ctx := context.Background()
	m.mustBeMade(ctx)
	const failed = "not handed off"
	l := m.current()
	if err := l.usable(ctx, failed); err != nil {
		return "", err
	}
	m.mu.Lock()
	if err := l.changed(failed); err != nil {
		m.mu.Unlock()
		return "", err
	}
	after := l.releasing(EndHandedOff)
	l.endUnlock(false)
	m.mu.Unlock()
	l.Cease()
	after.run()
	m.core.queues.HandedOff(m.key)
	m.tell.all()
	return handoff{m.key, l.Value}.String(), nil
}

// Adopt goes on with a lock that was handed off, see [Mutex.Handoff]: it makes it the mutex's own
// and holds it, as [Mutex.Hold] does, and returns a held context. The mutex has the name and the
// prefix of the lock.
//
// Adopt writes a value of its own to the nodes that have the value of the handoff. It needs a
// quorum of them. So the old value can neither extend nor release the lock any more, and the
// handoff can be adopted once. If that is before the Until that the lock had at the handoff,
// nobody else has had the lock since. With [WithFencing] the lock has a new token, greater than
// any before: a resource that has seen it refuses the old one.
//
// Adopt makes one attempt, which takes two node timeouts at most. If it fails, nobody has the lock,
// and what is left of it is being released. The error matches [ErrFailed], and one of
//   - [ErrExpired], if the lock is gone on so many nodes that there is no quorum: it has expired,
//     or was adopted before,
//   - [ErrNoQuorum], if too few nodes answered,
//   - the context's error, if it ended the call,
//   - [ErrClosed], after Close,
//
// or it is an [*OptionError], if the handoff is not one, or that of another lock, and nothing was
// sent.
func (m *Mutex) Adopt(ctx context.Context, handoff string) (context.Context, error) {
	m.mustBeMade(ctx)
	h, err := readHandoff(m, handoff)
	if err != nil {
		return nil, err
	}
	l, err := m.tellLock(ctx, 1, h)
	if err != nil {
		return nil, err
	}
	return l.keep(ctx)
}

const notAdopted = "not adopted"

// readHandoff decodes the handoff of m's lock. Errors do not show it: it is a secret.
func readHandoff(m *Mutex, text string) (*handoff, error) {
	if m.err != nil {
		return nil, m.misuse(notAdopted, ErrFailed)
	}
	h, ok := parseHandoff(text)
	var wrong *OptionError
	switch {
	case !ok:
		wrong = &OptionError{"Adopt", "…", "needs what Handoff has returned"}
	case h.key != m.key:
		wrong = &OptionError{"Adopt", "handoff of " + errtext.Name(h.key),
			"needs that of the lock with the key " + errtext.Name(m.key)}
	default:
		return &h, nil
	}
	return nil, newError(m.name, notAdopted, wrong.Error(), ErrFailed).causedBy(wrong)
}

// adopt takes the lock of the handoff over for m.
func (h *handoff) adopt(ctx context.Context, m *Mutex, told *operation[Acquired]) (*lease, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx, m.name, notAdopted, nil, ErrFailed)
	}
	if m.core.holds.isClosed() {
		return nil, closedError(m.name, notAdopted)
	}
	attempted(told)
	return h.swap(ctx, m, told)
}

// swap writes a new value where the nodes have that of the handoff. The lease is granted as in an
// attempt of Lock. If it fails, both values are released: the work under the old one is over.
func (h *handoff) swap(ctx context.Context, m *Mutex, told *operation[Acquired]) (*lease, error) {
	l, wrong := newAttempt(m, notAdopted)
	if wrong != nil {
		return nil, wrong
	}
	decided := l.Take(ctx, quorum.Spec{Command: m.nodes.Swap(l.Value, h.value)})
	old := newLease(m, h.value)
	old.TakeOver()
	old.Doubt() // nobody waits any more for what the old holder has sent
	if decided.Won {
		l.install(ctx, told)
		said := decided.Round.Outcomes()
		// Where the old value is left, the new lease could not be healed.
		old.Release(ctx, quorum.Spec{Skip: func(node int) bool { return said[node].Yes() }})
		return l, nil
	}
	decided.Round.Abandon()
	l.Release(ctx, quorum.Spec{})
	old.Release(ctx, quorum.Spec{})
	switch {
	case decided.Err != nil:
		return nil, ended(ctx, m.name, notAdopted, nil, ErrFailed)
	case decided.Late != "":
		return nil, newError(m.name, notAdopted, decided.Late, ErrFailed, ErrExpired)
	}
	return nil, notSwapped(m, decided.Said)
}

// notSwapped returns the error of m that could not adopt a handoff.
func notSwapped(m *Mutex, said quorum.Outcomes) *Error {
	n, gone := len(said), said.Count(quorum.Outcome.No)
	nodes := m.core.nodeErrors(said, func(quorum.Reply) error { return errNodeNotHandedOff })
	if gone >= quorum.Blocking(n) {
		return newError(m.name, notAdopted, fmt.Sprintf("gone on %d of %d nodes: it has expired, "+
			"or was adopted before", gone, n), ErrFailed, ErrExpired).of(nodes)
	}
	return newError(m.name, notAdopted, fmt.Sprintf("no quorum: taken over on %d of %d nodes, "+
		"%d needed", said.Count(quorum.Outcome.Yes), n, m.core.quorum), ErrFailed,
		ErrNoQuorum).of(nodes)
}
