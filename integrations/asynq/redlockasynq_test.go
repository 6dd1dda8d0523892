package redlockasynq_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	redlockasynq "github.com/redlock-go/redlock/integrations/asynq"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
	"github.com/redlock-go/redlock/redlocktest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// patient is far longer than anything here takes.
const patient = time.Minute

// everySecond is a task of each second.
type everySecond struct{}

func (everySecond) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	return []*asynq.PeriodicTaskConfig{{
		Cronspec: "@every 1s", Task: asynq.NewTask("tick", nil),
	}}, nil
}

// replica is a candidate, and how many tasks it has put into the queue.
type replica struct {
	election *redlock.Election
	enqueued atomic.Int64
	resign   context.CancelFunc
	ended    chan error
}

// stand starts a replica: its tasks go to the first server, its locks are on all of them.
func stand(t *testing.T, servers []*redistest.Server) *replica {
	t.Helper()
	var pools []pool.Pool
	for _, s := range servers {
		client := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redlock.New(pools...)
	t.Cleanup(func() { _ = locks.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{election: locks.NewElection("scheduler", redlock.WithExpiry(time.Minute)),
		resign: cancel, ended: make(chan error, 1)}
	t.Cleanup(cancel)
	lead := redlockasynq.WhileLeading(func() (*asynq.PeriodicTaskManager, error) {
		return asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{
			RedisConnOpt:               asynq.RedisClientOpt{Addr: servers[0].Addr()},
			PeriodicTaskConfigProvider: everySecond{},
			SchedulerOpts: &asynq.SchedulerOpts{
				LogLevel: asynq.FatalLevel,
				PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
					assert.NoError(t, err)
					r.enqueued.Add(1)
				},
			},
		})
	})
	go func() { r.ended <- r.election.Run(ctx, lead) }()
	return r
}

func (r *replica) awaitTasks(t *testing.T) {
	t.Helper()
	seen := r.enqueued.Load()
	require.Eventually(t, func() bool { return r.enqueued.Load() > seen }, patient,
		10*time.Millisecond)
}

// Of two replicas one schedules. When it resigns, the other one does.
func TestOneReplicaSchedules(t *testing.T) {
	redistest.Require(t)
	servers := redistest.Start(t, 3)
	first := stand(t, servers)
	first.awaitTasks(t)
	second := stand(t, servers)
	first.awaitTasks(t)
	assert.Zero(t, second.enqueued.Load())
	assert.False(t, second.election.Leading())

	first.resign()
	require.NoError(t, <-first.ended)
	last := first.enqueued.Load()
	second.awaitTasks(t)
	assert.Equal(t, last, first.enqueued.Load(), "it has ended")

	second.resign()
	require.NoError(t, <-second.ended)
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: servers[0].Addr()})
	defer inspector.Close()
	queue, err := inspector.GetQueueInfo("default")
	require.NoError(t, err)
	assert.EqualValues(t, last+second.enqueued.Load(), queue.Pending)
}

// fake is a scheduler that notes what is done to it, and starts once, as asynq's do.
type fake struct {
	err               error // of Start
	started, shutdown atomic.Bool
}

func (f *fake) Start() error {
	if f.started.Swap(true) {
		return errors.New("started before")
	}
	return f.err
}

func (f *fake) Shutdown() { f.shutdown.Store(true) }

// After a loss the scheduler has ended, and the next term has another one.
func TestEachTermHasAScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		var made []*fake
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- c.Redlock().NewElection("scheduler").Run(ctx,
				redlockasynq.WhileLeading(func() (*fake, error) {
					made = append(made, &fake{})
					return made[len(made)-1], nil
				}))
		}()
		defer cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, made, 1)
		assert.True(t, made[0].started.Load())
		assert.False(t, made[0].shutdown.Load())
		c.Steal("scheduler")
		time.Sleep(time.Hour) // the thief's lock has expired
		synctest.Wait()
		assert.Len(t, made, 2)
		assert.True(t, made[0].shutdown.Load())
		assert.True(t, made[1].started.Load())
		assert.False(t, made[1].shutdown.Load())
		cancel()
		assert.NoError(t, <-ended)
		assert.True(t, made[1].shutdown.Load())
	})
}

func TestASchedulerThatDoesNotStartEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		oops := errors.New("oops")
		election := c.Redlock().NewElection("scheduler")
		s := &fake{err: oops}
		err := election.Run(t.Context(), redlockasynq.WhileLeading(
			func() (*fake, error) { return s, nil }))
		assert.Equal(t, oops, err)
		assert.False(t, s.shutdown.Load(), "it has not started")
		err = election.Run(t.Context(), redlockasynq.WhileLeading(
			func() (*fake, error) { return nil, oops }))
		assert.Equal(t, oops, err)
		c.WantFree(t, "scheduler")
	})
}

// A scheduler that is ready only when the lead has ended is not started beside the next leader's.
func TestASchedulerIsNotStartedAfterItsTerm(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &fake{}
	require.NoError(t, redlockasynq.WhileLeading(func() (*fake, error) {
		cancel()
		return s, nil
	})(ctx))
	assert.False(t, s.started.Load())
}
