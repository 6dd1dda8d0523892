package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// While somebody of a process has the key, its next waiter does not stand in the queue: a release
// tells it whether others are there. Where they are not, each turn is an attempt.
func TestAProcessAloneDoesNotQueue(t *testing.T) {
	const waiters = 20
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		var all sync.WaitGroup
		before := 0
		for i := range waiters {
			all.Go(func() {
				wish := want{Delay: every(time.Second), Queue: true}
				assert.NoError(t, g.lock(t.Context(), qs, i, wish))
				if i == 0 {
					before = g.boards[0].fail(nil)
				}
				time.Sleep(time.Millisecond)
				g.unlock(qs)
			})
			time.Sleep(time.Millisecond)
		}
		g.unlock(nil)
		all.Wait()
		assert.Equal(t, numbers(waiters), g.served[1:])
		assert.NotZero(t, before, "the first stood there, for somebody else had the key")
		assert.Equal(t, before, g.boards[0].fail(nil))
	})
}

// One that is told that it is the next bids for the key, once. When a quorum of nodes takes that
// up, it has the key without asking for it.
func TestTheNextBids(t *testing.T) {
	for _, noBids := range []bool{false, true} {
		bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
			g.occupy()
			g.noBids = noBids
			var waiter sync.WaitGroup
			waiter.Go(func() {
				wish := want{Delay: every(time.Hour), Queue: true}
				assert.NoError(t, g.lock(t.Context(), qs, 1, wish))
			})
			time.Sleep(10 * time.Millisecond)
			assert.Empty(t, g.bids, "nobody has said that it is the next")
			g.next()
			time.Sleep(time.Millisecond)
			g.next()
			g.unlock(nil)
			began := time.Now()
			waiter.Wait()
			if noBids {
				assert.Empty(t, g.bids)
				assert.Len(t, g.claims, 1)
				return
			}
			assert.Equal(t, []time.Duration{10 * time.Millisecond}, g.bids)
			assert.Empty(t, g.claims)
			assert.Zero(t, time.Since(began))
			assert.Empty(t, g.withdraw)
		})
	}
}

// lesson L111: where there are no bids, one that was told that it is the next has none to take
// back.
func TestWhoCannotBidHasNoBid(t *testing.T) {
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		g.noBids = true
		ctx, cancel := context.WithCancel(t.Context())
		var waiter sync.WaitGroup
		waiter.Go(func() {
			wish := want{Delay: every(time.Second), Queue: true}
			assert.Error(t, g.lock(ctx, qs, 1, wish))
		})
		time.Sleep(10 * time.Millisecond)
		g.next()
		before := g.stands()
		time.Sleep(time.Second)
		assert.NotEqual(t, before, g.stands(), "it asks after its delay")
		cancel()
		waiter.Wait()
		assert.Empty(t, g.withdraw)
	})
}

// One that has bid does not ask before nodes have forgotten the bid, or for a node timeout, unless
// one of them says that it is its turn. Then it waits for the others for as long as they need for
// an answer.
func TestABidderStandsBack(t *testing.T) {
	const delay = 30 * time.Millisecond
	for timeout, quiet := range map[time.Duration]time.Duration{
		2 * bidLife: bidLife, bidLife / 4: bidLife / 4,
	} {
		bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
			g.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			var waiter sync.WaitGroup
			waiter.Go(func() {
				wish := want{Delay: every(delay), Queue: true, NodeTimeout: timeout}
				assert.Equal(t, context.Canceled, g.lock(ctx, qs, 1, wish))
			})
			time.Sleep(10 * time.Millisecond)
			bid := func() (stands []int) {
				g.next()
				return g.stands()
			}
			before := bid()
			time.Sleep(quiet - time.Millisecond)
			assert.Equal(t, before, g.stands())
			time.Sleep(time.Millisecond + trip)
			synctest.Wait()
			assert.NotEqual(t, before, g.stands())
			assert.Len(t, g.withdraw, 1)

			before = bid()
			g.boards[0].release()
			time.Sleep(trip) // and the moment that is left to the others anyway
			synctest.Wait()
			assert.Equal(t, before, g.stands())
			time.Sleep(2*time.Millisecond + trip)
			synctest.Wait()
			assert.NotEqual(t, before, g.stands())
			assert.Len(t, g.withdraw, 2)
			cancel()
			waiter.Wait()
		})
	}
}

