package grant

import "context"

// Renewal is one under way, which somebody may stop. A nil Renewal is none.
type Renewal struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// BeginRenewal begins a renewal, and returns the context with which it goes on. The caller ends it.
func BeginRenewal(ctx context.Context) (context.Context, *Renewal) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, &Renewal{cancel, make(chan struct{})}
}

// Cancel cancels its context, and does not wait.
func (r *Renewal) Cancel() {
	if r != nil {
		r.cancel()
	}
}

// End says that it is over.
func (r *Renewal) End() {
	r.cancel()
	close(r.done)
}

// Stop cancels its context, and waits for its end.
func (r *Renewal) Stop() {
	if r != nil {
		r.cancel()
		<-r.done
	}
}
