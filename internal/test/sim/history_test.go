package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/internal/test/sim"
)

// history is what happened in one schedule, and what was wrong with it. Unless said otherwise its
// times are true ones, since the start of the schedule.
//
// Invariants have the names that docs/testing.md explains.
type history struct {
	setup
	start time.Time

	mu         sync.Mutex
	violations []violation
	values     map[string]*record // by plain value
	leases     []*lease
	traces     bool     // whether somebody wants the trace
	lines      []string // of the trace
	picture    *picture // or nil
	sometimes  map[string]int
	locks      map[string]string // by the keys that they use alone
	fenced     map[string]*resource
	late       map[string]*resource // fenced, too, but not claimed
	unfenced   map[string]*resource
	handed     map[string]bool // plain values
	parcels    []*parcel
	grants     int
	waited     time.Duration // longest, for a turn after the faults
	event      func()        // called for each command sent or executed
}

type violation struct{ invariant, text string }

func (v violation) String() string { return v.invariant + ": " + v.text }

// record is what the nodes did with one value.
type record struct {
	node  []nodeRecord
	ended bool          // its owner has been told that it does not hold the lock
	at    time.Duration // when
	first time.Duration // when the first node granted it
	bid   bool          // a node has taken it up
	lock  string        // that it was made for
}

// nodeRecord is when a node did things last, or 0.
type nodeRecord struct {
	granted, deleted time.Duration
	extended         []time.Duration // all of them
	taken            time.Duration   // refused or did not release it, because the key was another's
	own              time.Duration   // refused it, because it had it
	gone             time.Duration   // did not have it any more, or another's
}

// confirmed returns when the node gave the key its last expiry.
func (n nodeRecord) confirmed() time.Duration {
	if k := len(n.extended); k > 0 {
		return max(n.granted, n.extended[k-1])
	}
	return n.granted
}

// within tells whether the node extended the key in that time.
func (n nodeRecord) within(from, to time.Duration) bool {
	return slices.ContainsFunc(n.extended,
		func(at time.Duration) bool { return from <= at && at <= to })
}

// lease is the time in which one owner believes that it holds the lock.
type lease struct {
	owner, name, value string
	token              uint64
	shared             bool
	from               time.Duration
	first              time.Duration // when the first node granted it
	to                 atomic.Int64
	kept               atomic.Int64 // of a held lock: the last until that was seen
	// What its owner believes to be in the resource that it has not claimed.
	late  int
	after *parcel // that was adopted, or nil
}

// until is when the lease ends, as far as is known.
func (l *lease) until() time.Duration { return time.Duration(l.to.Load()) }

// prolong makes the lease last until to.
func (l *lease) prolong(to time.Duration) { l.to.Store(int64(to)) }

// end makes the lease end at to, if it does not end before.
func (l *lease) end(to time.Duration) {
	for old := l.to.Load(); int64(to) < old; old = l.to.Load() {
		if l.to.CompareAndSwap(old, int64(to)) {
			return
		}
	}
}

func newHistory(s setup) *history {
	return &history{
		setup: s, start: time.Now(), values: make(map[string]*record),
		sometimes: make(map[string]int), handed: make(map[string]bool),
		locks:  make(map[string]string),
		fenced: make(map[string]*resource), late: make(map[string]*resource),
		unfenced: make(map[string]*resource),
	}
}

func (h *history) now() time.Duration { return time.Since(h.start) }

// violate notes that an invariant does not hold. The caller does not hold the mutex.
func (h *history) violate(invariant, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violated(invariant, format, args...)
}

func (h *history) violated(invariant, format string, args ...any) {
	h.violations = append(h.violations, violation{invariant, fmt.Sprintf("%v: ", h.now()) +
		fmt.Sprintf(format, args...)})
}

// reached counts an interesting state.
func (h *history) reached(state string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sometimes[state]++
}

// note adds a line to the trace, together with the time. Lines of the same nanosecond may come in
// any order.
func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.Contains(format, "node %d") {
		h.sometimes[format]++ // what befalls nodes
	}
	h.noted(format, args...)
}