// Where it is a waiter's turn on a minority of nodes, it waits a moment for the others, and then
// asks again, which hands the key on.
func TestAMinorityIsReasonToAskAMomentLater(t *testing.T) {
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		ctx, cancel := context.WithCancel(t.Context())
		var waiter sync.WaitGroup
		waiter.Go(func() {
			wish := want{Delay: every(time.Hour), Queue: true}
			assert.Equal(t, context.Canceled, g.lock(ctx, qs, 1, wish))
		})
		time.Sleep(10 * time.Millisecond)
		before := g.stands()
		g.boards[1].release()
		time.Sleep(time.Millisecond + trip)
		synctest.Wait()
		assert.Equal(t, before, g.stands())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.NotEqual(t, before, g.stands())
		cancel()
		waiter.Wait()
	})
}

// A bid that too few nodes have taken up is taken back before the waiter stands in the queue again,
// and before it leaves.
func TestABidIsTakenBack(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
			g.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			var waiter sync.WaitGroup
			waiter.Go(func() {
				err := g.lock(ctx, qs, 1, want{Delay: every(time.Hour), Queue: true})
				assert.Equal(t, leaves, err != nil)
			})
			time.Sleep(10 * time.Millisecond)
			g.next()
			require.Len(t, g.bids, 1)
			if leaves {
				cancel()
				waiter.Wait()
				assert.Equal(t, []time.Duration{10 * time.Millisecond}, g.withdraw)
				return
			}
			before := g.boards[0].fail(nil)
			g.boards[0].release()
			for g.boards[0].fail(nil) == before {
				assert.Empty(t, g.claims)
				time.Sleep(time.Millisecond)
			}
			require.Len(t, g.withdraw, 1)
			g.unlock(nil)
			waiter.Wait()
			assert.Len(t, g.claims, 1, "there is no bid any more")
			cancel()
		})
	}
}

// A waiter whose claims fail makes the next one later and later, and a few at most. Then it asks
// for the key when its retry delay is over.
func TestClaimsThatFailAreFurtherAndFurtherApart(t *testing.T) {
	const delay = time.Second
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		g.unfit = true
		var waiter sync.WaitGroup
		start := time.Now()
		waiter.Go(func() {
			assert.NoError(t, g.lock(t.Context(), qs, 1, want{Delay: every(delay), Queue: true}))
		})
		time.Sleep(10 * time.Millisecond)
		g.unlock(nil)
		waiter.Wait()
		assert.Equal(t, delay, time.Since(start))
		require.Len(t, g.claims, maxClaims)
		for i := 1; i < maxClaims; i++ {
			pause := claimDelay<<(i-1)/2 + time.Millisecond // the jitter of a bubble is a half
			assert.Equal(t, pause+trip, g.claims[i]-g.claims[i-1], i)
		}
	})
}

// So does one that is told its turn once more while the nodes do not answer.
func TestAClaimDuringASilenceIsOneOfTheFew(t *testing.T) {
	const delay = time.Second
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		g.unfit = true
		var waiter sync.WaitGroup
		start := time.Now()
		waiter.Go(func() {
			assert.NoError(t, g.lock(t.Context(), qs, 1, want{Delay: every(delay), Queue: true}))
		})
		time.Sleep(10 * time.Millisecond)
		number := g.boards[0].first()
		g.unlock(nil)
		for g.claimed() < maxClaims {
			time.Sleep(time.Millisecond)
		}
		before := 0
		for _, b := range g.boards {
			before = b.fail(errTrouble)
		}
		for g.boards[2].fail(errTrouble) == before {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		for _, b := range g.boards {
			b.messages <- number
		}
		for g.claimed() == maxClaims {
			time.Sleep(time.Millisecond)
		}
		for _, b := range g.boards {
			b.fail(nil)
		}
		waiter.Wait()
		assert.Equal(t, delay, time.Since(start))
		assert.LessOrEqual(t, g.claimed(), maxClaims+1)
	})
}

