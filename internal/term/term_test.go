package term_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/internal/term"
)

type name struct{}

// A term ends once, for the first reason, whether its channel was asked for before or after.
func TestATermEndsOnce(t *testing.T) {
	limit := time.Now().Add(time.Hour)
	for want, ends := range map[error][]func(*term.Term){
		context.Canceled:         {(*term.Term).Cancel, (*term.Term).Expire},
		context.DeadlineExceeded: {(*term.Term).Expire, (*term.Term).Cancel},
	} {
		for _, early := range []bool{true, false} {
			values := context.WithValue(t.Context(), name{}, "value")
			ctx := &term.Term{Context: values, Limit: limit}
			if early {
				select {
				case <-ctx.Done():
					t.Error("it has ended at its beginning")
				default:
				}
			}
			assert.NoError(t, ctx.Err())
			for _, end := range ends {
				end(ctx)
			}
			<-ctx.Done()
			assert.Equal(t, want, ctx.Err())
			assert.Equal(t, "value", ctx.Value(name{}))
		}
	}
}

func TestATermMayHaveNoDeadline(t *testing.T) {
	_, ok := (&term.Term{Context: t.Context()}).Deadline()
	assert.False(t, ok)
	limit := time.Now()
	deadline, ok := (&term.Term{Context: t.Context(), Limit: limit}).Deadline()
	assert.True(t, ok)
	assert.Equal(t, limit, deadline)
}
