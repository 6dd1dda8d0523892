package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/lease"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// Verdict is what the nodes together say about a lock.
type Verdict string

// What the nodes may say together.
const (
	// VerdictFree: a quorum of nodes has no key. Nobody holds the lock, and it can be acquired.
	VerdictFree Verdict = "free"
	// VerdictHeld: a quorum of nodes has the same value. Its owner holds the lock.
	VerdictHeld Verdict = "held"
	// VerdictShared: a quorum of nodes lets readers have the lock, see [WithShared].
	VerdictShared Verdict = "shared"
	// VerdictSplit: nobody holds the lock, and nobody can acquire it before keys are deleted or
	// expire. Contenders leave this behind for a moment. If it stays, look at the nodes' values.
	VerdictSplit Verdict = "split"
	// VerdictReserved: nobody holds the lock, and a quorum of nodes keeps the key for a process
	// whose turn it is, or has none. That process takes it within a moment, or the next one gets
	// it.
	VerdictReserved Verdict = "reserved"
	// VerdictUnknown: the nodes that did not answer could make it free or held.
	VerdictUnknown Verdict = "unknown"
)

// NoExpiry is the TTL of a key that never expires.
const NoExpiry time.Duration = -1

// Inspection is what [Redlock.Inspect] found out. The nodes are asked at the same time, but each
// answers at a moment of its own. A lock that changes hands meanwhile may be seen in between.
type Inspection struct {
	// Name is the lock's name.
	Name string
	// Key is the Redis key: the name after the key prefix.
	Key string
	// Verdict is what follows from the nodes' answers.
	Verdict Verdict
	// Quorum is the number of nodes that make a holder.
	Quorum int
	// Value is the value that most nodes have. It is what releases the lock: keep it out of logs.
	// With [WithGenValueFunc] it begins with what that function returned. It is nobody's if the
	// verdict is shared.
	Value string
	// Owner is the text of [WithOwner] in Value, or what the function of WithGenValueFunc
	// returned. It is "" if Value is random only, or is that of another library.
	Owner string
	// Votes is how many nodes have Value.
	Votes int
	// TTL is how long a quorum keeps the value unless it is extended or deleted, [NoExpiry] for
	// ever. It is 0 unless the verdict is held or shared. The owner trusts the lock for less, see
	// [Mutex.Until].
	TTL time.Duration
	// Readers are those who share the lock, the one that most nodes know first.
	Readers []Reader
	// Waiters are the processes in the nodes' queue, in the order of their turns, if a quorum of
	// nodes has them. It is nil if fewer than a quorum told their queues. Those that poll are in no
	// queue: see [WithPolling].
	Waiters []Waiter
	// Nodes is what each node said, in node order.
	Nodes []NodeKey

	at time.Time // when Waiters was asked for
}

// Waiter is a process that waits for a lock.
type Waiter struct {
	// Owner is the text of [WithOwner] of the one that waits for the process, or "". It is "" with
	// a version of this library that does not tell it.
	Owner string
	// Since is when it came into the queue, by its own clock, or by that of one before it if that
	// is ahead.
	Since time.Time
}

// Reader is one who shares a lock. Its value is a secret, and is not told.
type Reader struct {
	// Owner is the text of [WithOwner], or what the function of [WithGenValueFunc] returned, or "".
	Owner string
	// Votes is how many nodes know it. With fewer than a quorum it does not have the lock.
	Votes int
	// TTL is for how long a quorum knows it unless it is extended or released, or 0.
	TTL time.Duration
}

// NodeKey is a lock's key as one node has it.
type NodeKey struct {
	// Node is the index of the node's pool in the call of New.
	Node int
	// Addr is the node's address, or "" if its pool does not tell, see [pool.Addressed].
	Addr string
	// Found tells whether the node has the key.
	Found bool
	// Value is what the key holds.
	Value string
	// Reserved tells whether that is not the value of a lock: the node keeps the key for a process
	// whose turn it is.
	Reserved bool
	// Shared tells whether that is not the value of a lock: readers have the key.
	Shared bool
	// TTL is the time until the key expires by the node's clock, in whole milliseconds, or
	// [NoExpiry].
	TTL time.Duration
	// Err says why nothing is known of the node. It is what the client returned, or matches
	// [ErrNodeTimeout].
	Err error

	counter string // of the lock, if it was asked for
}