// A process that stood still for long has not used up its tries meanwhile: each waiter behind the
// head still waits for what is left of them.
func TestStandingStillCostsATryAtMost(t *testing.T) {
	const tries, delay, still = 6, time.Second, time.Minute
	bubble(t, 3, false, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		ctx, cancel := context.WithCancel(t.Context())
		var all, last sync.WaitGroup
		all.Go(func() {
			wish := want{Delay: every(delay)}
			assert.Equal(t, context.Canceled, g.lock(ctx, qs, 0, wish))
		})
		time.Sleep(time.Millisecond)
		last.Go(func() {
			wish := want{Tries: tries, Delay: func(used int) time.Duration {
				if used == 2 {
					time.Sleep(still) // as the process would anywhere
				}
				return delay
			}}
			start := time.Now()
			assert.Equal(t, errTaken, g.lock(t.Context(), qs, 1, wish))
			assert.InDelta(t, still+(tries-1)*delay, time.Since(start), float64(delay))
		})
		last.Wait()
		cancel()
		all.Wait()
	})
}

// A process that has just handed the key on does not ask for it before it stands in the queue.
func TestAProcessThatHasHandedTheKeyOnDoesNotAsk(t *testing.T) {
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		asks := 0
		enter := func(queue bool) *Waiter {
			r := g.request(want{Delay: every(time.Hour), Queue: queue})
			w, _ := qs.Enter(t.Context(), r, func(Attempt) Answer {
				asks++
				return Answer{Won: true}
			})
			return w
		}
		qs.Released("key", true, true)
		w := enter(true)
		require.NotNil(t, w)
		assert.Zero(t, asks)
		qs.leave(w)

		assert.Nil(t, enter(false))
		assert.Equal(t, 1, asks, "one that does not queue asks")
		time.Sleep(handedFor)
		assert.Nil(t, enter(true))
		assert.Equal(t, 2, asks, "the others have been served by then")
		qs.Released("key", true, true)
		qs.Released("key", true, false)
		assert.Nil(t, enter(true))
		assert.Equal(t, 3, asks, "nobody queues any more")
	})
}

// Keys that are about to expire again and again, as those of a holder with a short expiry, are
// reason for a few attempts in a retry delay, and no more.
func TestKeysThatExpireAreReasonForAFewAttempts(t *testing.T) {
	const delay, last = time.Second, 20 * time.Second
	bubble(t, 3, false, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		g.expires = time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			wish := want{Delay: every(delay)}
			assert.Equal(t, context.Canceled, g.lock(ctx, qs, 1, wish))
		})
		time.Sleep(last)
		assert.InDelta(t, (1+maxExpiries)*last/delay, g.asked(), 1+maxExpiries)
		cancel()
		all.Wait()
	})
}

// A waiter that came while a newcomer asked does so when that has given up without an answer for
// the line.
func TestANewcomerThatGivesUpIsNotWaitedFor(t *testing.T) {
	const takes = time.Minute
	bubble(t, 3, false, func(t *testing.T, g *group, qs *Queues) {
		wish := want{Delay: every(time.Hour)}
		var all sync.WaitGroup
		all.Go(func() {
			w, answer := qs.Enter(t.Context(), g.request(wish), func(Attempt) Answer {
				time.Sleep(takes)
				return Answer{Err: context.Canceled}
			})
			assert.Nil(t, w)
			assert.Equal(t, context.Canceled, answer.Err)
		})
		time.Sleep(time.Millisecond)
		start := time.Now()
		require.NoError(t, g.lock(t.Context(), qs, 1, wish))
		assert.LessOrEqual(t, time.Since(start), takes)
		all.Wait()
	})
}

