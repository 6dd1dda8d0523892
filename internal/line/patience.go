package line

import (
	"context"
	"math"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// toServe is how many round trips to the nodes a waiter must have left to stand in their queue: to
// take the place, to hear of the release of the one before it, to claim the key, and one to spare.
// The nodes would keep a free key for somebody with less, who leaves before it can have that.
const toServe = 4

// answered notes how long the nodes took to answer an attempt, if a quorum did.
func (ls *Lines) answered(answer Answer, began time.Time) {
	if answer.Won || answer.Refusal != nil && answer.Refusal.Answered() {
		ls.took(time.Since(began))
	}
}

// took notes how long a quorum of nodes took to answer. The first answers take longer, because
// connections are opened: of two in a row the shorter one counts.
func (ls *Lines) took(trip time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.trip, ls.latest = min(trip, ls.latest), trip
}

// patience returns for how long somebody who waits until ctx ends can stand in the queue on the
// nodes. It is not more than 0 if there is no time left for its turn.
func (ls *Lines) patience(ctx context.Context) time.Duration {
	end, ends := ctx.Deadline()
	if !ends {
		return math.MaxInt64
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return clock.Sub(time.Until(end), clock.Times(ls.trip, toServe))
}
