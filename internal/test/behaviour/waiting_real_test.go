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

// lesson L114: processes that each wait for 200 locks hear every message, or hear that they have
// missed some. Each process has one channel for all of them.
func TestNoMessageIsDroppedUnheard(t *testing.T) {
	redistest.Require(t)
	const processes, names = 4, 200
	last := larger(time.Second)
	servers := redistest.Start(t, 3)
	var all sync.WaitGroup
	var sent atomic.Int64
	witnesses := make([]*witness, 0, processes*len(servers))
	for range processes {
		var pools []pool.Pool
		for _, s := range servers {
			w := &witness{Pool: adapters["goredis"](t, s.Addr()), t: t, server: s, all: &sent}
			pools, witnesses = append(pools, w), append(witnesses, w)
		}
		rl := redlock.New(pools...).With(redlock.WithTries(redlock.Unlimited))
		t.Cleanup(func() { assert.NoError(t, rl.CloseContext(context.Background())) })
		for name := range names {
			all.Go(func() {
				m := rl.NewMutex(fmt.Sprint(name))
				// A busy machine needs longer for the first.
				end := time.Now().Add(last)
				for time.Now().Before(end) ||
					sent.Load() < names && time.Now().Before(end.Add(time.Minute)) {
					if m.LockContext(t.Context()) == nil {
						_, _ = m.Unlock() // the machine may be too busy for it
					}
				}
			})
		}
	}
	all.Wait()
	for _, w := range witnesses {
		eventually(t, "all messages, or an empty one", w.heardOfAll)
	}
	t.Logf("%d messages", sent.Load())
	assert.GreaterOrEqual(t, sent.Load(), int64(names))
}

// witness is a node that notes which messages it sends to a process, and which of them arrive.
type witness struct {
	pool.Pool
	t      *testing.T
	server *redistest.Server
	all    *atomic.Int64 // messages, of all nodes to all processes

	mu   sync.Mutex
	sent []string
	came map[string]bool
}

// Subscribe implements [pool.Subscriber].
func (w *witness) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	sub, err := w.Pool.(pool.Subscriber).Subscribe(ctx, channel)
	if err != nil {
		return nil, err
	}
	s := &witnessed{Subscription: sub, messages: make(chan string), closed: make(chan struct{}),
		conn: w.server.Dial()}
	_, err = s.conn.Do("SUBSCRIBE", channel)
	require.NoError(w.t, err)
	w.mu.Lock()
	w.sent, w.came = nil, map[string]bool{}
	w.mu.Unlock()
	s.readers.Go(func() {
		for {
			reply, err := s.conn.Receive()
			if err != nil {
				return
			}
			w.all.Add(1)
			w.mu.Lock()
			w.sent = append(w.sent, reply.([]any)[2].(string))
			w.mu.Unlock()
		}
	})
	s.readers.Go(func() {
		for {
			select {
			case message := <-sub.Messages():
				w.mu.Lock()
				w.came[message] = true
				w.mu.Unlock()
				select {
				case s.messages <- message:
				case <-s.closed:
					return
				}
			case <-s.closed:
				return
			}
		}
	})
	return s, nil
}

// heardOfAll reports whether all that was sent has arrived, or that some was missed.
func (w *witness) heardOfAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, message := range w.sent {
		if !w.came[message] && !w.came[""] {
			return false
		}
	}
	return true
}

type witnessed struct {
	pool.Subscription
	messages chan string
	closed   chan struct{}
	conn     *redistest.Conn // with a subscription of its own
	readers  sync.WaitGroup
	once     sync.Once
}

func (s *witnessed) Messages() <-chan string { return s.messages }

func (s *witnessed) Close() error {
	s.once.Do(func() {
		close(s.closed)
		_ = s.conn.Close()
		s.readers.Wait()
	})
	return s.Subscription.Close()
}
