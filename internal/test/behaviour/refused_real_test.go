package behaviour_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
)

// unlockable are states of servers that refuse a lock with these options although nobody has it,
// and let clients stand in its queue.
var unlockable = map[string]struct {
	login string // of the clients
	make  func(s *redistest.Server)
	opt   redlock.Option
	says  string // each node
}{
	"the restart guard": {
		make: func(*redistest.Server) {}, // it has just started
		opt:  redlock.WithRestartGuard(time.Hour), says: "restarted too recently",
	},
	"no right to the fence counter": {
		login: "app:pw@",
		make: func(s *redistest.Server) {
			s.Must("ACL", "SETUSER", "app", "on", ">pw", "+@all", "~x", "~x:*", "&*")
		},
		opt: redlock.WithFencing(), says: noKey,
	},
	"a fence counter of another type": {
		make: func(s *redistest.Server) {
			s.Must("RPUSH", fenceOf("x"), "1")
			s.Must("RPUSH", "{x}:fence", "1")
		},
		opt: redlock.WithFencing(), says: "WRONGTYPE",
	},
}

// lesson L106: several processes wait for a lock that nodes refuse although nobody has it. Errors
// say why, and never that it is taken. Nobody asks more often than the retry delay says.
func TestALockThatNobodyCanHaveIsNotTaken(t *testing.T) {
	redistest.Require(t)
	t.Parallel()
	for state, u := range unlockable {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, 3)
			for _, s := range servers {
				u.make(s)
			}
			for _, held := range []bool{false, true} {
				t.Run(fmt.Sprintf("held before: %v", held), func(t *testing.T) {
					cannotBeHad(t, servers, u.login, u.opt, u.says, held)
				})
			}
		})
	}
}

// cannotBeHad lets Locks, and candidates of an election, wait in processes of their own for a lock
// that nobody has, or that somebody had without what is refused to these.
func cannotBeHad(t *testing.T, servers []*redistest.Server, login string, opt redlock.Option,
	says string, held bool) {
	const delay = 200 * time.Millisecond
	client := func(login string, opts ...redlock.Option) *redlock.Redlock {
		var pools []pool.Pool
		for _, s := range servers {
			pools = append(pools, adapters["goredis"](t, login+s.Addr()))
		}
		return redlock.New(pools...).With(append(opts, redlock.WithNodeTimeout(5*time.Second))...)
	}
	holder := client("").NewMutex("x")
	if held {
		require.NoError(t, holder.TryLock())
	}
	began, ctx := time.Now(), &deadline{Context: t.Context(), done: make(chan struct{})}
	var waiting sync.WaitGroup
	var refused [4]atomic.Int32
	for i := range refused {
		var trouble []redlock.Failure
		var ended redlock.Acquired
		rl := client(login, opt, redlock.WithTries(redlock.Unlimited),
			redlock.WithRetryDelay(delay), redlock.WithEvents(&redlock.Events{
				NoQuorum: func(f redlock.Failure) { trouble = append(trouble, f) },
				Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
					func(redlock.Acquired)) {
					return ctx, func(a redlock.Acquired) { ended = a }
				},
				Node: func(c redlock.NodeCall) {
					if c.Command == "acquire" && c.Err != nil && c.Node == 0 {
						refused[i].Add(1)
					}
				},
			}))
		waiting.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = rl.NewElection("x").Campaign(ctx)
			} else {
				err = rl.NewMutex("x").LockContext(ctx)
			}
			assert.Equal(t, "DeadlineExceeded Failed NoQuorum", matched(err))
			for node, s := range servers {
				assert.ErrorContains(t, err, fmt.Sprintf("node %d (%s): ", node, s.Addr()))
			}
			assert.True(t, mentions(fmt.Sprint(err), says), "%v", err)
			if assert.Len(t, trouble, 1) {
				assert.Equal(t, err, trouble[0].Err)
			}
			most := int(time.Since(began)/delay) + 1
			if held {
				most *= 2 // for a moment one sees that the lock is kept for another, and stands
			}
			assert.LessOrEqual(t, ended.Attempts, most)
		})
	}
	if held {
		time.Sleep(delay)
		mustUnlock(t, holder)
	}
	eventually(t, "attempts of all", func() bool {
		for i := range refused {
			if refused[i].Load() < 5 {
				return false
			}
		}
		return true
	})
	close(ctx.done)
	waiting.Wait()
}

// deadline is a context whose deadline passes when done is closed.
type deadline struct {
	context.Context
	done chan struct{}
}

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
