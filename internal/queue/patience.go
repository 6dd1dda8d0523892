package queue

import (
	"context"
	"math"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
)

// toServe is how many round trips to the nodes a waiter must have left to be in their queue: to
// enroll, to hear of the release of the one before it, to claim the key, and one to spare. The
// nodes would keep a free key for somebody with less, who leaves before it can have that.
const toServe = 4

// answered notes how long a quorum of nodes took to answer. The first answers take longer, because
// connections are opened: of two in a row the shorter one counts.
func (q *Queues) answered(took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.trip, q.latest = min(took, q.latest), took
}

// patience returns for how long somebody who waits until ctx ends can be in the nodes' queue. It is
// not more than 0 if there is no time left for its turn.
func (q *Queues) patience(ctx context.Context) time.Duration {
	end, ends := ctx.Deadline()
	if !ends {
		return math.MaxInt64
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return clock.Sub(time.Until(end), clock.Times(q.trip, toServe))
}
