package interop

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	redlockgocron "github.com/redlock-go/redlock/integrations/gocron"
	"github.com/redlock-go/redlock/integrations/robfigcron"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// lesson L137: a job that five replicas start each second runs once a second, through each of the
// adapters for cron libraries, on three servers of which one may be down. Package ticks tries more
// in virtual time.
func TestAJobRunsOnceAtEachTick(t *testing.T) {
	redistest.Require(t)
	for adapter, start := range map[string]func(*testing.T, *redlock.Redlock, func()) func(){
		"gocron.Locker": func(t *testing.T, rl *redlock.Redlock, work func()) (stop func()) {
			return everySecond(t, work,
				gocron.WithDistributedLocker(redlockgocron.Locker(rl)))
		},
		"gocron.Task": func(t *testing.T, rl *redlock.Redlock, work func()) (stop func()) {
			return everySecond(t, redlockgocron.Task(rl, "job", func(context.Context) error {
				work()
				return nil
			}))
		},
		"robfigcron.Wrapper": func(t *testing.T, rl *redlock.Redlock, work func()) (stop func()) {
			s := cron.New(cron.WithSeconds(), cron.WithChain(
				robfigcron.Wrapper(cron.DiscardLogger, rl, "job")))
			_, err := s.AddFunc("* * * * * *", work)
			require.NoError(t, err)
			s.Start()
			return func() { <-s.Stop().Done() }
		},
	} {
		for _, down := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, one is down: %v", adapter, down), func(t *testing.T) {
				t.Parallel()
				tick(t, down, start)
			})
		}
	}
}

// everySecond starts a scheduler that runs a task each second, first at the next one.
func everySecond(t *testing.T, task any, opts ...gocron.SchedulerOption) (stop func()) {
	s, err := gocron.NewScheduler(opts...)
	require.NoError(t, err)
	first := gocron.WithStartDateTime(time.Now().Truncate(time.Second).Add(time.Second))
	_, err = s.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(task),
		gocron.WithName("job"), gocron.WithStartAt(first))
	require.NoError(t, err)
	s.Start()
	return func() { assert.NoError(t, s.Shutdown()) }
}

// tick lets replicas run a job for some seconds, and looks how often it was run in each.
func tick(t *testing.T, down bool, start func(*testing.T, *redlock.Redlock, func()) func()) {
	const replicas, seconds = 5, 5
	servers := redistest.Start(t, 3)
	var all []*redlock.Redlock
	for range replicas {
		var pools []pool.Pool
		for _, s := range servers {
			pools = append(pools, goredis.NewPool(goRedis(t, s.Addr())))
		}
		all = append(all, redlock.New(pools...))
	}
	if down {
		servers[2].Kill()
		servers = servers[:2]
	}
	for _, rl := range all { // dialling a dead node for the first time can make a tick late
		require.NoError(t, rl.Do(t.Context(), "first", func(context.Context) error { return nil }))
	}
	pulse := redistest.TakePulse(t, servers...)
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1100 * time.Millisecond)))
	began := time.Now().Truncate(time.Second)
	var mu sync.Mutex
	runs := map[time.Duration]int{} // by second
	var stops []func()
	for _, rl := range all {
		stops = append(stops, start(t, rl, func() {
			mu.Lock()
			runs[time.Since(began).Round(time.Second)/time.Second]++
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}))
	}
	time.Sleep(time.Until(began.Add(seconds*time.Second + 700*time.Millisecond)))
	for _, stop := range stops {
		stop()
	}
	for _, rl := range all {
		assert.NoError(t, rl.CloseContext(context.Background()))
	}
	if worst := pulse.Worst(); worst > 100*time.Millisecond {
		redistest.SkipBusy(t, "the servers answered %v late", worst)
	}
	want := map[time.Duration]int{}
	for second := range time.Duration(seconds) {
		want[second+1] = 1
	}
	assert.Equal(t, want, runs)
}
