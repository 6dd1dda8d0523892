// Package notify tells functions of the user's what happens: in order, without a lock, and whatever
// they do.
package notify

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// Queue runs functions without a mutex that were added under it. It runs one at a time, in the
// order of addition, on the goroutine of the first who comes.
type Queue struct {
	mu      *sync.Mutex // guards what follows
	added   []func()
	running bool
}

// NewQueue returns a Queue for what happens under mu.
func NewQueue(mu *sync.Mutex) Queue { return Queue{mu: mu} }

// Add adds a function. The caller holds mu.
func (q *Queue) Add(f func()) { q.added = append(q.added, f) }

// Run runs what was added, and returns at once if somebody runs it. So a function may call Run. The
// caller does not hold mu.
func (q *Queue) Run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.running && len(q.added) > 0 {
		f := q.added[0]
		q.added = q.added[1:]
		q.running = true
		q.run(f)
	}
}

// run runs one function. The caller holds mu, which is unlocked meanwhile.
func (q *Queue) run(f func()) {
	q.mu.Unlock()
	defer func() { // also if the function ends its goroutine
		q.mu.Lock()
		q.running = false
	}()
	f()
}

// Begin is a function that is told of a beginning. It returns a context for what has begun, and a
// function that is told of its end. Both may be nil.
type Begin[B, E any] = func(context.Context, B) (context.Context, func(E))

// Both returns a function that calls first and second. Either may be nil, and is left out.
func Both[T any](first, second func(T)) func(T) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(v T) { first(v); second(v) }
}

// Nested returns a function that calls outer, and inner with outer's context. Ends are told in the
// reverse order. Either may be nil, and is left out.
func Nested[B, E any](outer, inner Begin[B, E]) Begin[B, E] {
	switch {
	case outer == nil:
		return inner
	case inner == nil:
		return outer
	}
	return func(ctx context.Context, b B) (context.Context, func(E)) {
		ctx, last := outer(ctx, b)
		ctx, first := inner(ctx, b)
		return ctx, Both(first, last)
	}
}

// Panics recovers the panics of functions, and reports the first to [slog.Default].
type Panics struct{ reported sync.Once }

// Guard returns f without its panics. It returns nil for nil.
func Guard[T any](p *Panics, name string, f func(T)) func(T) {
	if f == nil {
		return nil
	}
	return func(v T) {
		defer p.recovered(name)
		f(v)
	}
}

// GuardBegin returns f without its panics, and those of the functions that it returns. It returns
// nil for nil. If f returns no context, or panics, that is the one it was called with.
func GuardBegin[B, E any](p *Panics, name string, f Begin[B, E]) Begin[B, E] {
	if f == nil {
		return nil
	}
	nameOfEnd := "end of " + name
	return func(ctx context.Context, b B) (next context.Context, end func(E)) {
		next = ctx
		defer p.recovered(name)
		given, end := f(ctx, b)
		if given != nil {
			next = given
		}
		return next, Guard(p, nameOfEnd, end)
	}
}

// recovered ends a panic. It is deferred.
func (p *Panics) recovered(function string) {
	v := recover()
	if v == nil {
		return
	}
	p.reported.Do(func() {
		defer func() { _ = recover() }() // the logger may be what has panicked
		slog.Error("redlock: a function of Events has panicked; further panics are not reported",
			"function", function, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	})
}

// WithValues returns ctx with the values of another context, which is usually made from it.
func WithValues(ctx, values context.Context) context.Context {
	if values.Done() == ctx.Done() {
		return values
	}
	return valued{ctx, values}
}

// valued is a context with the values of another.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any { return v.values.Value(key) }
