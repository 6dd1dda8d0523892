package redlock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
)

// lock makes up to tries attempts.
func (m *Mutex) lock(ctx context.Context, tries int) (*lease, error) {
	const failed = "not acquired"
	if m.err != nil {
		return nil, &Error{Name: m.name, failed: failed, kinds: []error{ErrFailed}, reason: m.err.Error(), causes: []error{m.err}}
	}
	var last error
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			return nil, ended(ctx, m.name, failed, last, ErrFailed)
		}
		if m.core.isClosed() {
			return nil, closedError(m.name)
		}
		l, lost := m.attempt(ctx, try == tries)
		switch {
		case lost == nil:
			m.mu.Lock()
			m.cur = l
			m.mu.Unlock()
			return l, nil
		case ctx.Err() != nil && lost.err == nil:
			return nil, ended(ctx, m.name, failed, last, ErrFailed)
		case lost.own:
			try--
			continue
		case try == tries:
			return nil, lost.err
		}
		last = lost.err
		sleep(ctx, m.cfg.delay(try))
	}
}

// closedError is what locking comes to after Close.
func closedError(name string) *Error {
	return &Error{Name: name, failed: "not acquired", kinds: []error{ErrFailed, ErrClosed}, reason: "closed"}
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// defeat is an attempt that did not win.
type defeat struct {
	err error // nil: the context ended it
	own bool  // a node refused a key that was this attempt's own
}

// attempt asks all nodes for the lock once, with a value of its own. What it was granted in vain is
// being released when it returns. If it is the final attempt, it does not call the lock taken before
// it has made sure that what it was refused was not its own.
func (m *Mutex) attempt(ctx context.Context, final bool) (*lease, *defeat) {
	value, err := m.newValue()
	if err != nil {
		return nil, &defeat{err: &Error{Name: m.name, failed: "not acquired", kinds: []error{ErrFailed}, reason: err.Error(), causes: []error{err}}}
	}
	l := &lease{value: value, marks: make([]quorum.Mark, len(m.lanes)), granted: m.core.now()}
	l.until = l.granted.Add(m.cfg.expiry - m.cfg.drift())

	r := quorum.Start(ctx, m.lanes, quorum.Spec{
		Op: m.acquire(value), Kind: quorum.Write, Need: m.core.quorum, Budget: m.cfg.nodeTimeout, Marks: l.marks,
	})
	won, err := r.Wait(ctx)
	if won && m.cfg.fencing {
		won, err = m.fence(ctx, r, l)
	}
	if err != nil {
		r.Abandon()
		m.release(ctx, l, releaseAll)
		return nil, &defeat{}
	}
	if won && clock.Remaining(m.core.now(), l.until) > 0 {
		return l, nil
	}
	r.Abandon()
	return nil, m.giveBack(ctx, r, l, won, final)
}

// giveBack releases an attempt that was decided but did not win, and says why it did not.
func (m *Mutex) giveBack(ctx context.Context, r *quorum.Round, l *lease, late, final bool) *defeat {
	n := len(m.lanes)
	outcomes := r.Outcomes()
	granted, refused := 0, 0
	for _, o := range outcomes {
		switch {
		case o.Err != nil:
		case o.Reply > 0:
			granted++
		default:
			refused++
		}
	}
	e := &Error{Name: m.name, failed: "not acquired", nodes: nodeErrors(outcomes, func(int64) error { return errNodeTaken })}
	blocking := n - m.core.quorum + 1 // refusals that rule a quorum out
	switch {
	case late:
		e.kinds = []error{ErrFailed, ErrExpired}
		e.reason = fmt.Sprintf("granted by a quorum, but too late: nothing is left of the expiry of %v", m.cfg.expiry)
	case refused >= blocking:
		e.kinds = []error{ErrFailed, ErrTaken}
		e.reason = fmt.Sprintf("taken on %d of %d nodes", refused, n)
	default:
		e.kinds = []error{ErrFailed, ErrNoQuorum}
		e.reason = fmt.Sprintf("no quorum: granted by %d of %d nodes, taken on %d, %d needed", granted, n, refused, m.core.quorum)
	}

	// A client that sends SET NX again after a lost reply is refused by its own key. The release then
	// deletes what was thought to be somebody else's, and that tells: the lock was free.
	was := func(node int) bool { return outcomes[node].Err == nil && outcomes[node].Reply <= 0 }
	back := m.release(ctx, l, quorum.Spec{
		Need: blocking,
		Vote: func(node int, reply int64) bool { return was(node) && reply <= 0 },
	})
	d := &defeat{err: e}
	if refused > 0 && final {
		if foreign, _ := back.Wait(ctx); !foreign {
			for i, o := range back.Outcomes() {
				d.own = d.own || was(i) && o.Err == nil && o.Reply > 0
			}
		}
	}
	return d
}

// newValue makes the value of one attempt. No two attempts may share one, or the late
// release of the first could delete the key of the second.
func (m *Mutex) newValue() (string, error) {
	var bits [16]byte
	rand.Read(bits[:]) // never fails
	var text [24]byte
	base64.StdEncoding.Encode(text[:], bits[:])
	if m.cfg.genValue == nil {
		return string(text[:]), nil
	}
	owner, err := m.cfg.genValue()
	if err != nil {
		return "", fmt.Errorf("the function of WithGenValueFunc: %w", err)
	}
	return owner + ":" + string(text[:]), nil
}

// fence settles the token of a lease that a quorum has granted: the largest counter among the
// granting nodes, and stored on a quorum of them. Then the next holder, whose quorum shares
// a node with this one, gets at least one more. The nodes mostly agree at once, because the client's
// proposal is greater than what they had.
func (m *Mutex) fence(ctx context.Context, r *quorum.Round, l *lease) (bool, error) {
	outcomes := r.Outcomes()
	token, agree := int64(0), 0
	for _, o := range outcomes {
		switch {
		case o.Err != nil || o.Reply < token || o.Reply == 0:
		case o.Reply > token:
			token, agree = o.Reply, 1
		default:
			agree++
		}
	}
	l.token = uint64(token)
	m.core.sawToken(l.token)
	if agree >= m.core.quorum {
		return true, nil
	}
	raise := quorum.Start(ctx, m.lanes, quorum.Spec{
		Op: m.raise(l), Kind: quorum.Ask, Need: m.core.quorum - agree, Budget: m.cfg.nodeTimeout, Marks: l.marks,
		Skip: func(node int) bool { return outcomes[node].Err == nil && outcomes[node].Reply == token },
	})
	return raise.Wait(ctx)
}

// sawToken remembers the greatest token seen.
func (c *core) sawToken(token uint64) {
	for last := c.lastToken.Load(); token > last; last = c.lastToken.Load() {
		if c.lastToken.CompareAndSwap(last, token) {
			return
		}
	}
}

// proposal is the least token a client would like: greater than any it has seen, and after a
// node has lost its counters still greater than those, as long as clocks are roughly right.
func (c *core) proposal() uint64 {
	return max(c.lastToken.Load()+1, uint64(max(c.now().UnixMicro(), 1)))
}