// noted is note. The caller holds mu.
func (h *history) noted(format string, args ...any) {
	if h.traces {
		h.line(format, args...)
	}
	if h.picture != nil {
		h.picture.noted(h.now(), fmt.Sprintf(format, args...))
	}
}

// line adds to the trace, which takes a quarter of the time of a schedule. The caller holds mu.
func (h *history) line(format string, args ...any) {
	h.lines = append(h.lines, fmt.Sprintf("%v "+format, append([]any{h.now()}, args...)...))
}

// plain cuts off the random part of a value, or of a channel.
func plain(value string) string {
	if at := strings.Index(value, "redlock:turn:"); at >= 0 {
		return value[:at] + value[min(at+39, len(value)):]
	}
	head, _, _ := strings.Cut(value, "|")
	return head
}

func (h *history) of(value string) *record {
	value = plain(value)
	r := h.values[value]
	if r == nil {
		r = &record{node: make([]nodeRecord, h.Nodes)}
		h.values[value] = r
	}
	return r
}

// watch looks at every command that a node has executed.
func (h *history) watch(e sim.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.event != nil {
		h.event()
	}
	now := h.now()
	if h.picture != nil {
		h.picture.executed(now, e)
	}
	if h.traces {
		h.line("node %d %s %s %s %q: %v %v %v", e.Node, e.Client, e.Command, plain(e.Key),
			plain(e.Value), e.Reply, e.Err, e.Effect)
	}
	switch {
	case e.Command == "raise" || e.Command == "lift":
		h.sometimes["raise round"]++
	case e.Command == "share" && e.Reply == int64(0) && e.Shared:
		h.sometimes["reader refused by a queue"]++
	case e.Command == "share" && e.Shared && strings.HasSuffix(e.Member, "*") && e.Before == "":
		h.sometimes["reader admitted"]++
	case e.Command == "unshare" && e.Effect == sim.Deleted && !e.Shared:
		h.sometimes["last reader"]++
	case e.Command == "bid" && e.Effect == sim.Granted:
		h.sometimes["bid taken up"]++
		h.of(e.Value).bid = true
	case e.Command == "claim" && e.Before == e.Value && h.of(e.Value).bid:
		h.sometimes["claim of a bid"]++
	case e.Command == "release" && e.Back && h.of(e.Value).bid:
		h.sometimes["bid taken back"]++
	}
	if e.Short {
		h.violated(invariantSeats, "node %d lets the key end before a seat: %v", e.Node, e)
	}
	releases := e.Command == "release" || e.Command == "unshare"
	if releases && e.Effect == sim.Deleted && !e.Back && e.After == "~"+e.Member {
		h.violated("I8 no leaks", "node %d keeps the key for the one who releases it: %v", e.Node,
			e)
	}
	if releases && !e.Back && e.Waits {
		h.violated("I8 no leaks", "node %d keeps the place of one who leaves: %v", e.Node, e)
	}
	h.alone(e)
	if n, ok := e.Reply.(int64); ok && (e.Command == "acquire" || e.Command == "share") &&
		n < 0 {
		h.sometimes["restart guard refused"]++
	}
	if e.Effect == sim.None {
		h.denied(e, now)
		return
	}
	free := e.Before == "" || e.Command == "swap" && h.handed[plain(e.Before)] ||
		slices.Contains([]string{"claim", "heal", "share"}, e.Command) &&
			strings.HasPrefix(e.Before, "~redlock:turn:")
	if e.Effect != sim.Granted && e.Before != e.Value || e.Effect == sim.Granted && !free {
		h.violated("I5 ownership", "%v", e)
	}
	r := h.of(e.Value)
	n := &r.node[e.Node]
	switch e.Effect {
	case sim.Granted:
		if r.first == 0 {
			r.first = now
		}
		if r.ended {
			h.sometimes["zombie SET"]++
		}
		if slices.ContainsFunc(r.node, func(n nodeRecord) bool { return n.extended != nil }) {
			h.sometimes["heal"]++
		}
		n.granted = now
	case sim.Deleted:
		n.deleted = now
	case sim.Extended:
		n.extended = append(n.extended, now)
	}
}

