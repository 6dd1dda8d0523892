package sim

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// However they come onto the agenda, events of one moment happen in their order, one at a time:
// each when all that follows from the one before has happened.
func TestAnAgendaIsKeptInOrder(t *testing.T) {
	const events = 100
	synctest.Test(t, func(t *testing.T) {
		var a agenda
		var adding, following sync.WaitGroup
		start := time.Now()
		var begun, over atomic.Int64
		for _, i := range rand.Perm(events) {
			adding.Go(func() {
				a.add(time.Second, uint64(i), func() {
					assert.EqualValues(t, i, begun.Load())
					assert.EqualValues(t, i, over.Load())
					assert.Equal(t, time.Second+time.Duration(i), time.Since(start))
					begun.Add(1)
					following.Go(func() { over.Add(1) })
				})
			})
		}
		adding.Wait()
		time.Sleep(2 * time.Second)
		following.Wait()
		assert.EqualValues(t, events, over.Load())
	})
}

// What comes onto the agenda for an earlier moment happens then, and what is taken off does not.
func TestAnAgendaChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agenda
		var mu sync.Mutex // guards did
		var did []time.Duration
		start := time.Now()
		note := func() {
			mu.Lock()
			defer mu.Unlock()
			did = append(did, time.Since(start))
		}
		all := make([]*event, 10)
		for i, e := range slices.Backward(all) {
			e = a.add(time.Duration(i+1)*time.Second, 1, note)
			all[i] = e
		}
		for _, e := range all[:5] {
			a.remove(e)
		}
		time.Sleep(7500 * time.Millisecond)
		a.remove(all[6]) // over
		a.remove(all[8])
		a.add(time.Second/2, 0, note) // before the eighth
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []time.Duration{6 * time.Second, 7 * time.Second, 8 * time.Second,
			8*time.Second + 1, 10 * time.Second}, did)
		assert.Empty(t, a.events)
	})
}
