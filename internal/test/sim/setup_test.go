package sim_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// dice gives every decision of a schedule its own random number: a hash of the seed, of what
// is decided, and of who and which. No stream is shared, so that the order in which goroutines
// run, and taking a part of the schedule away, change no other decision.
type dice uint64

func (d dice) roll(what string, n ...int64) uint64 {
	x := uint64(d) ^ uint64(digest(what))
	for _, v := range n {
		x = mix(x + uint64(v))
	}
	return mix(x)
}

// sum is an FNV-1a hash, which costs no allocation.
type sum uint64

func digest(s string) sum { return sum(14695981039346656037).and(s) }

// and returns the hash of what was hashed before and s.
func (h sum) and(s string) sum {
	for i := range len(s) {
		h = (h ^ sum(s[i])) * 1099511628211
	}
	return h
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (d dice) chance(p float64, what string, n ...int64) bool {
	return float64(d.roll(what, n...)>>11)/(1<<53) < p
}

func (d dice) below(limit int, what string, n ...int64) int {
	return int(d.roll(what, n...) % uint64(limit))
}

// between returns a duration with all its nanoseconds drawn, so that hardly ever two things happen
// at the same time.
func (d dice) between(least, most time.Duration, what string, n ...int64) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(d.roll(what, n...)%uint64(most-least))
}

// faults is a set of fault classes.
type faults uint32

const (
	slow        faults = 1 << iota // replies and requests up to twice the node timeout
	late                           // requests executed long after they were given up
	lostRequest                    // never executed
	lostReply                      // executed, never answered
	duplicate                      // executed twice
	partition                      // client and node cut off from each other, one way or both
	failing                        // error replies, before or after execution
	freeze                         // SIGSTOP of a node
	crash                          // of a node that keeps its data
	// Crash with loss of data, back after the longest expiry, or guarded.
	loss
	rates   // clocks of nodes and clients that run apart within the drift
	skew    // clocks of clients that differ by a constant
	deaf    // clients that do not look at the context
	pause   // clients that stop for longer than a lease
	cancel  // contexts that end at any time
	mute    // announcements lost or late
	abandon // holders that never unlock
	lossNow // crash with loss of data, back at once and unguarded
	jump    // of a node's clock
	fast    // a node's clock faster than the drift allows
	// Keys removed from a node that goes on running, so that no guard can know.
	flush
	lagging // a client's clock slower than the drift allows
	suspend // clients that stop, and their monotonic clocks with them
	mixed   // what is beside one lock is found beside another
	lastFault
)

// Out of the model of Redlock: these may break mutual exclusion, and must not break
// anything else.
const outOfModel = lossNow | jump | fast | flush | lagging

var faultNames = [...]string{
	"slow", "late", "lostRequest", "lostReply", "duplicate", "partition", "failing", "freeze",
	"crash", "loss",
	"rates", "skew", "deaf", "pause", "cancel", "mute", "abandon", "lossNow", "jump", "fast",
	"flush", "lagging", "suspend", "mixed",
}

func (f faults) String() string {
	var names []string
	for i, name := range faultNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}

func parseFaults(s string) (faults, error) {
	var f faults
names:
	for name := range strings.SplitSeq(s, ",") {
		if name == "none" {
			continue
		}
		for i, n := range faultNames {
			if n == name {
				f |= 1 << i
				continue names
			}
		}
		return 0, fmt.Errorf("no fault class %q", name)
	}
	return f, nil
}

// setup is a schedule: everything else follows from it.
type setup struct {
	Seed    uint64
	Faults  faults
	Edge    bool // hold to the last nanosecond
	Few     bool // faults happen to a minority of the nodes only
	Live    bool // after the faults a minority stays out of order, and everybody must get a turn
	Relay   bool // locks are handed over
	Brief   bool // many want one lock, each for a short time
	Shared  bool // some share the lock
	Nodes   int
	Clients int // processes
	Workers int // in each
	Cycles  int // of each worker

	// Op, if set, makes it a schedule of TestCancelAtEveryEvent: the context of that operation
	// ends at the event number Cancel.
	Op     string
	Cancel int
}

// newSetup draws a schedule: a subset of the allowed fault classes, and how many of
// everything there are.
func newSetup(seed uint64, allowed faults) setup {
	d := dice(seed)
	s := setup{Seed: seed, Nodes: []int{3, 3, 3, 5, 5, 5, 1, 2, 4, 6 +
		d.below(2, "six or seven")}[d.below(10, "nodes")]}
	s.Clients = 2 + d.below(3, "clients")
	s.Workers = []int{1, 1, 1, 2}[d.below(4, "workers")]
	s.Cycles = 2 + d.below(4, "cycles")
	s.Few = d.chance(0.3, "few")
	p := []float64{0, 0.15, 0.3, 0.6}[d.below(4, "swarm")]
	for i := range faultNames {
		if f := faults(1 << i); f&allowed != 0 && d.chance(p, "fault", int64(i)) {
			s.Faults |= f
		}
	}
	return s
}

