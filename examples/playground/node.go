package main

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// node is a Redis node in memory. Processes reach it through a listener of its own, on which the
// node can be stopped, frozen, slowed, and cut off from some of them.
type node struct {
	mini     *miniredis.Miniredis
	listener net.Listener
	since    atomic.Int64 // when it was started, in Unix seconds
	served   sync.WaitGroup

	mu      sync.Mutex // guards what follows; is not held while the node works
	changed chan struct{}
	links   map[*link]bool
	closed  bool
	nodeState
}

// nodeState is what the visitor has done to a node.
type nodeState struct {
	Up     bool            `json:"up"`
	Frozen bool            `json:"frozen"`
	Delay  time.Duration   `json:"delay"` // of each command and its reply together
	Ahead  time.Duration   `json:"ahead"` // of the clock
	Cut    map[string]bool `json:"cut"`   // the processes that do not reach it
}

// aDay is how long nodes have been up when the playground begins.
const aDay = 24 * time.Hour

func newNode() (*node, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &node{mini: miniredis.NewMiniRedis(), listener: listener, links: map[*link]bool{},
		changed: make(chan struct{}), nodeState: nodeState{Up: true, Cut: map[string]bool{}}}
	n.mini.ClockTTL(true) // otherwise keys expire only when told to
	n.since.Store(time.Now().Add(-aDay).Unix())
	first, err := n.mini.Dial() // which starts it
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	_ = first.Close()
	n.mini.Server().SetPreHook(n.info)
	n.served.Go(n.serve)
	return n, nil
}

// info answers INFO, of which miniredis does not know the section that the restart guard reads.
func (n *node) info(c *server.Peer, cmd string, args ...string) bool {
	if cmd != "INFO" {
		return false
	}
	c.WriteBulk(fmt.Sprintf("# Server\r\nuptime_in_seconds:%d\r\n", n.uptime()))
	return true
}

func (n *node) uptime() int64 { return time.Now().Unix() - n.since.Load() }

// serve connects processes with the node. The first line that they send is their name.
func (n *node) serve() {
	for {
		conn, err := n.listener.Accept()
		if err != nil {
			return
		}
		n.served.Go(func() {
			r := bufio.NewReader(conn)
			name, err := r.ReadString('\n')
			if err != nil {
				_ = conn.Close()
				return
			}
			n.connect(&link{node: n, process: strings.TrimSpace(name), client: conn, from: r})
		})
	}
}

func (n *node) connect(l *link) {
	var err error
	n.mu.Lock()
	if n.Up && !n.closed {
		if l.server, err = n.mini.Dial(); err == nil {
			n.links[l] = true
		}
	}
	n.mu.Unlock()
	if l.server == nil {
		l.reset()
		return
	}
	l.run()
	n.mu.Lock()
	delete(n.links, l)
	n.mu.Unlock()
}

// change changes the state of the node, and lets the links look at it.
func (n *node) change(f func(s *nodeState)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.nodeState)
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) state() nodeState {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.nodeState
	s.Cut = maps.Clone(s.Cut)
	return s
}

// stop breaks all connections, and no others come about.
func (n *node) stop() {
	n.change(func(s *nodeState) {
		s.Up, s.Frozen = false, false
		for l := range n.links {
			l.reset()
		}
	})
}

// start starts a node that is stopped, or restarts it.
func (n *node) start(empty bool) {
	n.stop()
	if empty {
		n.mini.FlushAll()
	}
	n.since.Store(time.Now().Unix())
	n.change(func(s *nodeState) { s.Up = true })
}

func (n *node) freeze(on bool) { n.change(func(s *nodeState) { s.Frozen = on }) }

func (n *node) slow(d time.Duration) { n.change(func(s *nodeState) { s.Delay = d }) }

// advance moves the clock ahead.
func (n *node) advance(d time.Duration) {
	n.change(func(s *nodeState) { s.Ahead += d })
	n.tick()
}

// tick tells the node the time, if its clock is wrong.
func (n *node) tick() {
	if ahead := n.state().Ahead; ahead != 0 {
		n.mini.SetTime(time.Now().Add(ahead))
	}
}

func (n *node) cut(process string, on bool) {
	n.change(func(s *nodeState) { s.Cut[process] = on })
}

// queue returns how many processes wait for a lock in the node's queue.
func (n *node) queue(name string) int {
	members, _ := n.mini.ZMembers(name + ":{" + name + "}:redlock:queue")
	return len(members)
}

// fence returns the greatest of the node's fence counters.
func (n *node) fence() string {
	var counters []string
	for _, key := range n.mini.Keys() {
		if strings.HasPrefix(key, "redlock:fence:") {
			value, _ := n.mini.Get(key)
			counters = append(counters, fmt.Sprintf("%16s", value))
		}
	}
	if counters == nil {
		return ""
	}
	return strings.TrimSpace(slices.Max(counters))
}

func (n *node) close() {
	_ = n.listener.Close()
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.stop()
	n.served.Wait()
	n.mini.Close()
}
