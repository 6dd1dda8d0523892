package fifo

import (
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

// lesson L99: those who stay get a turn each, one at a time and in the order in which they came,
// whoever else gives up.
func TestNobodyIsForgotten(t *testing.T) {
	const n = 200
	var (
		q      Queue
		wg     sync.WaitGroup
		early  sync.WaitGroup // who gives up while the first is at the head
		begun  = make(chan struct{})
		places [n]*Place
		stay   []int // who does not give up
		turns  []int // guarded by being at the head
	)
	for i := range places {
		places[i] = q.Join()
	}
	for i, p := range places {
		switch {
		case i%3 == 1 && i < n/2:
			early.Go(p.Leave)
			continue
		case i%3 == 1:
			wg.Go(p.Leave) // perhaps at the head
			continue
		}
		stay = append(stay, i)
		wg.Go(func() {
			<-p.Head()
			if i == 0 {
				<-begun
				early.Wait()
			}
			turns = append(turns, i)
			p.Leave()
		})
	}
	close(begun)
	wg.Wait()
	assert.Equal(t, 0, q.Len())
	assert.Equal(t, stay, turns)
}