// A waiter that does not queue keeps nobody of its process from doing so, and hears of its release.
func TestWhoPollsKeepsNobodyFromTheQueue(t *testing.T) {
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		var all sync.WaitGroup
		for i, queue := range []bool{false, true} {
			all.Go(func() {
				wish := want{Delay: every(time.Hour), Queue: queue}
				assert.NoError(t, g.lock(t.Context(), qs, i, wish))
				g.unlock(qs)
			})
			time.Sleep(time.Second)
		}
		start := time.Now()
		g.unlock(nil)
		all.Wait()
		assert.Less(t, time.Since(start), time.Second)
		assert.Equal(t, []int{1, 0}, g.served[1:])
	})
}

// A newcomer that takes its place behind others releases at once what nodes may have granted. Its
// next attempt may be far away.
func TestAFollowerGivesBackWhatItWasGranted(t *testing.T) {
	const takes = 100 * time.Millisecond
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		g.takes = takes
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 2 { // the first asks, and the second is at the head meanwhile
			all.Go(func() {
				wish := want{Delay: every(time.Hour), Queue: true}
				assert.Equal(t, context.Canceled, g.lock(ctx, qs, i, wish))
			})
			time.Sleep(takes / 2)
		}
		time.Sleep(time.Second)
		assert.Contains(t, g.gaveBack(), 0)
		cancel()
		all.Wait()
	})
}

// A node that answers late, and has given a greater ticket than the others agreed on, is told
// theirs. It would let others go first.
func TestANodeThatAnswersLateIsToldTheTicket(t *testing.T) {
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		late := g.boards[2]
		late.slow, late.last = trip, time.Now().Add(time.Hour).UnixMicro()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			wish := want{Delay: every(time.Hour), Queue: true}
			assert.Equal(t, context.Canceled, g.lock(ctx, qs, 1, wish))
		})
		time.Sleep(20 * trip)
		for _, b := range g.boards {
			assert.Equal(t, g.boards[0].tickets(), b.tickets())
			assert.LessOrEqual(t, b.fail(nil), 2)
		}
		cancel()
		all.Wait()
	})
}

// A newcomer that waits until turns can be heard releases what nodes may have granted to its
// attempt. It leaves those that refused: standing in the queue does that. If it never stands there,
// it releases the attempt on these in the end.
func TestANewcomerSettlesByStandingInTheQueue(t *testing.T) {
	for _, opens := range []time.Duration{20 * time.Millisecond, time.Second, time.Hour} {
		bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
			g.occupy()
			for _, b := range g.boards {
				b.opens = opens
			}
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				wish := want{Delay: every(4 * time.Second), Queue: true}
				assert.Equal(t, context.Canceled, g.lock(ctx, qs, 1, wish))
			})
			synctest.Wait()
			assert.Equal(t, []int{1}, g.gaveBack())
			time.Sleep(2 * time.Second)
			assert.Equal(t, opens < time.Hour, g.boards[0].fail(nil) > 0, "it stands in the queue")
			assert.Empty(t, g.gaveRest())
			cancel()
			all.Wait()
			synctest.Wait()
			assert.Len(t, g.gaveRest(), map[bool]int{true: 1}[opens == time.Hour])
		})
	}
}

