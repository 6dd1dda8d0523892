package registry_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/registry"
)

// Nothing is added after Close, and what is there stays until it is removed.
func TestRegistry(t *testing.T) {
	r := registry.New[int]()
	assert.True(t, r.Add(1))
	assert.True(t, r.Add(2))
	assert.ElementsMatch(t, []int{1, 2}, r.All())
	r.Remove(1)
	r.Remove(3) // is not there
	assert.Equal(t, []int{2}, r.All())

	assert.False(t, r.IsClosed())
	assert.True(t, r.Close())
	<-r.Closed()
	assert.True(t, r.IsClosed())
	assert.False(t, r.Close())
	assert.False(t, r.Add(4))
	assert.Equal(t, []int{2}, r.All())
	r.Remove(2)
	assert.Empty(t, r.All())
}

// Whatever was added before Close is seen by All after it: nothing slips in between.
func TestNothingIsAddedBehindClose(t *testing.T) {
	for range 100 {
		r := registry.New[int]()
		added := make([]bool, 8)
		var all sync.WaitGroup
		for i := range added {
			all.Go(func() { added[i] = r.Add(i) })
		}
		r.Close()
		seen := r.All()
		all.Wait()
		for i, ok := range added {
			assert.Equal(t, ok, slices.Contains(seen, i))
		}
	}
}