// alone looks for what two locks share: a key, or a value.
func (h *history) alone(e sim.Event) {
	if e.Command == "subscribe" {
		return
	}
	for _, key := range append(e.Beside[:], e.Key) {
		if lock, ok := h.locks[key]; key != "" && ok && lock != e.Key {
			h.violated(invariantAlone, "node %d: %q is a key of %q and of %q", e.Node, key, lock,
				e.Key)
		}
		h.locks[key] = e.Key
	}
	if e.Value == "" || strings.HasPrefix(e.Value, "redlock:turn:") { // no value of a lock
		return
	}
	r := h.of(e.Value)
	if r.lock == "" {
		r.lock = e.Key
	}
	if r.lock != e.Key {
		h.violated(invariantAlone, "node %d: %q has a value that was made for %q: %v", e.Node,
			e.Key, r.lock, e)
	}
}

const (
	// invariantAlone is the name of what alone checks.
	invariantAlone = "I22 one lock"
	// invariantSeats says that the key of readers never ends before a seat.
	invariantSeats = "I23 seats"
)

// denied looks at a command that has changed nothing. What a client says of the nodes has to
// follow from this, whether or not the reply has reached it.
func (h *history) denied(e sim.Event, now time.Duration) {
	if e.Err != nil {
		return
	}
	// Or reserved, which is no reason to lose a lock.
	foreign := e.Before != "" && e.Before != e.Value
	if e.Command == "share" || e.Command == "unshare" {
		foreign = foreign || e.Shared && e.Before == "" // it is not one of the readers
	}
	switch e.Command {
	case "set", "acquire", "claim", "heal", "share":
		n := &h.of(e.Value).node[e.Node]
		if foreign {
			n.taken = now
		} else if e.Command == "set" && e.Before == e.Value {
			n.own = now
		}
	case "swap":
		h.of(e.Value).node[e.Node].gone = now
	case "release", "extend", "valid", "unshare", "seat":
		releases := e.Command == "release" || e.Command == "unshare"
		if strings.HasPrefix(e.Before, "~redlock:turn:") && !releases {
			foreign = false
		}
		n := &h.of(e.Value).node[e.Node]
		if e.Before != e.Value {
			n.gone = now
		}
		if foreign && releases {
			n.taken = now
		}
	}
}

// sent looks at every command that leaves a client.
func (h *history) sent(op sim.Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.event != nil {
		h.event()
	}
	if h.picture != nil {
		h.picture.sent(h.now(), op)
	}
	if op.Command == "claim" {
		h.sometimes["claim"]++
	}
	if slices.Contains([]string{"release", "stand", "valid", "unshare", "standshare", "subscribe",
		"message"}, op.Command) {
		return
	}
	if r := h.of(op.Value); r.ended {
		h.violated("I11 silence", "%s sends %s of %s to node %d, which ended at %v", op.Client,
			op.Command, plain(op.Value), op.Node, r.at)
	}
}

// end says that the owners of these values have been told that they do not hold the lock.
func (h *history) end(values ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range values {
		if r := h.of(v); v != "" && !r.ended {
			r.ended, r.at = true, h.now()
		}
	}
}

// begin opens a lease that lasts, as far as is known, until to.
func (h *history) begin(owner, name, value string, token uint64, to time.Duration) *lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.of(value)
	l := &lease{owner: owner, name: name, value: value, token: token, from: h.now(), first: r.first,
		late: at(h.late, name).value}
	l.prolong(to)
	h.leases = append(h.leases, l)
	h.grants++
	if got := r.count(func(n nodeRecord) bool { return n.granted != 0 }); got < h.quorum() {
		h.violated("I15 quorum", "%s was granted %s by %d of %d nodes", owner, name, got, h.Nodes)
	}
	return l
}

