// Package registry keeps what is open until it is closed: one by one, or all of it at the end.
package registry

import (
	"maps"
	"slices"
	"sync"
)

// Registry is a set that nothing is added to once it is closed. It is safe for concurrent use.
type Registry[T comparable] struct {
	closed chan struct{}

	mu  sync.Mutex // guards all, and is held while closed is closed
	all map[T]struct{}
}

// New returns an empty Registry.
func New[T comparable]() *Registry[T] {
	return &Registry[T]{closed: make(chan struct{}), all: map[T]struct{}{}}
}

// Add adds something, unless the registry is closed. It reports whether it did.
func (r *Registry[T]) Add(t T) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.IsClosed() {
		return false
	}
	r.all[t] = struct{}{}
	return true
}

// Remove removes something, if it is there.
func (r *Registry[T]) Remove(t T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, t)
}

// All returns what is there, in no order.
func (r *Registry[T]) All() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.all))
}

// Close closes the registry, and leaves in it what is there. It reports false if that was done
// before.
func (r *Registry[T]) Close() (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.IsClosed() {
		return false
	}
	close(r.closed)
	return true
}

// Closed returns a channel that is closed by Close.
func (r *Registry[T]) Closed() <-chan struct{} { return r.closed }

// IsClosed reports whether Close has been called.
func (r *Registry[T]) IsClosed() bool {
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}
