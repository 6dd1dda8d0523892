package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// A release that nobody has heard of yet is not lost behind a doubt.
func TestAReleaseIsNotLostBehindADoubt(t *testing.T) {
	ln := &local{bell: make(chan struct{}, 1)}
	ln.ring(missed)
	ln.ring(freed)
	ln.ring(missed)
	<-ln.bell
	assert.Equal(t, freed, ln.hear())
	assert.Equal(t, arrived, ln.hear())
}

// every is a retry delay.
func every(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// numbers returns the names of n waiters.
func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// inTurn lets n waiters come one after the other while the key is taken, and wants them to have it
// in that order. It returns how long that took.
func inTurn(t *testing.T, g *group, qs *Queues, n int, wish want) time.Duration {
	g.occupy()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			assert.NoError(t, g.lock(t.Context(), qs, i, wish))
			time.Sleep(time.Millisecond)
			g.unlock(qs)
		})
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	g.unlock(qs)
	start := time.Now()
	all.Wait()
	assert.Equal(t, numbers(n), g.served[1:])
	return time.Since(start)
}

// Waiters of one process have the key in the order in which they came, whether they poll or queue.
func TestFirstComeFirstServed(t *testing.T) {
	for _, queue := range []bool{false, true} {
		for _, n := range []int{1, 2, 20, 200} {
			bubble(t, 3, queue, func(t *testing.T, g *group, qs *Queues) {
				took := inTurn(t, g, qs, n, want{Delay: every(time.Second), Queue: queue})
				if queue { // a hand-over takes a few trips; with polling it leaves rests to others
					assert.Less(t, took, time.Duration(n)*20*time.Millisecond)
				}
			})
		}
	}
}

// One asks for all, as often as its retry delay says. The others ask when their tries are used up.
func TestTheHeadAsksForAll(t *testing.T) {
	const tries, waiters, delay = 11, 20, 50 * time.Millisecond
	bubble(t, 3, false, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() {
				wish := want{Tries: tries, Delay: every(delay)}
				start := time.Now()
				assert.Equal(t, errTaken, g.lock(t.Context(), qs, i, wish))
				assert.Equal(t, (tries-1)*delay, time.Since(start))
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		last := 0
		for _, a := range g.attempts {
			if a.how.Final {
				last++
			}
		}
		assert.Equal(t, waiters, last)
		assert.LessOrEqual(t, len(g.attempts)-last, tries+1)
	})
}

// A waiter whose context ends, or whose process waits for nothing any more, leaves at once. Those
// behind it move up.
func TestWhoeverStopsLeaves(t *testing.T) {
	for _, queue := range []bool{false, true} {
		for stops := range 3 {
			bubble(t, 3, queue, func(t *testing.T, g *group, qs *Queues) {
				g.occupy()
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for i := range 3 {
					all.Go(func() {
						wish := want{Delay: every(time.Second), Queue: queue}
						if i != stops {
							if assert.NoError(t, g.lock(t.Context(), qs, i, wish)) {
								g.unlock(qs)
							}
							return
						}
						start := time.Now()
						assert.Equal(t, context.Canceled, g.lock(ctx, qs, i, wish))
						assert.Less(t, time.Since(start), 1010*time.Millisecond)
					})
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Second)
				cancel()
				time.Sleep(time.Second)
				g.unlock(qs)
				all.Wait()
				want := slices.DeleteFunc(numbers(3), func(i int) bool { return i == stops })
				assert.Equal(t, want, g.served[1:])
			})
		}
		bubble(t, 3, queue, func(t *testing.T, g *group, qs *Queues) {
			g.occupy()
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					wish := want{Delay: every(time.Hour), Queue: queue}
					assert.Equal(t, errClosed, g.lock(t.Context(), qs, i, wish))
				})
			}
			time.Sleep(time.Second)
			start := time.Now()
			g.end()
			all.Wait()
			assert.Zero(t, time.Since(start))
		})
	}
}