// Inspect asks every node what it has under the lock of that name, and who waits for it, and
// changes nothing. The key is the name after the prefix of [WithKeyPrefix], if r was made
// [Redlock.With] one.
//
// Inspect blocks until all nodes have answered, at most for the node timeout, or twice that if the
// lock is shared, or until ctx is done. Nodes that fail do not make it fail: their errors are in
// the result. If they are too many, the verdict is [VerdictUnknown]. The error is an
// [*OptionError], or the context's; then the result is nil.
func (r *Redlock) Inspect(ctx context.Context, name string) (*Inspection, error) {
	r.mustBeMade()
	needContext(ctx)
	if r.err != nil {
		return nil, r.err
	}
	key := r.cfg.prefix + name
	if err := r.cfg.checkName("Inspect", name, key); err != nil {
		return nil, err
	}
	waiters := make(chan []Waiter, 1)
	at := r.core.Now()
	go func() { waiters <- r.waiters(ctx, key) }()
	in, err := r.inspect(ctx, name, key)
	if asked := <-waiters; err == nil {
		in.Waiters, in.at = asked, at
	}
	return in, err
}

// waiters asks every node who waits for a lock.
func (r *Redlock) waiters(ctx context.Context, key string) []Waiter {
	tickets, told, q := map[wire.Member][]int64{}, 0, r.core.quorum
	for _, node := range quorum.Survey(ctx, r.core.Nodes, r.cfg.NodeTimeout,
		func(ctx context.Context, n *quorum.Node) ([]wire.Member, error) {
			return wire.Waiters(ctx, n.Pool, key)
		}) {
		if node.Err == nil {
			told++
		}
		for _, m := range node.Value {
			id := wire.Member{ID: m.ID}
			tickets[id] = append(tickets[id], m.Ticket)
		}
	}
	if told < q {
		return nil
	}
	var all []wire.Member
	for m, of := range tickets {
		if len(of) >= q {
			slices.Sort(of)
			m.Ticket = of[len(r.core.Nodes)-q] // on which it has agreed with the nodes
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b wire.Member) int {
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), strings.Compare(a.ID, b.ID))
	})
	waiters := make([]Waiter, len(all))
	for i, m := range all {
		waiters[i] = Waiter{Owner: m.Owner(), Since: time.UnixMicro(m.Ticket)}
	}
	return waiters
}

// inspect asks every node for a lock's key, and for its counter if that is given too.
func (r *Redlock) inspect(ctx context.Context, name string, keys ...string) (*Inspection, error) {
	c := wire.TakeCensus(ctx, r.core.Nodes, r.cfg.NodeTimeout, keys...)
	if ctx.Err() != nil {
		return nil, r.core.errorOf(name, "not inspected", lease.Interrupted(ctx, nil))
	}
	in := &Inspection{
		Name: name, Key: keys[0], Verdict: Verdict(c.Verdict(r.core.quorum)),
		Quorum: r.core.quorum, Value: c.Value, Owner: wire.OwnerOf(c.Value), Votes: c.Votes,
	}
	for i, a := range c.Nodes {
		in.Nodes = append(in.Nodes, NodeKey{
			Node: i, Addr: r.core.Nodes[i].Addr(), Found: a.Value.Found, Value: a.Value.Value,
			Reserved: a.Value.Reserved, Shared: a.Value.Value == wire.Marker, TTL: a.Value.TTL,
			Err: exported(a.Err), counter: a.Value.Counter,
		})
	}
	switch in.Verdict {
	case VerdictShared:
		in.TTL, in.Readers = c.TTL(in.Quorum), r.readers(ctx, in.Key)
	case VerdictHeld:
		in.TTL = c.TTL(in.Quorum)
	}
	return in, nil
}

// readers asks every node who shares a lock. A node that fails knows nobody.
func (r *Redlock) readers(ctx context.Context, key string) (all []Reader) {
	ttls := map[string][]time.Duration{}
	for _, node := range quorum.Survey(ctx, r.core.Nodes, r.cfg.NodeTimeout,
		func(ctx context.Context, n *quorum.Node) ([]wire.Reader, error) {
			return wire.Readers(ctx, n.Pool, key)
		}) {
		for _, reader := range node.Value {
			ttls[reader.Value] = append(ttls[reader.Value], reader.TTL)
		}
	}
	for value, of := range ttls {
		reader := Reader{Owner: wire.OwnerOf(value), Votes: len(of)}
		if q := r.core.quorum; len(of) >= q {
			slices.Sort(of)
			reader.TTL = of[len(of)-q]
		}
		all = append(all, reader)
	}
	slices.SortFunc(all, func(a, b Reader) int {
		return cmp.Or(b.Votes-a.Votes, strings.Compare(a.Owner, b.Owner), int(a.TTL-b.TTL))
	})
	return all
}

