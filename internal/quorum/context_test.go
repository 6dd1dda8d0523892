package quorum

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

type valueKey struct{}

// A context ends once, for the first reason, whether its channel was asked for before or after.
func TestARoundContextEndsOnce(t *testing.T) {
	limit := time.Now().Add(time.Hour)
	for want, other := range map[error]error{
		context.Canceled:         context.DeadlineExceeded,
		context.DeadlineExceeded: context.Canceled,
	} {
		for _, early := range []bool{true, false} {
			values := context.WithValue(t.Context(), valueKey{}, "value")
			ctx := &Round{Context: values, limit: limit}
			if early {
				select {
				case <-ctx.Done():
					t.Error("it has ended at its beginning")
				default:
				}
			}
			assert.NoError(t, ctx.Err())
			ctx.mu.Lock()
			ctx.end(want)
			ctx.end(other)
			ctx.mu.Unlock()
			<-ctx.Done()
			assert.Equal(t, want, ctx.Err())
			assert.Equal(t, "value", ctx.Value(valueKey{}))
		}
	}
}
