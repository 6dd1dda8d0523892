package lease

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// Handoff is a lock on its way from one process to another. Keys and values are any bytes.
type Handoff struct {
	Key   []byte `json:"k"` // of the lock
	Value []byte `json:"v"`
}

// handoffPrefix begins the text of a handoff. The number is that of the format.
const handoffPrefix = "redlock1."

// String encodes the handoff.
func (h Handoff) String() string {
	b, _ := json.Marshal(h) // cannot fail
	return handoffPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseHandoff decodes a handoff.
func ParseHandoff(text string) (h Handoff, ok bool) {
	coded, ok := strings.CutPrefix(text, handoffPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(coded)
	ok = ok && err == nil && json.Unmarshal(b, &h) == nil && len(h.Key) > 0 &&
		len(h.Value) > 0 && !strings.HasPrefix(string(h.Value), wire.NoValue)
	return h, ok
}

// HandOff gives the lease away without releasing it: what waits to be sent is dropped, and the
// mutex is not locked any more.
func (l *Lease) HandOff() *Failure {
	k := l.lock
	if f := l.usable(context.Background()); f != nil {
		return f
	}
	k.Mu.Lock()
	if f := l.changed(); f != nil {
		k.Mu.Unlock()
		return f
	}
	after := l.releasing(EndHandedOff)
	l.endUnlock(false)
	k.Mu.Unlock()
	l.Cease()
	after.Run()
	k.Process.Queues.HandedOff(k.Key())
	return nil
}

// Adopt goes on with a lock that was handed off with the old value: it writes a new value where the
// nodes have that. The lease is granted as in an attempt of [Lock.Get]. If it fails, both values
// are released: the work under the old one is over.
func (k *Lock) Adopt(ctx context.Context, oldValue string, w Witness) (*Lease, *Failure) {
	a := acquirer{lock: k, ctx: ctx, to: w}
	if err := a.Stopped(nil); err != nil {
		return a.result(err)
	}
	a.counts()
	l, wrong := k.try()
	if wrong != nil {
		return nil, wrong
	}
	decided := l.take(ctx, quorum.Spec{Command: k.Swap(l.Value, oldValue)})
	old := k.open(oldValue)
	old.TakeOver(true) // nobody waits any more for what the old holder has sent
	if decided.won {
		a.adopt(l)
		said := decided.round.Outcomes()
		// Where the old value is left, the new lease could not be healed.
		old.Release(ctx, quorum.Spec{Skip: func(node int) bool { return said[node].Yes() }})
		return l, nil
	}
	l.Release(ctx, quorum.Spec{})
	old.Release(ctx, quorum.Spec{})
	switch {
	case decided.err != nil:
		return nil, Interrupted(ctx, nil)
	case decided.late != "":
		return nil, failed(Expired, "%s", decided.late)
	}
	said := decided.said
	return nil, verdict(said, said.Count(quorum.Outcome.Yes), said.Count(quorum.Outcome.No),
		"taken over on", "gone on %d of %d nodes: it has expired, or was adopted before")
}
