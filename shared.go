package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/wire"
)

// WithShared makes a lock one that is shared, a read lock: any number of owners have it at the same
// time if all of them ask with WithShared. For one who asks without, it is exclusive, a write lock.
// Together that is a reader/writer lock like [sync.RWMutex], for all processes.
//
//	err := rl.Do(ctx, "catalogue", read, redlock.WithShared()) // beside other readers
//	err := rl.Do(ctx, "catalogue", write)                      // alone
//
// All that is said of locks is true of a shared one: how long it lasts, how it is extended, lost
// and released, and whom it excludes, also if they use another library or an older version.
// Whoever dies while reading keeps writers out until its own lease ends.
//
// Readers and writers wait in one queue. While readers have the lock, a reader that comes is let in
// at once, unless a writer waits. Then it waits behind that writer, and is let in with all readers
// that wait until the next writer. So neither starves. Where processes poll, see [WithPolling],
// there is no such order, but readers who come leave the lock to those who queue.
//
// Do not ask for a lock under a shared one of the same name. In one process that is [ErrSelf]. It
// would be in vain as soon as a writer waits, and a reader cannot become a writer.
//
// With [WithFencing], a reader has a token, which is greater than that of every writer before it,
// and less than that of every writer after it. Readers at the same time may have tokens in any
// order. A resource checks a reader's token, and is not claimed by it: WHERE fence <= $token.
//
// Calls of [Redlock.Do] with WithShared and the same options share one lock, if the first of them
// was granted it at most 20 ms before the others come. It is released when the last of them has
// returned, and [Events] are told of it once. So thousands of readers in a process cost the nodes
// as much as a few. Only the last of them learns from the nodes, by its Unlock, whether they had
// the lock to the end. If the first of them is not granted it, the others begin to wait by
// themselves, and so wait for up to twice as long, or three times if another went away before. With
// [WithOwner], [WithGenValueFunc] or [WithMaxWaiters] each call has a lock of its own, as Lock and
// Hold have: of those that wait in one process, only one is let in before the next writer.
//
// A shared lock cannot be handed off, nor be taken over with [WithValue], and wins no election:
// these are an [*OptionError]. So is a name with a closing brace and no hash tag, for which the
// nodes of a cluster have no place to keep readers. Default: off, the lock is exclusive.
func WithShared() Option {
	return option(func(c *config) { c.Shared = true })
}

// notShared is the mistake of asking for something of a shared lock that only one who has the lock
// alone can do.
func notShared(of string) *OptionError {
	return &OptionError{of, nil, "needs a lock without WithShared"}
}

// joinable is for how long after its grant callers of Do join a read. A writer waits for that, and
// for a read, longer than for one reader.
const joinable = 20 * time.Millisecond

// reads are the shared locks that callers of Do in this process have together. The zero value has
// none. They are safe for concurrent use.
type reads struct {
	mu  sync.Mutex // guards what follows, and the marked fields of read
	all map[readTerms]*read
}

// readTerms are what callers agree on who have a read together: all options that matter once the
// lock is granted.
type readTerms struct {
	key     string
	name    string // which errors and FencingTokenOf tell
	terms   wire.Terms
	tries   int
	noWait  bool
	minHold time.Duration
	holding
}

// read is a shared lock of some callers.
type read struct {
	ready chan struct{} // closed when hold is known
	hold  *hold         // nil: the first of them was not granted the lock
	gone  bool          // because its own context has ended

	// The mutex of reads guards these.
	callers int
	since   time.Time // when the lock was granted; zero: it is not yet
}

// join returns the read that a caller has part in, and whether that begins with it.
func (rs *reads) join(m *Mutex, terms readTerms) (rd *read, first bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rd = rs.all[terms]
	if rd == nil || !rd.since.IsZero() && (time.Since(rd.since) > joinable || rd.hold.isOver()) {
		if rs.all == nil {
			rs.all = map[readTerms]*read{}
		}
		rd, first = &read{ready: make(chan struct{})}, true
		rs.all[terms] = rd
	}
	rd.callers++
	return rd, first
}

