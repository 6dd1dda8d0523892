package behaviour_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
)

// lesson L101: a release of one lock grants nobody another lock, however alike their names are. One
// waits for a lock that is held, while another lock is handed on from process to process.
func TestAReleaseGrantsNoOtherLock(t *testing.T) {
	redistest.Require(t)
	servers := redistest.Start(t, 3)
	for i, pair := range [][2]string{
		{"x", "x:{x}"}, {"x{y", "{x{y}"}, {"x", "{x}"}, {"{x}", "{x}:{x}"}, {"x", "x:{x}:{x:{x}}"},
		{"{x", "{{x}"}, {"x}", "{x}"}, {"x", "x:{x}:redlock"}, {"x", "x:redlock"},
	} {
		for k := range pair {
			// Of the pairs, which are tested at the same time, none has a name of another.
			own := strings.NewReplacer("x", fmt.Sprint("x", 2*i+k))
			held, passed := own.Replace(pair[k]), own.Replace(pair[1-k])
			t.Run(fmt.Sprintf("%q %q", held, passed), func(t *testing.T) {
				t.Parallel()
				process := func(name string) *redlock.Mutex {
					var pools []pool.Pool
					for _, s := range servers {
						pools = append(pools, adapters["goredis"](t, s.Addr()))
					}
					rl := redlock.New(pools...)
					t.Cleanup(func() { mustClose(t, rl) })
					cut := len(name) / 2
					return rl.NewMutex(name[cut:], redlock.WithKeyPrefix(name[:cut]),
						redlock.WithTries(redlock.Unlimited), redlock.WithExpiry(time.Minute))
				}
				wait := func(m *redlock.Mutex, name string) (granted chan error) {
					granted = make(chan error, 1)
					go func() { granted <- m.LockContext(t.Context()) }()
					for _, s := range servers {
						queue := queueOf(name)
						eventually(t, "a place in the queue", func() bool {
							value, _ := s.Must("GET", name).(string)
							return queue == "" || s.Must("EXISTS", queue) == int64(1) ||
								strings.HasPrefix(value, "~") // came before the holder
						})
					}
					return granted
				}
				holder, first := process(held), process(passed)
				require.NoError(t, holder.Lock())
				require.NoError(t, first.Lock())
				second, waiter := process(passed), process(held)
				has := wait(second, passed)
				waits := wait(waiter, held)
				var early atomic.Bool
				early.Store(true)
				granted := make(chan error, 1)
				go func() {
					err := <-waits
					assert.False(t, early.Load(), "both have %q", held)
					granted <- err
				}()
				mustUnlock(t, first)
				require.NoError(t, <-has)
				time.Sleep(50 * time.Millisecond) // in which one could bid who thinks it is next
				mustUnlock(t, second)
				require.NoError(t, first.Lock(), "it is free")
				mustUnlock(t, first)
				ok, err := holder.Valid()
				require.NoError(t, err)
				require.True(t, ok)
				early.Store(false)
				mustUnlock(t, holder)
				require.NoError(t, <-granted)
				mustUnlock(t, waiter)
			})
		}
	}
}
