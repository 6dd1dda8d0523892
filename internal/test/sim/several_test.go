package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// several is a schedule of processes that each see a majority of their own: until it is calm, each
// is cut off from other nodes, up to as many as may fail. Meanwhile nodes freeze for up to three
// expiries, and commands and replies are slow, lost and executed again later.
type several struct {
	dice
	nodes sim.Nodes
	start time.Time

	mu    sync.Mutex
	held  map[string][]holder // by name
	most  int                 // holders at a time
	wrong []string
	turns int
	lost  int // turns whose lock was lost
}

// holder is one who works under a lock. It does while its context is not done.
type holder struct {
	ctx    context.Context
	shared bool
}

const (
	severalExpiry = 400 * time.Millisecond
	calm          = 3 * time.Second
)

// process returns the locks of process c.
func (s *several) process(c int) *redlock.Redlock {
	pools := s.nodes.Pools(fmt.Sprintf("p%d", c))
	for i, pl := range pools {
		away := (i+c)%len(pools) < len(pools)/2 && s.chance(.7, "cut", int64(c))
		pl.(*sim.Link).Plan(func(op sim.Op) sim.Fate {
			now := time.Since(s.start)
			n := []int64{int64(c), int64(i), int64(now), int64(digest(op.Command + op.Key))}
			f := sim.Fate{
				Request: s.between(10*time.Microsecond, time.Millisecond, "request", n...),
				Reply:   s.between(10*time.Microsecond, time.Millisecond, "reply", n...),
			}
			if now > calm {
				return f
			}
			f.Lost = away || s.chance(.05, "lost", n...)
			f.ReplyLost = s.chance(.05, "reply lost", n...)
			if s.chance(.05, "again", n...) {
				f.Again = s.between(0, 2*severalExpiry, "again after", n...)
			}
			if s.chance(.05, "slow", n...) {
				f.Request = s.between(0, 2*severalExpiry, "slow request", n...)
			}
			return f
		})
	}
	return redlock.New(pools...).With(redlock.WithExpiry(severalExpiry), redlock.WithFencing(),
		redlock.WithNodeTimeout(50*time.Millisecond), redlock.WithTries(redlock.Unlimited))
}

// freezes freezes a node again and again until it is calm.
func (s *several) freezes(i int) {
	for n := int64(0); ; n++ {
		time.Sleep(s.between(0, 2*severalExpiry, "freezes", int64(i), n))
		if time.Since(s.start) > calm {
			return
		}
		s.nodes[i].Freeze()
		time.Sleep(s.between(0, 3*severalExpiry, "thaws", int64(i), n))
		s.nodes[i].Thaw()
	}
}

// work holds the locks of the names for a while. Nobody whom they exclude may hold one of them, and
// at most k slots may be held.
func (s *several) work(ctx context.Context, shared bool, k int, d time.Duration, names ...string) {
	me := holder{ctx, shared}
	s.mu.Lock()
	s.turns++
	for _, name := range names {
		for _, h := range s.held[name] {
			if h.ctx.Err() == nil && ctx.Err() == nil && !(h.shared && shared) {
				s.wrong = append(s.wrong, fmt.Sprintf("two hold %q after %v", name,
					time.Since(s.start)))
			}
		}
		s.held[name] = append(s.held[name], me)
	}
	all := map[context.Context]bool{}
	for _, of := range s.held {
		for _, h := range of {
			if h.ctx.Err() == nil {
				all[h.ctx] = true
			}
		}
	}
	if s.most = max(s.most, len(all)); k > 0 && len(all) > k {
		s.wrong = append(s.wrong, fmt.Sprintf("%d slots of %d are held", len(all), k))
	}
	s.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		s.lost++
	}
	for _, name := range names {
		s.held[name] = slices.DeleteFunc(s.held[name], func(h holder) bool { return h == me })
	}
}

// takeTurn takes one turn on locks.
type takeTurn func(ctx context.Context, s *several, rl *redlock.Redlock, hold time.Duration,
	n ...int64) error

