package sim

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Effect is what a command changed on its node.
type Effect uint8

// What a command can change.
const (
	None     Effect = iota // nothing
	Granted                // the key was free and holds the command's value now
	Deleted                // the key held the value and is gone
	Extended               // the key held the value and lives longer
	Raised                 // the fence counter went up
)

func (e Effect) String() string {
	return [...]string{"none", "granted", "deleted", "extended", "raised"}[e]
}

// Event is one command executed by a node.
type Event struct {
	At      time.Time
	Node    int
	Client  string
	Command string
	Key     string
	Value   string // the value that the command carried
	Member  string // of the queue
	Final   bool   // the member has agreed on its ticket
	Back    bool   // the member returns what it was granted, and goes back to its place
	Waits   bool   // the member is in the queue now
	// What the key held before, and what it holds now. While readers have the key, it holds the
	// value of each for that one, and nothing for a reader without a seat.
	Before, After string
	Beside        [5]string // keys beside the lock's: queue, bid, roll, last ticket, seats
	Shared        bool      // readers have the key now
	Short         bool      // the key ends before the seat of a reader
	Effect        Effect
	Reply         any
	Err           error
}

func (e Event) String() string {
	return fmt.Sprintf("%s node %d %s: %s %q %q (was %q): %v %v, %s", e.At.Format("05.000000000"),
		e.Node, e.Client, e.Command, e.Key, e.Value, e.Before, e.Reply, e.Err, e.Effect)
}

// Log is the list of all commands that nodes have executed, in order over all of them. It is
// safe for concurrent use.
type Log struct {
	used atomic.Bool // whether anybody wants events

	mu     sync.Mutex
	on     bool
	events []Event
	watch  func(Event)
}

func (l *Log) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = true
	l.used.Store(true)
}

// Watch calls fn with every event, from now on, before its reply is sent. fn is called for one
// event at a time and must not call into nodes or the log.
func (l *Log) Watch(fn func(Event)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = fn
	l.used.Store(true)
}

// Events returns a copy of what has been recorded.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Event(nil), l.events...)
}

func (l *Log) add(e Event) {
	if !l.used.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.At = time.Now()
	if l.on {
		l.events = append(l.events, e)
	}
	if l.watch != nil {
		l.watch(e)
	}
}