// A waiter whose node timeout is too short for the way to the nodes keeps nobody else waiting.
func TestAWaiterThatNobodyAnswersStopsNobody(t *testing.T) {
	for _, queue := range []bool{false, true} {
		bubble(t, 3, queue, func(t *testing.T, g *group, qs *Queues) {
			g.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			var all, next sync.WaitGroup
			all.Go(func() {
				wish := want{Delay: every(time.Second), Queue: queue, NodeTimeout: trip / 2}
				assert.Equal(t, context.Canceled, g.lock(ctx, qs, 0, wish))
			})
			time.Sleep(time.Millisecond)
			next.Go(func() {
				wish := want{Delay: every(time.Second), Queue: queue}
				assert.NoError(t, g.lock(t.Context(), qs, 1, wish))
			})
			time.Sleep(10 * time.Second)
			start := time.Now()
			g.unlock(qs)
			next.Wait()
			assert.Less(t, time.Since(start), 1100*time.Millisecond)
			g.unlock(qs)
			time.Sleep(time.Second)
			cancel()
			all.Wait()
		})
	}
}

// An attempt that panics leaves no place behind.
func TestAPanicLeavesNoPlace(t *testing.T) {
	bubble(t, 3, false, func(t *testing.T, g *group, qs *Queues) {
		wish := want{Delay: every(time.Hour)}
		assert.Panics(t, func() {
			_, _ = qs.Enter(t.Context(), g.request(wish), func(Attempt) Answer { panic("oops") })
		})
		require.NoError(t, g.lock(t.Context(), qs, 1, wish))
		assert.Zero(t, g.attempts[0].at, "nobody is waited for")
	})
}

// While messages are lost on a minority of the nodes, or on all, everybody is served in order.
func TestNobodyReliesOnMessages(t *testing.T) {
	const waiters, delay = 5, 100 * time.Millisecond
	for deaf := range 4 {
		bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
			for _, b := range g.boards[:deaf] {
				b.deaf = true
			}
			took := inTurn(t, g, qs, waiters, want{Delay: every(delay), Queue: true})
			assert.Less(t, took, waiters*(delay+20*time.Millisecond))
		})
	}
}

// Nodes keep a queue for a time. One who stays renews it in time, and costs little.
func TestWhoStaysRenewsTheQueue(t *testing.T) {
	const lasts = 10 * wire.QueueTTL
	for _, before := range []int{0, 1, 100, 1_000, 100_000} {
		bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
			g.occupy()
			for _, b := range g.boards {
				for i := range before {
					id := fmt.Sprint("others:", i)
					b.queue = append(b.queue, wire.Member{ID: id, Ticket: int64(i)})
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			wish := want{Delay: every(100 * time.Millisecond), Queue: true}
			assert.Equal(t, context.DeadlineExceeded, g.lock(ctx, qs, 1, wish))
			at := g.begun
			renewals := g.boards[0].renewals
			for _, next := range append(renewals, g.begun.Add(lasts)) {
				assert.Less(t, next.Sub(at), wire.QueueTTL*2/3, "%d before it", before)
				at = next
			}
			assert.LessOrEqual(t, len(renewals), int(lasts/renewal)+1, "%d before it", before)
		})
	}
}

// A connection that is lost again and again, so that messages may have been missed, costs one more
// question in a retry delay.
func TestAFlappingConnectionCostsLittle(t *testing.T) {
	const delay, last = 100 * time.Millisecond, 2 * time.Second
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			wish := want{Delay: every(delay), Queue: true}
			assert.Equal(t, context.Canceled, g.lock(ctx, qs, 1, wish))
		})
		for range last / time.Millisecond {
			time.Sleep(time.Millisecond)
			for _, b := range g.boards {
				b.messages <- ""
			}
		}
		assert.LessOrEqual(t, g.boards[0].fail(nil), int(2*last/delay)+3)
		cancel()
		all.Wait()
	})
}