// String tells everything in a line for the lock and one for each reader and node. It shows the
// beginnings of values: all but the last 18 characters, or a third of a short value. That tells the
// values of redlock apart and releases no lock.
func (in *Inspection) String() string {
	var b strings.Builder
	n, answered := len(in.Nodes), 0
	for _, node := range in.Nodes {
		if node.Err == nil {
			answered++
		}
	}
	fmt.Fprintf(&b, "lock %s: %s", errtext.Name(in.Name), in.Verdict)
	switch in.Verdict {
	case VerdictFree:
		fmt.Fprintf(&b, ", at least %d of %d nodes have no key\n", in.Quorum, n)
	case VerdictHeld:
		fmt.Fprintf(&b, " by %s on %d of %d nodes, %s\n",
			wire.Brief(in.Value), in.Votes, n, untilText(in.TTL))
	case VerdictShared:
		fmt.Fprintf(&b, " by %d on %d of %d nodes, %s\n", len(in.Readers), in.Votes, n,
			untilText(in.TTL))
	case VerdictSplit:
		fmt.Fprintf(&b, ", nobody has or can get %d of %d nodes before keys go away\n",
			in.Quorum, n)
	case VerdictReserved:
		fmt.Fprintf(&b, ", at least %d of %d nodes have no key or keep it for "+
			"a process that waits\n", in.Quorum, n)
	case VerdictUnknown:
		fmt.Fprintf(&b, ", only %d of %d nodes answered\n", answered, n)
	}
	in.writeWaiters(&b)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, reader := range in.Readers {
		fmt.Fprintf(w, "  reader %s\ton %d of %d nodes, %s\n", errtext.Name(reader.Owner),
			reader.Votes, n, ttlText(reader.TTL))
	}
	for _, node := range in.Nodes {
		fmt.Fprintf(w, "  %s\t%s\n", nodeName(node.Node, node.Addr), node.has())
	}
	_ = w.Flush() // a strings.Builder does not fail
	return b.String()
}

// String tells what the node has in one line, of a value only the beginning: see
// [Inspection.String].
func (k NodeKey) String() string { return nodeName(k.Node, k.Addr) + ": " + k.has() }

// has is what the node has under the key.
func (k NodeKey) has() string {
	switch {
	case k.Err != nil:
		return k.Err.Error()
	case !k.Found:
		return "no key"
	case k.Reserved:
		return "kept for a process that waits, " + ttlText(k.TTL)
	case k.Shared:
		return "shared, " + ttlText(k.TTL)
	}
	return wire.Brief(k.Value) + ", " + ttlText(k.TTL)
}

// writeWaiters writes how many wait, and the first ten of them.
func (in *Inspection) writeWaiters(b *strings.Builder) {
	const most = 10
	n := len(in.Waiters)
	switch {
	case in.Waiters == nil && in.Verdict != VerdictUnknown:
		fmt.Fprintln(b, "  who waits is not known: too few nodes told their queues")
	case n > 0:
		waits := max(in.at.Sub(in.Waiters[0].Since), 0).Truncate(time.Millisecond)
		fmt.Fprintf(b, "  %d in the queue, the first for %v:", n, waits)
		for _, w := range in.Waiters[:min(n, most)] {
			fmt.Fprintf(b, " %s", errtext.Name(w.Owner))
		}
		if n > most {
			fmt.Fprint(b, " …")
		}
		fmt.Fprintln(b)
	}
}

func ttlText(ttl time.Duration) string {
	if ttl == NoExpiry {
		return "never expires"
	}
	return fmt.Sprintf("expires in %v", ttl)
}

// untilText is ttlText for a lock that somebody has, and probably extends.
func untilText(ttl time.Duration) string {
	if ttl == NoExpiry {
		return ttlText(ttl)
	}
	return ttlText(ttl) + " unless extended"
}

// WithOwner writes a text into the value of each lease, followed by a colon and the random bits:
// for people, and for [Election.Leader] and [Redlock.Inspect], which show it. So does its place in
// the nodes' queue while it waits. It takes the place of [WithGenValueFunc]. Everybody who may read
// the nodes can read it. Default: "", the random bits alone, and never the host's name by itself.
//
// A Lock that fails with [ErrTaken] then also says whose the lock is: taken on 3 of 5 nodes by
// "pod-7". The text and the Owner of its [*Error] have it. A refusal does not tell that. So it asks
// the nodes that refused once more, after its last attempt, and waits for them for a node timeout
// at most, or for 5 ms if its context is done. A Lock that is granted asks nothing.
//
// A mutex with an owner asks whenever the lock is taken, also in TryLock. One without asks only if
// Lock gives up by itself: not in TryLock, nor with one try, nor if its context ends, which may
// happen to many callers at once. Their errors name nobody. [Redlock.Inspect] always tells.
func WithOwner(text string) Option {
	return option(func(c *config) {
		c.GenValue, c.genValueBy, c.Owner = nil, false, text
		if text != "" {
			c.GenValue = func() (string, error) { return text, nil }
		}
	})
}

// nodeName is what errors and reports call a node.
func nodeName(node int, addr string) string {
	if addr == "" {
		return fmt.Sprintf("node %d", node)
	}
	return fmt.Sprintf("node %d (%s)", node, addr)
}
