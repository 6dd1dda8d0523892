package grant

import "context"

// Call is a renewal under way, which somebody may stop. A nil Call is none.
type Call struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// BeginCall begins a call, and returns the context with which it goes on. The caller ends it.
func BeginCall(ctx context.Context) (context.Context, *Call) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, &Call{cancel, make(chan struct{})}
}

// Cancel cancels the call's context, and does not wait.
func (c *Call) Cancel() {
	if c != nil {
		c.cancel()
	}
}

// End says that the call is over.
func (c *Call) End() {
	c.cancel()
	close(c.done)
}

// Stop cancels the call's context, and waits for the end of the call.
func (c *Call) Stop() {
	if c != nil {
		c.cancel()
		<-c.done
	}
}
