package sim_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

var breakdowns = [...]string{"down for good", "frozen for good", "hung for good", "silent for good",
	"slow for good"}

// breakDown puts a minority of the nodes out of order for good, each in a way of its own.
func (w *world) breakDown() {
	for i := w.quorum(); i < w.Nodes; i++ {
		n := w.nodes[i]
		kind := w.dice().below(len(breakdowns), "break down", int64(i))
		w.reached(breakdowns[kind])
		switch kind {
		case 0:
			n.Crash()
		case 1:
			n.Freeze()
		case 2:
			n.Always(sim.Hang())
		case 3:
			n.Always(sim.LoseReply())
		case 4:
			n.Always(sim.Slow(2 * w.nodeTimeout()))
		}
	}
}

// turn is how long a worker holds the lock in a liveness schedule, at most.
const turn = 5 * time.Millisecond

// live locks and unlocks until the faults are over, and then once more.
func (w *worker) live() {
	m := w.rl.NewMutex(w.lockName(0), redlock.WithGenValueFunc(w.gen))
	w.sleep(w.between(0, w.faultTime(), "idle"))
	for {
		w.try++
		last := w.now() >= w.faultTime()
		if err := m.LockContext(context.Background()); err != nil {
			w.violate("I9 liveness", "%s: Lock: %v", w, err)
			return
		}
		served := w.now()
		l := w.begin(w.String(), m.Name(), m.Value(), m.FencingToken(), w.clock.truly(m.Until()))
		w.sleep(w.between(0, turn, "turn"))
		l.end(w.now())
		if _, err := m.UnlockContext(context.Background()); err != nil {
			w.reached("unlock failed")
			m = w.rl.NewMutex(w.lockName(0), redlock.WithGenValueFunc(w.gen))
		}
		w.end(l.value)
		if wait := served - w.faultTime(); wait > 0 {
			w.history.mu.Lock()
			w.waited = max(w.waited, wait)
			w.history.mu.Unlock()
			if wait > w.patience() {
				w.violate("I9 liveness", "%s was served %v after the faults had ended, not "+
					"within %v", w, wait, w.patience())
			}
		}
		if last {
			return
		}
		w.sleep(w.between(0, w.expiry()/2, "idle", 1))
	}
}

// patience is how long after the end of the faults everybody has had a turn: when what was left
// behind has expired and all have come to hear of it, each turn takes a hold and some round
// trips, and, because the broken nodes leave no vote to spare, now and then a split vote.
func (w *world) patience() time.Duration {
	turns := time.Duration(w.Clients * w.Workers)
	if w.has(mute) {
		// Whose turn it is must ask to know that; each asks after a retry delay and a tenth for
		// each before it.
		return w.expiry() + turns*(turn+4*w.nodeTimeout()+w.expiry()/10+turns*w.expiry()/100)
	}
	return w.expiry() + 4*w.expiry()/10 + turns*(turn+4*w.nodeTimeout())
}

// Once the faults are over, or have settled on a minority of the nodes, everybody gets a turn,
// also if no announcement ever arrives.
func TestEverybodyGetsATurn(t *testing.T) {
	r := campaign(t, 25, func(seed uint64) setup {
		s := newSetup(seed, slow|lostRequest|lostReply|duplicate|partition|failing|freeze|crash|
			rates|deaf|mute)
		s.Live, s.Few, s.Workers = true, false, 1
		s.Clients = 2 + dice(seed).below(9, "many clients")
		s.Brief = dice(seed).chance(0.4, "brief")
		return s
	}, nil)
	t.Logf("longest wait %v", r.waited)
	assert.NotZero(t, r.waited)
	r.saw(t, breakdowns[:]...)
	r.saw(t, "announcement", "bid taken up", "node %d freezes", "node %d crashes")
	r.sawStrike(t, slow|lostRequest|lostReply|duplicate|partition|failing|deaf|mute)
}

// One hung node of five, and contenders who each get hold of two of the others while they wait
// for its vote: nobody was granted the lock for minutes, before an attempt that had been refused
// somewhere gave up waiting. Seed 203 of TestEverybodyGetsATurn.
func TestContentionBesideAHungNode(t *testing.T) {
	const hold, contenders = 10 * time.Millisecond, 8
	last := 5 * time.Second * time.Duration(*times)
	for _, hung := range []int{0, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			nodes := sim.NewNodes(5)
			for _, n := range nodes[5-hung:] {
				n.Always(sim.Hang())
			}
			var waits [contenders]time.Duration // longest
			var turns atomic.Int64
			var all sync.WaitGroup
			for c := range contenders {
				d := dice(c)
				pools := nodes.Pools(strconv.Itoa(c))
				for i, p := range pools {
					p.(*sim.Link).Plan(func(sim.Op) sim.Fate {
						now := int64(time.Since(start))
						return sim.Fate{
							Request: d.between(50*time.Microsecond, 300*time.Microsecond, "request",
								int64(i), now),
							Reply: d.between(50*time.Microsecond, 300*time.Microsecond, "reply",
								int64(i), now),
						}
					})
				}
				rl := redlock.New(pools...)
				m := rl.NewMutex("k", redlock.WithTries(redlock.Unlimited))
				all.Go(func() {
					defer rl.Close()
					for time.Since(start) < last {
						asked := time.Now()
						ctx, stop := context.WithDeadline(t.Context(),
							start.Add(last+5*time.Second))
						err := m.LockContext(ctx)
						stop()
						waits[c] = max(waits[c], time.Since(asked))
						if err != nil {
							return
						}
						turns.Add(1)
						time.Sleep(hold)
						_, err = m.Unlock()
						assert.NoError(t, err)
					}
				})
			}
			all.Wait()
			nodes.Close()
			longest := slices.Max(waits[:])
			t.Logf("%d hung: %.0f turns/s, longest wait %v", hung,
				float64(turns.Load())/last.Seconds(), longest)
			// A wait for a hung node alone would take a node timeout, 400 ms.
			assert.Less(t, longest, 2*contenders*(hold+time.Millisecond))
			assert.Greater(t, turns.Load(),
				int64(0.85*float64(last/(hold+time.Millisecond))))
		})
	}
}