func (s setup) String() string {
	text := fmt.Sprintf("seed=%d faults=%s edge=%v few=%v live=%v nodes=%d clients=%d workers=%d "+
		"cycles=%d",
		s.Seed, s.Faults, s.Edge, s.Few, s.Live, s.Nodes, s.Clients, s.Workers, s.Cycles)
	if s.Relay {
		text += " relay=true"
	}
	if s.Brief {
		text += " brief=true"
	}
	if s.Shared {
		text += " shared=true"
	}
	if s.Op != "" {
		text += fmt.Sprintf(" op=%s cancel=%d", s.Op, s.Cancel)
	}
	return text
}

// parseSetup reads what String wrote.
func parseSetup(text string) (s setup, err error) {
	for field := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(field, "=")
		n, numErr := strconv.Atoi(value)
		switch name {
		case "seed":
			s.Seed, err = strconv.ParseUint(value, 10, 64)
			numErr = nil
		case "faults":
			s.Faults, err = parseFaults(value)
			numErr = nil
		case "edge":
			s.Edge, err = strconv.ParseBool(value)
			numErr = nil
		case "few":
			s.Few, err = strconv.ParseBool(value)
			numErr = nil
		case "live":
			s.Live, err = strconv.ParseBool(value)
			numErr = nil
		case "relay":
			s.Relay, err = strconv.ParseBool(value)
			numErr = nil
		case "brief":
			s.Brief, err = strconv.ParseBool(value)
			numErr = nil
		case "shared":
			s.Shared, err = strconv.ParseBool(value)
			numErr = nil
		case "nodes":
			s.Nodes = n
		case "clients":
			s.Clients = n
		case "workers":
			s.Workers = n
		case "cycles":
			s.Cycles = n
		case "op":
			s.Op = value
			numErr = nil
		case "cancel":
			s.Cancel = n
		default:
			return s, fmt.Errorf("schedule %q: no field %q", text, name)
		}
		if err == nil {
			err = numErr
		}
		if err != nil {
			return s, fmt.Errorf("schedule %q: field %q: %w", text, field, err)
		}
	}
	return s, nil
}

func (s setup) dice() dice        { return dice(s.Seed) }
func (s setup) has(f faults) bool { return s.Faults&f != 0 }
func (s setup) inModel() bool     { return !s.has(outOfModel) }
func (s setup) quorum() int       { return s.Nodes/2 + 1 }

// blocking is how many nodes are as many as leave no quorum.
func (s setup) blocking() int { return s.Nodes - s.quorum() + 1 }

func (s setup) fencing() bool { return !s.Brief && s.dice().chance(0.6, "fencing") }
func (s setup) perName() bool { return s.dice().chance(0.3, "fence counters of their own") }

// faulty tells whether a node is one of those to which faults happen.
func (s setup) faulty(node int) bool { return !s.Few || node >= s.quorum() }

// calm tells whether a quorum of nodes always answers in time.
func (s setup) calm() bool {
	return s.inModel() && !s.has(pause|suspend) &&
		(s.Few || s.Faults&^(rates|skew|deaf|cancel|mute|abandon) == 0)
}

func (s setup) drift() time.Duration { return s.expiry()/100 + 2*time.Millisecond }
func (s setup) names() int {
	if s.Edge || s.Live {
		return 1
	}
	return 1 + s.dice().below(2, "names")
}

// pairs are keys of locks that are related, more or less.
var pairs = [][2]string{
	{"lock0", "lock1"}, {"a", "a:{a}"}, {"x{y", "{x{y}"}, {"{x", "{{x}"}, {"b", "{b}"},
	{"{c}", "{c}:{c}"}, {"d", "d:{d}:redlock"}, {"e", "e "},
}

// lockName returns the key of a lock: one that stands alone, or one of a related pair.
func (s setup) lockName(i int) string {
	if s.names() == 1 {
		return "lock0"
	}
	return pairs[s.dice().below(len(pairs), "pair")][i^s.dice().below(2, "order")]
}

func (s setup) announcing() bool { return s.Brief || s.dice().chance(0.7, "announcing") }

// faultTime is when faults end.
func (s setup) faultTime() time.Duration {
	if s.Live {
		return 4 * s.expiry()
	}
	return 12 * s.expiry()
}

// guarded tells whether lost data is guarded by WithRestartGuard; otherwise nodes stay
// down for long enough.
func (s setup) guarded() bool {
	return s.has(loss) && !s.Brief && s.dice().chance(0.5, "guarded")
}

func (s setup) expiry() time.Duration {
	if s.Edge || s.Live {
		return 300 * time.Millisecond
	}
	return []time.Duration{time.Second, 300 * time.Millisecond,
		2 * time.Second}[s.dice().below(3, "expiry")]
}

// nodeTimeout is usually small against the expiry; where it is not, replies may come after the
// lease has ended, and what is left of it has to be looked at.
func (s setup) nodeTimeout() time.Duration {
	if s.Live {
		return s.expiry() / 20
	}
	return s.expiry() * time.Duration([]int{5, 5, 20, 50,
		100}[s.dice().below(5, "node timeout")]) / 100
}