func readOrWrite(ctx context.Context, s *several, rl *redlock.Redlock, hold time.Duration,
	n ...int64) error {
	shared, opts := s.chance(.6, "shared", n...), []redlock.Option{}
	if shared {
		opts = append(opts, redlock.WithShared())
	}
	return rl.Do(ctx, "x", func(held context.Context) error {
		s.work(held, shared, 0, hold, "x")
		return nil
	}, opts...)
}

func takeASlot(ctx context.Context, s *several, rl *redlock.Redlock, hold time.Duration,
	_ ...int64) error {
	k := 1 + s.below(3, "slots")
	return rl.DoAny(ctx, redlock.Slots("x", k), func(held context.Context, slot string) error {
		s.work(held, false, k, hold, slot)
		return nil
	})
}

func lockASet(ctx context.Context, s *several, rl *redlock.Redlock, hold time.Duration,
	n ...int64) error {
	names := []string{"x", "y", "z"}
	first := s.below(3, "first", n...)
	names = append(names[first:], names[:first]...)[:1+s.below(3, "names", n...)]
	return rl.DoAll(ctx, names, func(held context.Context) error {
		s.work(held, false, 0, hold, names...)
		return nil
	})
}

// runSeveral runs one schedule. Everybody must get its turns. In a short one, two or three
// processes on three nodes want one turn each.
func runSeveral(t *testing.T, seed uint64, take takeTurn, short bool) (s *several) {
	synctest.Test(t, func(t *testing.T) {
		d := dice(seed)
		nodes, processes, turns := 3+2*d.below(2, "nodes"), 2+d.below(3, "processes"), int64(3)
		if short {
			nodes, processes, turns = 3, 2+d.below(2, "processes"), 1
		}
		s = &several{dice: d, nodes: sim.NewNodes(nodes), start: time.Now(),
			held: map[string][]holder{}}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for i := range s.nodes {
			all.Go(func() { s.freezes(i) })
		}
		var opened []*redlock.Redlock
		for c := range processes {
			rl := s.process(c)
			opened = append(opened, rl)
			all.Go(func() {
				for i := range turns {
					n := []int64{int64(c), i}
					time.Sleep(d.between(0, severalExpiry, "rest", n...))
					hold := d.between(0, 3*severalExpiry/2, "hold", n...)
					if err := take(ctx, s, rl, hold, n...); errors.Is(err,
						context.DeadlineExceeded) {
						s.mu.Lock()
						s.wrong = append(s.wrong, fmt.Sprint("never had a turn: ", err))
						s.mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		for _, rl := range opened {
			_ = rl.Close()
		}
		s.nodes.Close()
	})
	return s
}

func testSeveral(t *testing.T, take takeTurn, count int, short bool) {
	n, begun := schedules(count), time.Now()
	var turns, lost, together atomic.Int64
	seeds(t, n, func(t *testing.T, seed uint64) {
		s := runSeveral(t, seed, take, short)
		turns.Add(int64(s.turns))
		lost.Add(int64(s.lost))
		if s.most > 1 {
			together.Add(1)
		}
		if s.wrong != nil {
			t.Errorf("seed %d: %q", seed, s.wrong)
		}
	})
	t.Logf("%d schedules in %v, %d turns, %d of them lost; more than one at work in %d", n,
		time.Since(begun).Round(time.Millisecond), turns.Load(), lost.Load(), together.Load())
	least := int64(3 * n)
	if short {
		least = int64(n)
	}
	if n >= 40 && (turns.Load() < least || lost.Load() == 0 || together.Load() == 0) {
		t.Error("the schedules are too quiet")
	}
}

// Never does a reader work beside a writer, are more slots held than there are, or two sets that
// have a name in common, whatever majorities their holders see; and nobody waits for ever.
func TestReadersAndWritersOnMajoritiesOfTheirOwn(t *testing.T) {
	testSeveral(t, readOrWrite, 40, false)
}

func TestSlotsOnMajoritiesOfTheirOwn(t *testing.T) { testSeveral(t, takeASlot, 40, false) }

func TestSetsOnMajoritiesOfTheirOwn(t *testing.T) { testSeveral(t, lockASet, 40, false) }

func TestSchedulesOfSlots(t *testing.T) { testSeveral(t, takeASlot, 100, true) }

func TestSchedulesOfSets(t *testing.T) { testSeveral(t, lockASet, 100, true) }
