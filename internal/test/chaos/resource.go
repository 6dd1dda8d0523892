package chaos

import (
	"encoding/json"
	"errors"
	"net"
	"sync"
)

// Resource is what the workers' lock protects: three numbers. One is behind a fence, and claimed by
// the read. One is behind a fence that only the writes meet. One is behind none. It is served on a
// socket of the local machine.
type Resource struct {
	history *History
	l       net.Listener
	conns   sync.WaitGroup

	mu     sync.Mutex
	state  Tally
	plain  int64
	fenced int64
	fence  uint64 // the highest token seen
	late   int64
	lateBy uint64 // the highest token written with
	last   int    // the worker that read last
	parcel string // a lock that was handed off, "" if none is there
	sender int    // of the parcel
}

// Tally says what happened to a Resource.
type Tally struct {
	Fenced     int // accepted writes behind the fence
	FencedLost int // of those, updates that were lost
	Refused    int // reads and writes that showed a stale token
	Late       int // accepted writes behind the fence that reads do not meet
	LateLost   int // of those, updates that were lost
	Plain      int // writes without a fence
	Lost       int // of those, updates that were lost
}

// request is one line that a worker sends. Token 0 means the number without a fence; Late the one
// whose fence the reads do not meet.
type request struct {
	Op     Op
	Late   bool
	Shared bool // by a reader, whose token claims nothing
	Worker int
	Grant  string
	Token  uint64
	Value  int64
	Parcel string // of a Post
}

// What workers ask of the resource for each other: it keeps one lock that was handed off, for
// another than the one who did.
const (
	post  Op = "post"
	fetch Op = "fetch"
)

type reply struct {
	OK     bool
	Value  int64
	Parcel string // of a fetch
}

// NewResource serves a resource on the Unix socket path until Close, and writes what happens to the
// number behind the fence to the history.
func NewResource(path string, h *History) (*Resource, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	r := &Resource{history: h, l: l, last: -1}
	r.conns.Go(r.accept)
	return r, nil
}

func (r *Resource) accept() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return // closed
		}
		r.conns.Go(func() { r.serve(c) })
	}
}

// serve answers one worker until it hangs up, which its death does as well.
func (r *Resource) serve(c net.Conn) {
	defer c.Close()
	in, out := json.NewDecoder(c), json.NewEncoder(c)
	for {
		var req request
		if in.Decode(&req) != nil || out.Encode(r.access(req)) != nil {
			return
		}
	}
}

// access executes one request.
func (r *Resource) access(req request) reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch req.Op {
	case Read:
		r.last = req.Worker
	case post:
		r.parcel, r.sender = req.Parcel, req.Worker
		return reply{OK: true}
	case fetch:
		rep := reply{OK: true}
		if r.sender != req.Worker {
			rep.Parcel, r.parcel = r.parcel, ""
		}
		return rep
	}
	if req.Late {
		if req.Op == Write {
			if req.Token < r.lateBy {
				return reply{Value: r.late}
			}
			r.state.Late++
			r.late, r.lateBy = req.Value, req.Token
		}
		return reply{OK: true, Value: r.late}
	}
	if req.Token == 0 {
		if req.Op == Write {
			r.state.Plain++
			r.plain = req.Value
		}
		return reply{OK: true, Value: r.plain}
	}
	ok := req.Token >= r.fence
	if ok {
		if !req.Shared {
			r.fence = req.Token
		}
		if req.Op == Write {
			r.state.Fenced++
			r.fenced = req.Value
		}
	} else {
		r.state.Refused++
	}
	now := Now()
	r.history.Add(Event{Op: req.Op, Worker: req.Worker, Grant: req.Grant, Call: now, Return: now,
		OK: ok, Token: req.Token, Value: r.fenced, Shared: req.Shared})
	return reply{OK: ok, Value: r.fenced}
}

// Holder returns the worker that read last, which probably still holds the lock; -1 before any did.
func (r *Resource) Holder() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Tally returns what happened so far.
func (r *Resource) Tally() Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.state
	t.FencedLost = t.Fenced - int(r.fenced)
	t.LateLost = t.Late - int(r.late)
	t.Lost = t.Plain - int(r.plain)
	return t
}

// Close stops serving and waits for the workers' connections to end.
func (r *Resource) Close() error {
	err := r.l.Close()
	r.conns.Wait()
	return err
}

// errStale is what a worker learns when its token is too old.
var errStale = errors.New("the resource has seen a newer token")

// resourceClient is a worker's end of the socket.
type resourceClient struct {
	c   net.Conn
	in  *json.Decoder
	out *json.Encoder
}

func dialResource(path string) (*resourceClient, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &resourceClient{c, json.NewDecoder(c), json.NewEncoder(c)}, nil
}

func (c *resourceClient) do(req request) (int64, error) {
	rep, err := c.ask(req)
	if err == nil && !rep.OK {
		err = errStale
	}
	return rep.Value, err
}

func (c *resourceClient) ask(req request) (rep reply, err error) {
	if err = c.out.Encode(req); err == nil {
		err = c.in.Decode(&rep)
	}
	return rep, err
}
