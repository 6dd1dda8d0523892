package notify_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/notify"
	"github.com/redlock-go/redlock/internal/test/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// What is added runs in order and one at a time, whatever the functions do: add more, run the queue
// themselves, or end their goroutine.
func TestQueue(t *testing.T) {
	var mu sync.Mutex
	q := notify.NewQueue(&mu)
	var ran []int
	add := func(i int, more func()) {
		mu.Lock()
		defer mu.Unlock()
		q.Add(func() {
			mu.Lock() // is free
			ran = append(ran, i)
			mu.Unlock()
			more()
		})
	}
	add(1, func() {
		add(3, func() {})
		q.Run() // which leaves 3 to the one who runs this
		assert.Equal(t, []int{1}, ran)
	})
	add(2, func() {})
	q.Run()
	assert.Equal(t, []int{1, 2, 3}, ran)

	add(4, runtime.Goexit)
	add(5, func() {})
	var g sync.WaitGroup
	g.Go(q.Run)
	g.Wait()
	assert.Equal(t, []int{1, 2, 3, 4}, ran)
	q.Run()
	assert.Equal(t, []int{1, 2, 3, 4, 5}, ran)
}

// Many goroutines lose nothing, and no two functions run at the same time.
func TestQueueOfMany(t *testing.T) {
	var mu sync.Mutex
	q := notify.NewQueue(&mu)
	var added, ran []int // ran is for the race detector
	var g sync.WaitGroup
	for i := range 1000 {
		g.Go(func() {
			mu.Lock()
			added = append(added, i)
			q.Add(func() { ran = append(ran, i) })
			mu.Unlock()
			q.Run()
		})
	}
	g.Wait()
	q.Run()
	assert.Equal(t, added, ran)
}

type key struct{}

// Of two functions the outer is told first of the beginning, and last of the end.
func TestNested(t *testing.T) {
	var told []string
	begin := func(name string) notify.Begin[string, string] {
		return func(ctx context.Context, b string) (context.Context, func(string)) {
			before, _ := ctx.Value(key{}).(string)
			told = append(told, name+" "+b+" after "+before)
			return context.WithValue(ctx, key{}, name), func(e string) {
				told = append(told, name+" "+e)
			}
		}
	}
	_, end := notify.Nested(begin("outer"), begin("inner"))(t.Context(), "begins")
	end("ends")
	assert.Equal(t, []string{"outer begins after ", "inner begins after outer", "inner ends",
		"outer ends"}, told)
	assert.Nil(t, notify.Nested[int, int](nil, nil))
	assert.Nil(t, notify.Both[int](nil, nil))
}

// A panic ends nothing but the function, and the first is reported.
func TestGuard(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	var p notify.Panics
	notify.Guard(&p, "Lost", func(int) { panic("first") })(1)
	begin := notify.GuardBegin(&p, "Acquire", func(ctx context.Context, i int) (context.Context,
		func(int)) {
		if i == 1 {
			panic("second")
		}
		return nil, func(int) { panic("third") }
	})
	ctx, end := begin(t.Context(), 1)
	assert.Equal(t, t.Context(), ctx)
	assert.Nil(t, end)
	ctx, end = begin(t.Context(), 2)
	assert.Equal(t, t.Context(), ctx, "instead of none")
	end(3)
	assert.Contains(t, log.String(), "function=Lost panic=first")
	assert.NotContains(t, log.String(), "second")
	assert.Nil(t, notify.Guard[int](&p, "", nil))
	assert.Nil(t, notify.GuardBegin[int, int](&p, "", nil))
}

// A context has one's values and the other's end.
func TestWithValues(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	values := context.WithValue(t.Context(), key{}, "v")
	got := notify.WithValues(ctx, values)
	assert.Equal(t, "v", got.Value(key{}))
	cancel()
	assert.Error(t, got.Err())
	assert.Equal(t, values, notify.WithValues(t.Context(), values), "without a wrapper")
}
