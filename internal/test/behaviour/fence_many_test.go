package behaviour_test

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredislib "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// How many names TestManyNames locks. A million take a minute or two:
//
//	go test . -run '^TestManyNames$' -names 1000000 -timeout 0 -v
var manyNames = flag.Int("names", 5000, "names that TestManyNames locks once each")

// watchedPool notes the value of each lock whose token is raised.
type watchedPool struct {
	*goredis.Pool
	raised *sync.Map
}

func (w watchedPool) Start(ctx context.Context, c *pool.Command, to pool.Receiver) {
	if s := c.Script(); s != nil && s.Name == "raise" {
		w.raised.Store(c.Args()[5], true) // EVALSHA, id, number of keys, key, counter
	}
	w.Pool.Start(ctx, c, to)
}

// lesson L87: however many names are locked with a token, a bounded number of keys is left, and
// few of the locks need a second round trip.
func TestManyNames(t *testing.T) {
	const callers, counters, most, megabytes, few = 64, 1 << 16, 70_000, 10, 0.03
	servers := redistest.Start(t, 3)
	used := func(s *redistest.Server) int {
		info, _ := s.Must("INFO", "memory").(string)
		_, rest, _ := strings.Cut(info, "used_memory:")
		bytes, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(t, err)
		return bytes
	}
	before := used(servers[0])
	var raised sync.Map
	var pools []pool.Pool
	var clients []*goredislib.Client
	for _, s := range servers {
		clients = append(clients, goredislib.NewClient(&goredislib.Options{Addr: s.Addr()}))
		pools = append(pools, watchedPool{goredis.NewPool(clients[len(clients)-1]), &raised})
	}
	rl := redlock.New(pools...).With(redlock.WithFencing())
	if *manyNames < 100_000 {
		rl = rl.With(patient) // on a busy machine; a long run has one to itself, and the defaults
	}
	begun := time.Now()
	var next, refused atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(*manyNames); i = next.Add(1) {
				m := rl.NewMutex(fmt.Sprint("order:", i))
				if err := m.Lock(); err != nil {
					refused.Add(1)
					continue
				}
				if _, err := m.Unlock(); err != nil {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	mustClose(t, rl)
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
	assert.Zero(t, refused.Load(), "free locks that were not granted or not released")
	rounds := 0
	raised.Range(func(any, any) bool { rounds++; return true })
	share := float64(rounds) / float64(*manyNames)
	t.Logf("%d names in %v: %d raise rounds, %.2f %%", *manyNames, took.Round(time.Millisecond),
		rounds, 100*share)
	assert.LessOrEqual(t, share, few)
	for i, s := range servers {
		eventually(t, "the end of the clients' connections", func() bool {
			list, _ := s.Must("CLIENT", "LIST").(string)
			return strings.Count(list, "\n") <= 1
		})
		keys, bytes := s.Must("DBSIZE").(int64), used(s)-before
		t.Logf("server %d: %d keys, %.2f MB", i, keys, float64(bytes)/1e6)
		assert.LessOrEqual(t, keys, int64(min(counters, *manyNames)))
		assert.LessOrEqual(t, keys, int64(most))
		assert.LessOrEqual(t, bytes, megabytes<<20)
		cursor := "0"
		for done := false; !done; done = cursor == "0" {
			page := s.Must("SCAN", cursor, "COUNT", "1000").([]any)
			cursor = page[0].(string)
			for _, key := range page[1].([]any) {
				assert.Regexp(t, "^redlock:fence:[0-9a-f]{4}$", key)
			}
		}
	}
}