// While subscriptions are being opened, attempts become rarer: where many processes begin at once,
// they would keep each other from opening any. A delay costs a try even so, and the last try is an
// attempt.
func TestAttemptsBecomeRarerWhileSubscriptionsAreOpened(t *testing.T) {
	const delay, tries = 100 * time.Millisecond, 41
	for _, tt := range []struct {
		name        string
		opens       time.Duration // each; 0: nothing can be opened
		takes       time.Duration // an attempt
		delay       time.Duration
		tries       int
		lasts       time.Duration
		least, most int // attempts
	}{
		{"by one that waits for ever", time.Minute, 0, delay, 0, tries * delay, 14, 15},
		{"by one with tries", time.Minute, delay / 4, delay, tries, tries * delay * 5 / 4, 15, 15},
		{"if nothing can be opened", 0, 0, delay, tries, tries * delay, tries, tries},
		{"if it takes for ever", time.Hour, 0, delay, 0, time.Minute, 200, 205},
		{"with a long delay", time.Minute, 0, maxDelayQueued, 0, time.Minute, 20, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, tt.opens > 0, func(t *testing.T, g *group, qs *Queues) {
				g.occupy()
				g.takes = tt.takes
				for _, b := range g.boards {
					b.opens = tt.opens
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.lasts-delay/2)
				defer cancel()
				start := time.Now()
				wish := want{Delay: every(tt.delay), Tries: tt.tries, Queue: true}
				err := g.lock(ctx, qs, 1, wish)
				if tt.tries == 0 {
					assert.Equal(t, context.DeadlineExceeded, err)
				} else {
					assert.Equal(t, errTaken, err)
					assert.InDelta(t, tt.lasts-delay, time.Since(start), float64(delay)/2)
				}
				asked := g.asked() - 1 // less that of occupy
				assert.GreaterOrEqual(t, asked, tt.least)
				assert.LessOrEqual(t, asked, tt.most)
			})
		})
	}
}

// A release by its own process ends that wait.
func TestANewcomerHearsOfAReleaseBeforeItHearsTurns(t *testing.T) {
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		for _, b := range g.boards {
			b.opens = time.Second
		}
		wish := want{Delay: every(time.Hour), Queue: true}
		require.NoError(t, g.lock(t.Context(), qs, 0, wish))
		var all sync.WaitGroup
		all.Go(func() { assert.NoError(t, g.lock(t.Context(), qs, 1, wish)) })
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		g.unlock(qs)
		all.Wait()
		assert.Zero(t, time.Since(start))
	})
}

// All of a line leave silent nodes alone for four times as long as they were silent. That is two
// seconds at most, and a try more. Retry delays use up tries even so, and the last try is an
// attempt. Nodes that refuse at once are asked again after each delay.
func TestSilentNodesAreLeftAlone(t *testing.T) {
	const delay = 10 * time.Millisecond
	for _, tt := range []struct {
		name    string
		silence time.Duration // of each attempt
		head    time.Duration // the second's retry delay
		others  int           // than the first
		tries   int
	}{
		{"a waiter", 100 * time.Millisecond, delay, 0, 0},
		{"its tries", 100 * time.Millisecond, delay, 0, 41},
		{"ten", 100 * time.Millisecond, delay, 9, 0},
		{"behind a slow one", 100 * time.Millisecond, time.Hour, 1, 0},
		{"for long", 20 * time.Second, delay, 0, 0},
		{"refused at once", 0, delay, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, false, func(t *testing.T, g *group, qs *Queues) {
				g.takes = tt.silence
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var all sync.WaitGroup
				for i := range 1 + tt.others {
					wish := want{Delay: every(delay), Tries: tt.tries, NodeTimeout: trip / 2}
					if i == 1 { // who comes while the first asks stands before it
						wish.Delay = every(tt.head)
					}
					all.Go(func() { assert.Error(t, g.lock(ctx, qs, i, wish)) })
					time.Sleep(time.Nanosecond)
				}
				all.Wait()
				if tt.tries > 0 {
					tries := time.Duration(tt.tries)
					assert.InDelta(t, tries*(tt.silence+delay), time.Since(g.begun),
						float64(tt.silence+delay))
					g.attempts = g.attempts[:len(g.attempts)-1] // the last is on time
				}
				require.Greater(t, len(g.attempts), 2)
				least := min(4*tt.silence, 2*time.Second)
				known := g.attempts[tt.others:] // each may ask before the first was refused
				for i, a := range known[1:] {
					pause := a.at - known[i].at - tt.silence
					assert.GreaterOrEqual(t, pause, least)
					assert.LessOrEqual(t, pause, least+min(tt.silence, 2*time.Second)+delay)
				}
			})
		})
	}
}

