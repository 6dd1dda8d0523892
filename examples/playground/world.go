package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// world is five nodes, some processes, and what their locks protect.
type world struct {
	settings
	pace      pace
	nodes     []*node
	processes []*process
	resource  *resource
	begun     time.Time
	observer  *redlock.Redlock // which no fault of a node touches
	clients   []*redis.Client  // of the observer

	mu     sync.Mutex // guards what follows
	lines  []string   // what has happened, the oldest first
	first  int        // the number of the first of these
	grants []string   // the processes that were granted locks, in order
	seen   []*redlock.Inspection
	play
}

// settings are what the visitor chooses.
type settings struct {
	What    string `json:"what"` // a kind of jobs, or readers
	Fencing bool   `json:"fencing"`
	Guard   bool   `json:"guard"`
}

// readers are a mutex that some processes share.
const readers = "readers"

// play is how far a story has come.
type play struct {
	Story    string `json:"story"`
	Says     string `json:"says"`
	Sentence string `json:"sentence"`
	Failed   bool   `json:"failed"` // the sentence is not what was expected
}

// pace is how fast everything goes.
type pace struct{ expiry, work, write, rest, beat time.Duration }

var (
	forEyes = pace{expiry: 4 * time.Second, work: 900 * time.Millisecond,
		write: 500 * time.Millisecond, rest: 400 * time.Millisecond, beat: 2 * time.Second}
	forTests = pace{expiry: 2 * time.Second, work: 30 * time.Millisecond,
		write: 5 * time.Millisecond, rest: 5 * time.Millisecond}
)

var people = []string{"Ada", "Barbara", "Carol", "Dorothy", "Edith", "Frances", "Grace", "Hedy",
	"Jean", "Radia"}

const nodeCount = 5

// newWorld starts nodes, and the processes with these names, which have nothing to do yet.
func newWorld(s settings, p pace, names ...string) (*world, error) {
	w := &world{settings: s, pace: p, resource: newResource(s.Fencing), begun: time.Now()}
	var addrs []string
	var pools []pool.Pool
	for range nodeCount {
		n, err := newNode()
		if err != nil {
			w.close()
			return nil, err
		}
		w.nodes = append(w.nodes, n)
		addrs = append(addrs, n.listener.Addr().String())
		client := redis.NewClient(&redis.Options{
			Addr: addrs[len(addrs)-1], // a name only
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				return n.mini.Dial()
			},
		})
		w.clients = append(w.clients, client)
		pools = append(pools, goredis.NewPool(client))
	}
	w.observer = redlock.New(pools...)
	for _, name := range names {
		p, err := startProcess(w, name, addrs)
		if err != nil {
			w.close()
			return nil, err
		}
		w.processes = append(w.processes, p)
	}
	return w, nil
}

// close ends everything.
func (w *world) close() {
	for _, p := range w.processes {
		p.kill()
	}
	if w.observer != nil {
		_ = w.observer.Close()
	}
	for _, c := range w.clients {
		_ = c.Close()
	}
	for _, n := range w.nodes {
		n.close()
	}
}

// process returns the process of that name, or nil.
func (w *world) process(name string) *process {
	i := slices.IndexFunc(w.processes, func(p *process) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return w.processes[i]
}

// locks are the names of the locks in this world.
func (w *world) locks() []string {
	switch w.What {
	case slots:
		return redlock.Slots("slot", 8)
	case names:
		return []string{"alice", "bob", "carol", "dave"}
	default:
		return []string{"stock"}
	}
}

// job is what the process with that number does in this world.
func (w *world) job(i int) Job {
	j := Job{Kind: w.What, Names: w.locks(), Fencing: w.Fencing, Guard: w.Guard,
		Expiry: w.pace.expiry, Work: w.pace.work, Write: w.pace.write, Rest: w.pace.rest}
	switch w.What {
	case names: // two of them
		i := rand.IntN(len(j.Names) - 1)
		j.Names = j.Names[i : i+2]
	case readers:
		j.Kind, j.Reads = mutex, i < 3
	}
	return j
}

// runFreely lets all processes work until the world ends.
func (w *world) runFreely() {
	for i, p := range w.processes {
		p.work(w.job(i), -1)
	}
}

// log tells what has happened.
func (w *world) log(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%.1f s: ", time.Since(w.begun).Seconds()) + fmt.Sprintf(format, args...)
	w.lines = append(w.lines, line)
	if len(w.lines) > memory {
		w.lines, w.first = w.lines[1:], w.first+1
	}
}

// granted notes who was granted a lock.
func (w *world) granted(process string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants = append(w.grants, process)
}

func (w *world) granteds() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.grants)
}

// tell changes how far the story has come.
func (w *world) tell(f func(p *play)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.play)
}

// observe looks again and again at what the nodes have, until ctx ends.
func (w *world) observe(ctx context.Context) {
	for ctx.Err() == nil {
		var seen []*redlock.Inspection
		for _, n := range w.nodes {
			n.tick()
		}
		for _, name := range w.locks() {
			if in, err := w.observer.Inspect(ctx, name); err == nil {
				seen = append(seen, in)
			}
		}
		w.mu.Lock()
		w.seen = seen
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(frame):
		}
	}
}

// owner is whose a value is: redlock.WithOwner has written the name in front of it.
func owner(value string) string {
	name, _, _ := strings.Cut(value, ":")
	return name
}
