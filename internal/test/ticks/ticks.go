// Package ticks tests that a job which each replica of a program starts every second runs once.
package ticks

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// Replica is a process that starts the job every second.
type Replica struct {
	Locks *redlock.Redlock
	Late  time.Duration // by how much its clock is behind: it starts the job so much later
	Work  func()        // the job
}

// Period is how long after each other a replica starts the job. The first time is when so much has
// passed since [Once] called its function.
const Period = time.Second

const (
	count = 20                     // ticks
	trip  = 100 * time.Microsecond // to a node, and back again
	apart = 300 * time.Millisecond // clocks, at most
)

// situation is what may prevent that a job runs once in a tick.
type situation struct {
	late  bool                        // the replicas' clocks differ
	node  func(n *sim.Node)           // befalls one of three nodes
	split func(replicas int) sim.Fate // of that node at the first tick, on which the vote is split
}

// Once starts replicas in virtual time, by a function that must not block, and lets them run for
// twenty ticks. Exactly one of them must run the job at each tick.
func Once(t *testing.T, start func(t *testing.T, r Replica) (stop func())) {
	for _, replicas := range []int{2, 5} {
		for _, work := range []time.Duration{1, 20, 300, 900} {
			work *= time.Millisecond
			for name, s := range map[string]situation{
				"one clock":        {},
				"clocks differ":    {late: true},
				"a node is down":   {node: (*sim.Node).Crash},
				"a node is frozen": {node: (*sim.Node).Freeze},
				"a split vote":     {split: lastVote},
			} {
				t.Run(fmt.Sprintf("%d replicas, %v, %s", replicas, work, name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { once(t, replicas, work, s, start) })
				})
			}
		}
	}
}

// lastVote is what the third node does with the first commands of so many replicas: two can only
// split the vote if it gives none.
func lastVote(replicas int) sim.Fate {
	if replicas == 2 {
		return sim.Fail(fmt.Errorf("ticks: no vote"))
	}
	return sim.Fate{}
}

func once(
	t *testing.T, replicas int, work time.Duration, s situation,
	start func(t *testing.T, r Replica) (stop func()),
) {
	nodes := sim.NewNodes(3)
	if s.node != nil {
		s.node(nodes[2])
	}
	began := time.Now()
	var mu sync.Mutex
	runs := map[time.Duration]int{} // by tick
	var all []*redlock.Redlock
	var stops []func()
	for i := range replicas {
		pools := nodes.Pools(fmt.Sprint(i))
		for _, p := range pools {
			p.(*sim.Link).Plan(func(op sim.Op) sim.Fate {
				f := sim.Slow(trip)
				if s.split != nil && time.Since(began) < Period+trip {
					if op.Node == 2 {
						f = s.split(replicas)
					}
					f.Request = trip * time.Duration(1+(op.Node-i+replicas)%len(nodes))
				}
				return f
			})
		}
		r := Replica{Locks: redlock.New(pools...)}
		if s.late {
			r.Late = apart * time.Duration(i) / time.Duration(replicas-1)
		}
		r.Work = func() {
			tick := (time.Since(began) - r.Late) / Period
			if tick > count { // a scheduler that waits for a job may spin, and time stands still
				return
			}
			mu.Lock()
			runs[tick]++
			mu.Unlock()
			time.Sleep(work)
		}
		all = append(all, r.Locks)
		stops = append(stops, start(t, r))
	}
	time.Sleep(time.Until(began.Add((count+2)*Period - trip)))
	for _, stop := range stops {
		stop()
	}
	nodes.Close()
	for _, rl := range all {
		require.NoError(t, rl.CloseContext(context.Background()))
	}
	for tick := range time.Duration(count) {
		assert.Equal(t, 1, runs[tick+1], "at tick %d", tick+1)
	}
	assert.Len(t, runs, count)
}