// A waiter that stands in the queue again keeps the ticket that the nodes have agreed on.
func TestAWaiterKeepsItsTicket(t *testing.T) {
	bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
		g.occupy()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			wish := want{Delay: every(10 * time.Millisecond), Queue: true}
			assert.Equal(t, context.Canceled, g.lock(ctx, qs, 0, wish))
		})
		b := g.boards[0]
		time.Sleep(10 * trip)
		tickets, stands := b.tickets(), b.fail(nil)
		time.Sleep(time.Second)
		assert.Greater(t, b.fail(nil), stands+10)
		assert.Equal(t, tickets, b.tickets())
		cancel()
		all.Wait()
	})
}

// A process whose first attempt took long, or met silence, opens its subscriptions later, and makes
// no other attempt until then.
func TestAProcessThatFindsNodesSlowSubscribesLater(t *testing.T) {
	const takes = 100 * time.Millisecond
	for timeout, within := range map[time.Duration]time.Duration{
		time.Second: takes, trip / 2: openTimes * takes,
	} {
		bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
			g.occupy()
			g.takes = takes
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			wish := want{Delay: every(time.Minute), Queue: true, NodeTimeout: timeout}
			assert.Error(t, g.lock(ctx, qs, 0, wish))
			asked := g.boards[0].asked().Sub(g.begun)
			assert.Equal(t, takes+within/2, asked) // the jitter of a bubble is a half
			if timeout < trip {
				assert.LessOrEqual(t, g.asked(), 1+1, "after occupy")
			}
		})
	}
}

// A refusal by nodes that answer ends the time for which silent nodes are left alone.
func TestNodesThatAnswerAreNotLeftAlone(t *testing.T) {
	ln := &local{}
	ln.refused(refusal{silent: true}, time.Minute)
	assert.Positive(t, ln.spare(time.Now()))
	ln.refused(refusal{}, time.Minute)
	assert.Zero(t, ln.spare(time.Now()))
}

// A process learns how long a quorum takes to answer from those attempts alone that a quorum
// answered. A caller who has less time than a turn takes does not queue.
func TestAWaitersAttemptsTellHowLongAQuorumTakes(t *testing.T) {
	const takes = 100 * time.Millisecond
	for timeout, enough := range map[time.Duration]bool{time.Second: false, trip / 2: true} {
		bubble(t, 3, true, func(t *testing.T, g *group, qs *Queues) {
			g.occupy()
			g.takes = takes
			wish := want{Tries: 3, Delay: every(time.Minute), NodeTimeout: timeout}
			assert.Error(t, g.lock(t.Context(), qs, 0, wish))
			ctx, cancel := context.WithTimeout(t.Context(), toServe*takes)
			defer cancel()
			assert.Equal(t, enough, qs.patience(ctx) > 0)
		})
	}
}

// A waiter that knows when nodes will be free asks when a quorum of them is.
func TestAWaiterAsksWhenAQuorumIsFree(t *testing.T) {
	lock := wire.NewLock("key", &wire.Terms{Expiry: time.Hour, NodeTimeout: time.Hour}, nil)
	for left, want := range map[[3]time.Duration]time.Duration{
		{30, 10, 20}: 21, {0, 0, -1}: 1, {0, -1, -1}: 50,
	} {
		queues := &Queues{}
		queues.quorum = 2
		s := &queuedWait{w: &Waiter{
			queues: queues, local: &local{}, request: Request{Lock: &lock},
			drawn: 50 * time.Millisecond,
		}}
		var said quorum.Outcomes
		for _, l := range left {
			said = append(said, quorum.Outcome{Reply: quorum.Reply{
				Means: quorum.Standing, Left: l * time.Millisecond,
			}})
		}
		assert.Equal(t, want*time.Millisecond, s.pace(said), left)
	}
}
