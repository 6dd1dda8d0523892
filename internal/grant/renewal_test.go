package grant

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Cancel ends the context of a renewal, Stop waits for that as well, and none is stopped at
// once.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, c := BeginRenewal(t.Context())
		start := time.Now()
		go func() {
			<-ctx.Done()
			time.Sleep(time.Second)
			c.End()
		}()
		c.Cancel()
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
		assert.Zero(t, time.Since(start))
		c.Stop()
		assert.Equal(t, time.Second, time.Since(start))
		c.Stop() // it is over
		c.Cancel()

		ctx, c = BeginRenewal(t.Context())
		c.End()
		assert.ErrorIs(t, ctx.Err(), context.Canceled)

		c = nil
		c.Cancel()
		c.Stop()
	})
}