// Where a majority of nodes answers and denies the queue, a waiter polls as often as its retry
// delay says. It tries to queue again from time to time.
func TestWhereTheQueueIsDeniedAWaiterPolls(t *testing.T) {
	const delay = 100 * time.Millisecond
	for denying := range 4 {
		bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
			for _, b := range g.boards[:denying] {
				b.fail(errDenied)
			}
			g.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				wish := want{Delay: every(delay), Queue: true}
				assert.Equal(t, context.Canceled, g.lock(ctx, qs, 1, wish))
			})
			const last = 35 * time.Second
			time.Sleep(last)
			for _, b := range g.boards {
				if stands := b.fail(nil); denying > 1 {
					assert.LessOrEqual(t, stands, 5)
				}
			}
			if denying > 1 {
				assert.InDelta(t, last/delay, g.asked(), 10)
			} else {
				assert.LessOrEqual(t, g.asked(), 3)
			}
			time.Sleep(deniedFor + time.Second)
			attempts := g.asked()
			time.Sleep(time.Minute)
			assert.Equal(t, attempts, g.asked(), "it stands in the queue again")
			cancel()
			all.Wait()
		})
	}
}

var (
	errDenied  = errors.New("NOPERM User u has no permissions to run the 'zadd' command")
	errTrouble = errors.New("NOREPLICAS Not enough good replicas to write")
)

// Nodes in trouble do not deny their queue. Who polls beside others that queue is seldom served.
func TestNodesInTroubleDoNotDenyTheQueue(t *testing.T) {
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, b := range g.boards {
			b.fail(errTrouble)
		}
		all.Go(func() {
			wish := want{Delay: every(100 * time.Millisecond), Queue: true}
			assert.Equal(t, context.Canceled, g.lock(ctx, qs, 1, wish))
		})
		stands := 0
		for stands == 0 {
			time.Sleep(trip / 2)
			stands = g.boards[0].fail(errTrouble)
		}
		for _, b := range g.boards {
			b.fail(nil)
		}
		time.Sleep(deniedFor / 2)
		assert.LessOrEqual(t, g.asked(), 4, "it stands in the queue")
		cancel()
		all.Wait()
	})
}

// The agreed ticket is the least that fewer than a quorum of nodes exceed. Silent nodes exceed it.
func TestTheAgreedTicket(t *testing.T) {
	silent := quorum.Outcome{Err: quorum.ErrTimeout}
	at := func(ticket int64) quorum.Outcome {
		return quorum.Outcome{Reply: quorum.Reply{Means: quorum.Standing, Number: ticket}}
	}
	mine := func(ticket int64) quorum.Outcome {
		return quorum.Outcome{Reply: quorum.Reply{Means: quorum.Turn, Number: ticket}}
	}
	for name, tt := range map[string]struct {
		said   quorum.Outcomes
		ticket int64
		nodes  int
	}{
		"one node":              {quorum.Outcomes{at(7)}, 7, 1},
		"all the same":          {quorum.Outcomes{at(7), mine(7), at(7)}, 7, 3},
		"a minority is ahead":   {quorum.Outcomes{at(9), at(7), at(7)}, 7, 2},
		"a majority is ahead":   {quorum.Outcomes{at(9), at(8), at(7)}, 8, 1},
		"one is silent":         {quorum.Outcomes{silent, at(8), at(7)}, 8, 1},
		"two of five are":       {quorum.Outcomes{silent, at(3), silent, at(1), at(2)}, 3, 1},
		"four nodes":            {quorum.Outcomes{at(1), at(2), at(3), at(4)}, 2, 1},
		"of four one is silent": {quorum.Outcomes{at(1), silent, at(3), at(4)}, 3, 1},
	} {
		ticket, nodes := agreed(tt.said, len(tt.said)/2+1)
		assert.Equal(t, tt.ticket, ticket, name)
		assert.Equal(t, tt.nodes, nodes, name)
	}
}
