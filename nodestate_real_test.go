package redlock_test

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

// lesson L120: so it is with real servers, whose clients report some errors late.
func TestTroubleOfARealServerIsToldTwice(t *testing.T) {
	redistest.Require(t)
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, 3)
			var pools []pool.Pool
			for _, s := range servers {
				pools = append(pools, adapters["goredis"](t, s.Addr()))
			}
			var mu sync.Mutex
			var states []redlock.NodeState
			sofar := func() []redlock.NodeState {
				mu.Lock()
				defer mu.Unlock()
				return states
			}
			rl := redlock.New(pools...).With(redlock.WithEvents(&redlock.Events{
				NodeState: func(s redlock.NodeState) {
					mu.Lock()
					defer mu.Unlock()
					if s.Node == 2 { // another may be late on a busy machine
						states = append(states, s)
					}
				},
			}))
			done := make(chan struct{})
			var load sync.WaitGroup
			for i := range 4 {
				load.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-done:
							return
						case <-time.After(time.Millisecond):
						}
						m := rl.NewMutex(fmt.Sprint(i, " ", n))
						if m.Lock() == nil {
							_, _ = m.Unlock()
						}
					}
				})
			}
			trouble.begin(servers[2])
			eventually(t, "told", func() bool { return len(sofar()) > 0 })
			time.Sleep(larger(3 * time.Second))
			assert.Len(t, sofar(), 1)
			trouble.end(servers[2])
			eventually(t, "told", func() bool { return len(sofar()) > 1 })
			time.Sleep(larger(4 * time.Second)) // also for the clients' own timeouts
			close(done)
			load.Wait()
			require.Len(t, sofar(), 2)
			assert.True(t, !sofar()[0].Up && sofar()[1].Up)
			mustClose(t, rl)
		})
	}
}
