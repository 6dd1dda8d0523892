package redlock

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
)

type noteKey struct{}

// Of two functions the outer is told first of the beginning, and last of the end.
func TestNested(t *testing.T) {
	var told []string
	begin := func(name string) beginFunc[string, string] {
		return func(ctx context.Context, b string) (context.Context, func(string)) {
			before, _ := ctx.Value(noteKey{}).(string)
			told = append(told, name+" "+b+" after "+before)
			return context.WithValue(ctx, noteKey{}, name), func(e string) {
				told = append(told, name+" "+e)
			}
		}
	}
	_, end := nested(begin("outer"), begin("inner"))(t.Context(), "begins")
	end("ends")
	assert.Equal(t, []string{"outer begins after ", "inner begins after outer", "inner ends",
		"outer ends"}, told)
	assert.Nil(t, nested[int, int](nil, nil))
	assert.Nil(t, both[int](nil, nil))
}

// A panic ends nothing but the function, and the first is reported.
func TestGuard(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	var p panics
	guard(&p, "Lost", func(int) { panic("first") })(1)
	begin := guardBegin(&p, "Acquire", func(ctx context.Context, i int) (context.Context,
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
	assert.Nil(t, guard[int](&p, "", nil))
	assert.Nil(t, guardBegin[int, int](&p, "", nil))
}

// A context has one's values and the other's end.
func TestWithValues(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	values := context.WithValue(t.Context(), noteKey{}, "v")
	got := withValues(ctx, values)
	assert.Equal(t, "v", got.Value(noteKey{}))
	cancel()
	assert.Error(t, got.Err())
	assert.Equal(t, values, withValues(t.Context(), values), "without a wrapper")
}
