// Package sim simulates Redis nodes in memory, and what lies between them and
// their clients: delay, loss, duplication, reordering, hanging, crashes with and without
// data, wrong clocks.
//
// A [Node] is one Redis master that knows SET NX PX and redlock's scripts; a [Link]
// is one client's way to it and implements pool.Pool and pool.Subscriber. All
// time comes from package time, so that inside a testing/synctest bubble everything happens in
// virtual time, and outside one in real time. A node on which no test has laid a hand answers
// at once, without goroutines and almost without allocation, which makes it
// useful for benchmarks too.
//
//	nodes := sim.NewNodes(5)
//	rl := redlock.New(nodes.Pools("a")...)
//	nodes[3].Always(sim.Hang())             // from now on
//	nodes[4].Next("set", sim.Fail(errTest)) // the next SET only
package sim

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	reckon "github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
)

// Nodes are the nodes of one deployment, in order.
type Nodes []*Node

// NewNodes returns n empty nodes that have been up for long and share one log, which
// does not record yet.
func NewNodes(n int) Nodes {
	log, agenda := new(Log), new(agenda)
	nodes := make(Nodes, n)
	for i := range nodes {
		nodes[i] = newNode(i, log, agenda)
	}
	return nodes
}

// Pools returns one new link to each node for the client of that name.
func (ns Nodes) Pools(client string) []pool.Pool {
	pools := make([]pool.Pool, len(ns))
	for i, n := range ns {
		pools[i] = n.Link(client)
	}
	return pools
}

// Log returns the log that the nodes share.
func (ns Nodes) Log() *Log { return ns[0].log }

// Record makes all nodes write their log from now on, and returns it.
func (ns Nodes) Record() *Log {
	ns[0].log.start()
	return ns[0].log
}

// Count returns how many commands of that name all nodes have executed; "" counts
// every command. Names are "set", "subscribe" and those of the scripts.
func (ns Nodes) Count(command string) int {
	total := 0
	for _, n := range ns {
		total += n.Count(command)
	}
	return total
}

// Values returns what each node holds under key, "" for nothing.
func (ns Nodes) Values(key string) []string {
	values := make([]string, len(ns))
	for i, n := range ns {
		values[i] = n.Value(key)
	}
	return values
}

// Close ends every call that still waits on one of the nodes, with [ErrClosed]. A bubble
// must not be left with calls that hang for ever.
func (ns Nodes) Close() {
	for _, n := range ns {
		n.Close()
	}
}

// Node is one simulated Redis master. It is safe for concurrent use.
type Node struct {
	id     int
	log    *Log
	agenda *agenda
	done   chan struct{} // closed by Close

	mu      sync.Mutex // protects everything below; the log's mutex is taken inside it
	clock   clock
	keys    map[string]entry
	queues  map[string]*waiting
	bidders map[string]string // clients, by the keys of their bids
	started time.Duration     // when the process started, by the node's clock
	epoch   int               // grows with every crash; a connection lives in one epoch
	down    bool
	frozen  bool
	backlog []func()          // what arrived while frozen, in order
	always  *Fate             // of every command without a more special fate
	next    map[string][]Fate // scripted fates by command; "" is any command
	subs    []*subscription
	counts  [commandCount]int
	closed  bool
}

// An entry is one key's value and expiry by the node's clock; zero never expires.
type entry struct {
	value   string
	expires time.Duration
}

// longAgo is how long a new node has been up: longer than any restart guard.
const longAgo = 1000 * 24 * time.Hour

func newNode(id int, log *Log, agenda *agenda) *Node {
	n := &Node{
		id:      id,
		log:     log,
		agenda:  agenda,
		done:    make(chan struct{}),
		keys:    make(map[string]entry),
		queues:  make(map[string]*waiting),
		bidders: make(map[string]string),
		next:    make(map[string][]Fate),
	}
	n.clock.set(longAgo, 1)
	return n
}

// String returns the name that the node has in errors.
func (n *Node) String() string { return "sim node " + strconv.Itoa(n.id) }

// Link returns a new way from the client of that name to the node.
func (n *Node) Link(client string) *Link { return &Link{node: n, client: client} }

// Value returns what the node holds under key, "" for nothing.
func (n *Node) Value(key string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.get(key).value
}

// TTL returns the time until key expires by the node's clock, 0 if there is no such key, and -1
// if it never expires.
func (n *Node) TTL(key string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch e := n.get(key); {
	case e == entry{}:
		return 0
	case e.expires == 0:
		return -1
	default:
		return e.expires - n.clock.now()
	}
}

