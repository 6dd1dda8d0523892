package lease

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What is noted runs in order and one at a time, whatever the functions do: add more, run the queue
// themselves, or end their goroutine.
func TestNotes(t *testing.T) {
	var k Lock
	var ran []int
	add := func(i int, more func()) {
		k.Mu.Lock()
		defer k.Mu.Unlock()
		k.Note(func() {
			k.Mu.Lock() // is free
			ran = append(ran, i)
			k.Mu.Unlock()
			more()
		})
	}
	add(1, func() {
		add(3, func() {})
		k.Tell() // which leaves 3 to the one who runs this
		assert.Equal(t, []int{1}, ran)
	})
	add(2, func() {})
	k.Tell()
	assert.Equal(t, []int{1, 2, 3}, ran)

	add(4, runtime.Goexit)
	add(5, func() {})
	var g sync.WaitGroup
	g.Go(k.Tell)
	g.Wait()
	assert.Equal(t, []int{1, 2, 3, 4}, ran)
	k.Tell()
	assert.Equal(t, []int{1, 2, 3, 4, 5}, ran)
}

// Many goroutines lose nothing, and no two functions run at the same time.
func TestNotesOfMany(t *testing.T) {
	var k Lock
	var added, ran []int // ran is for the race detector
	var g sync.WaitGroup
	for i := range 1000 {
		g.Go(func() {
			k.Mu.Lock()
			added = append(added, i)
			k.Note(func() { ran = append(ran, i) })
			k.Mu.Unlock()
			k.Tell()
		})
	}
	g.Wait()
	k.Tell()
	assert.Equal(t, added, ran)
}
