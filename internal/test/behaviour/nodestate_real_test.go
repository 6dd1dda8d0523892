package behaviour_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
)

// lesson L120: so it is with real servers, whose clients report some errors late. One that stops
// and goes on all the time is told no more often than it changes.
func TestTroubleOfARealServerIsTold(t *testing.T) {
	redistest.Require(t)
	for adapter := range adapters {
		t.Run("flaps "+adapter, func(t *testing.T) {
			t.Parallel()
			flap(t, adapter)
		})
	}
	for name, trouble := range map[string]struct {
		begin, end func(*redistest.Server)
	}{
		"READONLY": {
			func(s *redistest.Server) { s.Must("REPLICAOF", "127.0.0.1", "1") },
			func(s *redistest.Server) { s.Must("REPLICAOF", "NO", "ONE") }},
		"full": {
			func(s *redistest.Server) { s.Must("CONFIG", "SET", "maxmemory", "1") },
			func(s *redistest.Server) { s.Must("CONFIG", "SET", "maxmemory", "0") }},
		"frozen": {(*redistest.Server).Freeze, (*redistest.Server).Thaw},
	} {
		for adapter := range adapters {
			t.Run(name+" "+adapter, func(t *testing.T) {
				t.Parallel()
				l := underLoad(t, adapter)
				trouble.begin(l.ill)
				eventually(t, "told", func() bool { return len(l.told()) > 0 })
				time.Sleep(larger(3 * time.Second))
				assert.Len(t, l.told(), 1)
				trouble.end(l.ill)
				eventually(t, "told", func() bool { return len(l.told()) > 1 })
				time.Sleep(larger(4 * time.Second)) // also for the clients' own timeouts
				l.stop()
				require.Len(t, l.told(), 2)
				assert.True(t, !l.told()[0].Up && l.told()[1].Up)
			})
		}
	}
}

// flap stops a server all the time, each time for longer than commands wait.
func flap(t *testing.T, adapter string) {
	t.Helper()
	l := underLoad(t, adapter, redlock.WithNodeTimeout(100*time.Millisecond))
	changes := 0
	for end := time.Now().Add(larger(4 * time.Second)); time.Now().Before(end); {
		l.ill.Freeze()
		time.Sleep(500 * time.Millisecond)
		l.ill.Thaw()
		time.Sleep(500 * time.Millisecond)
		changes += 2
	}
	l.stop()
	assert.NotEmpty(t, l.told())
	assert.LessOrEqual(t, len(l.told()), changes)
	t.Logf("%d changes, told %d times", changes, len(l.told()))
}

// load are callers who lock on three servers.
type load struct {
	ill  *redistest.Server // one of them
	stop func()

	mu     sync.Mutex // guards states
	states []redlock.NodeState
}

// told returns what has been told of the server that is ill. Another one may be late on a busy
// machine.
func (l *load) told() []redlock.NodeState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.states
}

func underLoad(t *testing.T, adapter string, opts ...redlock.Option) *load {
	t.Helper()
	servers := redistest.Start(t, 3)
	l := &load{ill: servers[2]}
	var pools []pool.Pool
	for _, s := range servers {
		pools = append(pools, adapters[adapter](t, s.Addr()))
	}
	rl := redlock.New(pools...).With(opts...).With(redlock.WithEvents(&redlock.Events{
		NodeState: func(s redlock.NodeState) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if s.Node == 2 {
				l.states = append(l.states, s)
			}
		},
	}))
	done := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-time.After(2 * time.Millisecond):
				}
				m := rl.NewMutex(fmt.Sprint(i, " ", n))
				if m.Lock() == nil {
					_, _ = m.Unlock()
				}
			}
		})
	}
	l.stop = func() {
		close(done)
		callers.Wait()
		mustClose(t, rl)
	}
	return l
}