func (r *record) count(f func(nodeRecord) bool) int {
	n := 0
	for _, rec := range r.node {
		if f(rec) {
			n++
		}
	}
	return n
}

// count returns how many nodes did to value what f says.
func (h *history) count(value string, f func(nodeRecord) bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of(value).count(f)
}

// latest returns a time that is no earlier than the start of the last round in which a quorum of
// nodes granted or extended the value's key.
func (h *history) latest(value string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	var times []time.Duration
	for _, n := range h.of(value).node {
		times = append(times, n.confirmed())
	}
	slices.Sort(times)
	return times[len(times)-h.quorum()]
}

// resource is what a lock protects. It rejects tokens below the largest it has seen. Where it is
// claimed with a token before it is read, reads and writes under one token are atomic.
type resource struct {
	seen  uint64
	value int
	by    int // writes
}

// at returns the resource of a name. The caller holds mu.
func at(in map[string]*resource, name string) *resource {
	if in[name] == nil {
		in[name] = &resource{}
	}
	return in[name]
}

// claim shows a token before the first read, and tells whether it is accepted.
func (h *history) claim(in map[string]*resource, name string, token uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := at(in, name)
	if token < r.seen {
		h.sometimes["stale claim refused"]++
		return false
	}
	r.seen = token
	return true
}

// read is the first half of a read-modify-write.
func (h *history) read(from map[string]*resource, name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return at(from, name).value
}

// write is the second half.
func (h *history) write(to map[string]*resource, name string, token uint64, value int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := at(to, name)
	if token < r.seen {
		h.sometimes["stale write refused"]++
		return
	}
	r.seen = token
	r.value = value
	r.by++
}

// finish checks what can only be seen at the end.
func (h *history) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	byName := make(map[string][]*lease)
	for _, l := range h.leases {
		byName[l.name] = append(byName[l.name], l)
	}
	for _, leases := range byName {
		slices.SortFunc(leases, func(a, b *lease) int { return int(a.from - b.from) })
		h.checkOverlap(leases)
		h.checkHandOvers(leases)
		if h.fencing() {
			h.checkTokens(leases)
		}
	}
	for name, r := range h.fenced {
		if r.value != r.by {
			h.violated("I4 fenced resource", "%q: %d updates, value %d", name, r.by, r.value)
		}
	}
	for what, all := range map[string]map[string]*resource{
		"lost update without fencing": h.unfenced, "lost update without a claim": h.late,
	} {
		for _, r := range all {
			if r.value != r.by {
				h.sometimes[what]++
			}
		}
	}
}

// checkOverlap looks for two owners at a time. The leases are in the order in which they began.
func (h *history) checkOverlap(leases []*lease) {
	var last, alone *lease // that end latest, of all, and of those that exclude everybody
	for _, l := range leases {
		before := last
		if l.shared {
			before = alone
		}
		if l.shared && last != nil && last.shared && l.from < last.until() {
			h.sometimes["readers together"]++
		}
		if last := before; last != nil && l.from < last.until() {
			h.violated("I1 mutual exclusion", "%q: %s holds %s from %v while %s holds %s until %v",
				l.name, l.owner, plain(l.value), l.from, last.owner, plain(last.value),
				last.until())
		}
		if last == nil || l.until() > last.until() {
			last = l
		}
		if !l.shared && (alone == nil || l.until() > alone.until()) {
			alone = l
		}
	}
}

// checkTokens looks for tokens that do not grow. One lease comes before another
// if it had begun when the first node granted the other: that is true also of leases that overlap.
func (h *history) checkTokens(leases []*lease) {
	for i, b := range leases {
		for _, a := range leases[:i] {
			if a.from <= b.first && a.token >= b.token && a.token != 0 && b.token != 0 {
				h.violated("I3 token order", "%q: %s has %d at %v, then %s %d at %v", a.name,
					a.owner, a.token, a.from, b.owner, b.token, b.from)
			}
		}
	}
}