// begin tells the others what the first caller was granted, or nil.
func (rs *reads) begin(rd *read, terms readTerms, h *hold) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rd.hold, rd.since = h, time.Now()
	if h == nil && rs.all[terms] == rd {
		delete(rs.all, terms)
	}
	close(rd.ready)
}

// leave ends a caller's part. It reports whether that was the last.
func (rs *reads) leave(rd *read, terms readTerms) (last bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rd.callers--
	if rd.callers == 0 && rs.all[terms] == rd {
		delete(rs.all, terms)
	}
	return rd.callers == 0
}

// do is Do. Callers who share the lock have it together. If the first of those who would is not
// granted it, the others ask by themselves; if it has only gone away, the next of them asks for
// all. All ask by themselves where the number of waiters is bounded, and where the value tells
// whose the lock is.
func (m *Mutex) do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	c := m.cfg
	if !c.Shared || m.lock.Misuse != nil || m.self(ctx) != nil || c.MaxWaiters != Unlimited ||
		c.GenValue != nil {
		return m.doAlone(ctx, fn)
	}
	terms := readTerms{m.key, m.name, c.Terms, c.tries, c.NoWait, c.MinHold, c.holding}
	rd, err := m.ask(ctx, terms)
	if rd != nil && rd.gone {
		rd, err = m.ask(ctx, terms) // once: the next may go away, too
	}
	switch {
	case err != nil:
		return err
	case rd == nil || rd.hold == nil:
		return m.doAlone(ctx, fn)
	}
	of, l := rd.hold.m, rd.hold.l
	held, leave := rd.hold.join(ctx)
	defer func() {
		leave()
		closed, gone := of.closed(l), of.error(notReleased, l.Lost())
		if m.core.reads.leave(rd, terms) {
			gone = of.finish(ctx, l)
		}
		err = errtext.Join(err, closed, gone)
	}()
	return fn(held)
}

// ask joins the callers who ask for a lock together, or begins with that, and waits for what
// becomes of it. It returns nil if ctx has ended before.
func (m *Mutex) ask(ctx context.Context, terms readTerms) (*read, error) {
	rs := &m.core.reads
	rd, first := rs.join(m, terms)
	if first {
		if err := m.begin(ctx, rd, terms); err != nil {
			return nil, err
		}
	}
	select {
	case <-rd.ready:
		return rd, nil
	case <-ctx.Done():
		if rs.leave(rd, terms) && rd.hold != nil {
			_ = rd.hold.m.finish(ctx, rd.hold.l) // the others had it, and have left meanwhile
		}
		return nil, nil
	}
}

// begin asks for the lock for all who join, with the context of the first.
func (m *Mutex) begin(ctx context.Context, rd *read, terms readTerms) error {
	var h *hold
	defer func() { // also if a function of the caller's panics
		rd.gone = h == nil && ctx.Err() != nil
		m.core.reads.begin(rd, terms, h)
	}()
	l, err := m.acquire(ctx, m.cfg.tries, "")
	if err != nil {
		return err
	}
	held, err := m.keep(context.WithoutCancel(ctx), l)
	if err != nil {
		return err
	}
	h = held.(*heldContext).h
	return nil
}

// join returns a held context for one of several callers who share the hold, and what ends it. It
// is done when the hold ends, before anything is released.
func (h *hold) join(ctx context.Context) (held context.Context, leave func()) {
	own, cancel := context.WithCancelCause(ctx)
	mine := &heldContext{own, h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.beside == nil {
		h.beside = map[*heldContext]context.CancelCauseFunc{}
	}
	h.beside[mine] = cancel
	if h.held.Err() != nil {
		cancel(context.Cause(h.held.Context))
	}
	return mine, func() {
		cancel(ErrReleased)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.beside, mine)
	}
}

// hasLeft reports whether c is that of a caller who had the hold together with others, and no
// longer does.
func (c *heldContext) hasLeft() bool {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return c != &c.h.held && c.h.beside[c] == nil
}