// Set puts value under key, as somebody else's SET PX would; ttl 0 means for ever.
func (n *Node) Set(key, value string, ttl time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := entry{value: value}
	if ttl != 0 {
		e.expires = n.clock.in(ttl)
	}
	n.keys[key] = e
}

// Delete removes key, as DEL by an operator would.
func (n *Node) Delete(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.keys, key)
}

// Flush removes every key, as FLUSHALL would.
func (n *Node) Flush() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.keys)
	clear(n.queues)
}

// Keys returns how many keys have not expired.
func (n *Node) Keys() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range n.keys {
		n.get(k)
	}
	return len(n.keys)
}

// Count returns how many commands of that name the node has executed; "" counts
// every command. Names are "set", "subscribe" and those of the scripts.
func (n *Node) Count(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	total := 0
	for c := range n.counts {
		if name == "" || commandNames[c] == name {
			total += n.counts[c]
		}
	}
	return total
}

// Next gives the next commands of that name, by whomever, these fates, one each; ""
// stands for any command. A scripted fate comes before Always and a link's plan.
func (n *Node) Next(command string, fates ...Fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if command != "" {
		mustCommand(command)
	}
	n.next[command] = append(n.next[command], fates...)
}

// Always gives every command without a scripted fate this one, until Always is called
// again. The zero Fate is the ordinary one.
func (n *Node) Always(f Fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.always = nil
	if f != (Fate{}) {
		n.always = &f
	}
}

// Clock makes the node's clock run at rate times the speed of time, from a reading that is
// jump later than now. It starts at rate 1.
func (n *Node) Clock(rate float64, jump time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock.set(n.clock.now()+jump, rate)
}

// Freeze stops the process as SIGSTOP does: commands still arrive and wait.
func (n *Node) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = true
}

// Thaw continues a frozen process: what has arrived is executed now, in order.
func (n *Node) Thaw() {
	n.mu.Lock()
	n.frozen = false
	backlog := n.backlog
	n.backlog = nil
	n.mu.Unlock()
	for _, run := range backlog {
		run()
	}
}

// Crash kills the process: connections break, waiting commands and subscriptions are lost,
// and new ones are refused until Restart.
func (n *Node) Crash() {
	n.mu.Lock()
	backlog := n.backlog
	n.backlog = nil
	n.frozen = false
	n.down = true
	n.epoch++
	n.mu.Unlock()
	for _, run := range backlog {
		run() // finds the epoch changed and reports a broken connection
	}
}

// Restart starts the process again, with the keys it had or empty. Its uptime counts
// from now. Clients renew their subscriptions and are told that messages may have been
// missed.
func (n *Node) Restart(keepData bool) {
	n.mu.Lock()
	if !keepData {
		clear(n.keys)
		clear(n.queues)
	}
	n.down = false
	n.started = n.clock.now()
	subs := append([]*subscription(nil), n.subs...)
	n.mu.Unlock()
	for _, s := range subs {
		s.send("")
	}
}

// Close ends every call that waits on the node, and every later one, with [ErrClosed].
func (n *Node) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.closed = true
		close(n.done)
	}
}

// get returns the entry of key, zero if it has none or it has expired. The caller holds
// the mutex. A key lives for exactly its expiry and not, as on a real node, for up to a
// millisecond longer: nothing may rest on that millisecond.
func (n *Node) get(key string) entry {
	e, ok := n.keys[key]
	if ok && e.expires != 0 && e.expires <= n.clock.now() {
		delete(n.keys, key)
		return entry{}
	}
	return e
}

// fate returns what becomes of c if a test has laid it down for this node, else nil.
func (n *Node) fate(c *command) *Fate {
	for _, name := range [...]string{commandNames[c.code], ""} {
		if queue := n.next[name]; len(queue) > 0 {
			n.next[name] = queue[1:]
			return &queue[0]
		}
	}
	return n.always
}

// A clock is a node's: it runs at a rate of its own and can jump.
type clock struct {
	rate float64
	from time.Time     // when the clock was last set
	base time.Duration // what it showed then
}

func (c *clock) now() time.Duration {
	gone := time.Since(c.from)
	if c.rate != 1 {
		gone = time.Duration(float64(gone) * c.rate)
	}
	return c.base + gone
}

// in returns the reading in d from now. A clock does not go further than the longest duration.
func (c *clock) in(d time.Duration) time.Duration { return reckon.Add(c.now(), d) }

func (c *clock) set(reading time.Duration, rate float64) {
	if rate <= 0 {
		panic(fmt.Sprintf("sim: clock rate %v: must be positive", rate))
	}
	*c = clock{rate: rate, from: time.Now(), base: reading}
}
