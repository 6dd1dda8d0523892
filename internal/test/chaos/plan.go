package chaos

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// Fault is a kind of trouble.
type Fault string

// Faults that Redlock has to survive. Those with a node are alone on their node while they
// last; partitions and the workers' troubles come on top.
const (
	Freeze Fault = "freeze" // node: SIGSTOP, then SIGCONT
	Crash  Fault = "crash"  // node: SIGKILL, restart with its data
	// Node: SIGKILL, restart empty, later than any lock on it lives.
	Lose       Fault = "lose"
	LoadSlowly Fault = "load-slowly" // node: SIGKILL, restart with its data, LOADING for a while
	Slow       Fault = "slow"        // node: every command waits up to 30 ms
	OOM        Fault = "oom"         // node: writes are refused, out of memory
	Misconf    Fault = "misconf"     // node: writes are refused, a snapshot failed
	ReadOnly   Fault = "read-only"   // node: made a replica of nobody
	NoReplicas Fault = "no-replicas" // node: writes are refused for want of replicas
	Rate       Fault = "rate"        // node: the clock is off by half the drift factor
	Forget     Fault = "forget"      // node: SCRIPT FLUSH
	Hangup     Fault = "hang-up"     // node: CLIENT KILL of all connections
	CutRequest Fault = "cut-request" // worker and node: what the worker sends is dropped
	CutReply   Fault = "cut-reply"   // worker and node: what the node sends is dropped
	// Worker that holds the lock, and a majority of nodes: what it sends is dropped, past its
	// validity.
	CutOff    Fault = "cut-off"
	Pause     Fault = "pause"      // worker: SIGSTOP, past its validity, then SIGCONT
	Kill      Fault = "kill"       // worker: SIGKILL, and a new one in its place
	PauseHold Fault = "pause-hold" // as Pause, of the worker that holds the lock
	KillWait  Fault = "kill-wait"  // as Kill, of a worker that waits for the lock
	PauseWait Fault = "pause-wait" // as Pause, of a worker that waits for the lock
	Mute      Fault = "mute"       // node: nobody hears what it publishes
)

// Faults that break what Redlock is built on: two may hold the lock, and only the fence
// stands between them.
const (
	LoseAtOnce Fault = "lose-at-once" // node: SIGKILL, restart empty at once
	Flush      Fault = "flush"        // node: FLUSHALL
	Jump       Fault = "jump"         // node: the clock jumps by a whole expiry, either way
	WildRate   Fault = "wild-rate"    // node: the clock runs at half or double speed
)

var (
	nodeFaults = []Fault{
		Freeze, Crash, Lose, LoadSlowly, Slow, OOM, Misconf, ReadOnly, NoReplicas, Rate, Forget,
		Hangup, Mute,
	}
	cutFaults    = []Fault{CutRequest, CutReply, CutOff}
	workerFaults = []Fault{Pause, Kill, PauseHold, KillWait, PauseWait}
	wildFaults   = []Fault{LoseAtOnce, Flush, Jump, WildRate}

	// Survivable are the faults under which everything must hold.
	Survivable = slices.Concat(nodeFaults, cutFaults, workerFaults)
	// Wild are the faults that break the lock but never the fence, among cuts that make
	// that likely.
	Wild = slices.Concat(wildFaults, cutFaults)
)

// Step is one fault, from At to At+For after the beginning of the round.
type Step struct {
	At, For      time.Duration
	Fault        Fault
	Node, Worker int // -1 where it has none
}

func (s Step) String() string {
	return fmt.Sprintf("%v+%v %s node %d worker %d", s.At, s.For, s.Fault, s.Node, s.Worker)
}

// Plan draws the steps of a round, in order of time. The same arguments give the same plan. No
// fault comes again before all others have come. On average two or three faults are on at any
// time, so that they meet: a partition and a crash of the node that two quorums share is what
// breaks locks. A step never reaches beyond the end of the round.
func Plan(seed uint64, round, expiry time.Duration, nodes, workers int, faults []Fault) []Step {
	name := fnv.New64a()
	_, _ = fmt.Fprint(name, faults)
	rnd := rand.New(rand.NewPCG(seed, name.Sum64()))
	span := func(lo, hi time.Duration) time.Duration {
		return lo +
			time.Duration(rnd.Int64N(int64(hi-lo)))
	}

	busyNode := make([]time.Duration, nodes) // until when
	busyWorker := make([]time.Duration, workers)
	busyCut := map[Step]time.Duration{} // by fault, node and worker
	var steps []Step
	var deck []Fault // what is to come before they are shuffled again
	for at := time.Duration(0); len(faults) > 0; {
		at += span(expiry/8, 3*expiry/4)
		if len(deck) == 0 {
			deck = slices.Clone(faults)
			rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		s := Step{At: at, For: span(expiry/4, 2*expiry), Fault: deck[0], Node: -1, Worker: -1}
		if slices.Contains([]Fault{Pause, PauseHold, PauseWait, Lose, CutOff}, s.Fault) {
			s.For = span(expiry+expiry/10, 2*expiry)
		}
		node, worker := rnd.IntN(nodes), rnd.IntN(workers)
		if s.At+s.For > round {
			break
		}
		if !slices.Contains(workerFaults, s.Fault) {
			s.Node = node
		}
		if slices.Contains(workerFaults, s.Fault) || slices.Contains(cutFaults, s.Fault) {
			s.Worker = worker
		}
		// What is in trouble already is left alone; the fault comes a little later, and perhaps
		// elsewhere.
		var busy *time.Duration
		cut := Step{Fault: s.Fault, Node: node, Worker: worker}
		until := busyCut[cut]
		switch {
		case s.Node >= 0 && s.Worker >= 0:
			busy = &until
		case s.Node >= 0:
			busy = &busyNode[node]
		default:
			busy = &busyWorker[worker]
		}
		if *busy > s.At {
			continue
		}
		*busy = s.At + s.For
		busyCut[cut] = until
		steps = append(steps, s)
		deck = deck[1:]
	}
	return steps
}
