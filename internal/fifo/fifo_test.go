package fifo

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func atHead(p *Place) bool {
	select {
	case <-p.Head():
		return true
	default:
		return false
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	var q Queue
	a, b, c := q.Join(), q.Join(), q.Join()
	assert.Equal(t, []bool{true, false, false}, []bool{atHead(a), atHead(b), atHead(c)})
	a.Leave()
	assert.Equal(t, []bool{true, false}, []bool{atHead(b), atHead(c)})
	b.Leave()
	assert.True(t, atHead(c))
	assert.Equal(t, 1, q.Len())
	c.Leave()
	assert.Equal(t, 0, q.Len())
	assert.True(t, atHead(q.Join()), "an empty line begins anew")
}

func TestLeaveFromAnywhere(t *testing.T) {
	for leaver := range 4 {
		var q Queue
		places := []*Place{q.Join(), q.Join(), q.Join(), q.Join()}
		places[leaver].Leave()
		places[leaver].Leave()
		assert.Equal(t, 3, q.Len())
		for i, p := range places {
			if i == leaver {
				continue
			}
			assert.True(t, atHead(p), "%d left, %d is next", leaver, i)
			p.Leave()
		}
		assert.Equal(t, 0, q.Len())
	}
}

func TestNobodyIsForgotten(t *testing.T) {
	var (
		q     Queue
		wg    sync.WaitGroup
		turns int // guarded by being at the head
	)
	const n = 200
	for range n {
		p := q.Join()
		wg.Go(func() {
			if rand.N(3) == 0 {
				p.Leave() // gives up, perhaps at the head
				return
			}
			<-p.Head()
			turns++
			p.Leave()
		})
	}
	wg.Wait()
	assert.Equal(t, 0, q.Len())
	assert.Positive(t, turns)
}
