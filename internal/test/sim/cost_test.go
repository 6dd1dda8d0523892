package sim_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// commands is what a command costs its node, with those inside a script.
func commands(e sim.Event) int {
	switch e.Command {
	case "subscribe":
		return 2 // and UNSUBSCRIBE
	case "release":
		switch {
		case e.Reply == int64(2):
			return 8 // GET, GET or PTTL, ZPOPMIN, PUBLISH, SET, ZRANGEBYSCORE, PUBLISH
		case e.Member == "":
			return 4 // GET, PTTL, DEL
		}
		return 5 // GET, GET, ZPOPMIN, DEL; or GET, GET, ZREM, PTTL
	case "bid":
		if e.Effect == sim.Granted {
			return 0 // by a release
		}
		return 2
	case "claim":
		return 3 // GET, SET
	case "stand":
		return 8 // GET, GET, SET, ZADD, PEXPIRE, ZRANK, PTTL, which is for the first alone
	default:
		return 1
	}
}

// lesson L51: what a turn costs does not depend on how many processes wait. They come once, all
// at the same time, or come back again and again.
func TestTheCostOfATurnDoesNotGrow(t *testing.T) {
	const n, hold = 5, 5 * time.Millisecond
	for _, again := range []int{1, min(2+*times, 5)} {
		costs := map[int]float64{}
		for _, p := range []int{1, 4, 16, 64, 256} {
			sent, turns := 0, 0
			for seed := range uint64(max(1, 16**times/p)) {
				synctest.Test(t, func(t *testing.T) {
					d, start, nodes := dice(seed), time.Now(), sim.NewNodes(n)
					nodes.Log().Watch(func(e sim.Event) { sent += commands(e) })
					var all sync.WaitGroup
					var mu sync.Mutex // guards turns
					for c := range p {
						pools := nodes.Pools(fmt.Sprintf("p%d", c))
						for i, pl := range pools {
							pl.(*sim.Link).Plan(farAway(d, c, i, 250*time.Microsecond, start))
						}
						rl := redlock.New(pools...)
						m := rl.NewMutex("k", redlock.WithTries(redlock.Unlimited))
						all.Go(func() {
							defer rl.Close()
							time.Sleep(d.between(0, time.Duration(p)*50*time.Microsecond, "idle",
								int64(c)))
							for range again {
								assert.NoError(t, m.LockContext(context.Background()))
								time.Sleep(hold)
								_, err := m.Unlock()
								assert.NoError(t, err)
								mu.Lock()
								turns++
								mu.Unlock()
							}
						})
					}
					all.Wait()
					nodes.Close()
				})
			}
			costs[p] = float64(sent) / float64(turns)
			t.Logf("%d processes, %d times each: %.0f commands a turn", p, again, costs[p])
		}
		assert.Equal(t, 5.0*n, costs[1], "alone")
		assert.LessOrEqual(t, costs[256], 150.0)
		assert.LessOrEqual(t, costs[256], 1.2*costs[64])
	}
}
