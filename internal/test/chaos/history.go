package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// Op is what an Event tells of.
type Op string

// The workers write Lock, Extend, Lost, Leave and Unlock, and candidates Elected and Leads; the
// resource writes Read and Write as it executes them.
const (
	Lock   Op = "lock"
	Extend Op = "extend"
	Lost   Op = "lost"  // a held context ended
	Leave  Op = "leave" // about to be unlocked; a worker that is killed in Unlock tells no more
	Unlock Op = "unlock"
	// A candidate was elected between call and return; it said between them that it leads.
	Elected Op = "elected"
	Leads   Op = "leads"
	Read    Op = "read"
	Write   Op = "write"
)

// Event is one line of the history. Times are nanoseconds of CLOCK_MONOTONIC.
type Event struct {
	Op     Op  `json:"op"`
	Worker int `json:"worker"`
	// Grant is which hold, unique in the history, or of a Leads which process.
	Grant string `json:"grant,omitempty"`
	// Name is that of the lock, if there are several, and Shared whether readers have it.
	Name   string `json:"name,omitempty"`
	Shared bool   `json:"shared,omitempty"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
	// OK: locked, extended, unlocked, accepted by the fence, or lost with the cause ErrLost.
	OK bool `json:"ok"`
	// Adopted: the Lock is of a lock that another worker, or this one, has handed off.
	Adopted bool `json:"adopted,omitempty"`
	// Until is how long the lock may be trusted, after Lock and Extend, or could be, before Lost.
	Until int64 `json:"until,omitempty"`
	// Token is the fencing token of a Lock, the term of an Elected and a Leads, and the one shown
	// on Read and Write.
	Token uint64 `json:"token,omitempty"`
	// Value is what was read or written. Of a Lost it is how often the worker has looked after
	// Until, and the held context had not ended.
	Value int64  `json:"value,omitempty"`
	Err   string `json:"err,omitempty"`
}

// granted reports whether a worker was granted the lock, or elected.
func (e Event) granted() bool { return e.Op == Lock && e.OK || e.Op == Elected }

// Now reads the clock of the history, the same one in every process.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("chaos: CLOCK_MONOTONIC: " + err.Error()) // every Unix has it
	}
	return t.Nano()
}

// History collects events from many goroutines and writes each as a line of
// JSON at once, so that a killed process loses none that it has told.
type History struct {
	mu     sync.Mutex
	w      io.Writer
	events []Event
	err    error
}

// NewHistory returns an empty history that is written to w as well.
func NewHistory(w io.Writer) *History { return &History{w: w} }

// Add appends an event.
func (h *History) Add(e Event) {
	line, err := json.Marshal(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		_, err = h.w.Write(append(line, '\n'))
	}
	if err != nil && h.err == nil {
		h.err = err
	}
	h.events = append(h.events, e)
}

// Events returns what was added so far, and the first error in writing it.
func (h *History) Events() ([]Event, error) { return h.Since(0) }

// Since is Events without the first n.
func (h *History) Since(n int) ([]Event, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Event(nil), h.events[n:]...), h.err
}

// ReadHistory adds the events in r until it ends.
func (h *History) ReadHistory(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("chaos: history line %q: %w", lines.Text(), err)
		}
		h.Add(e)
	}
	return lines.Err()
}
