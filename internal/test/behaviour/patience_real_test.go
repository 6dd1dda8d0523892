package behaviour_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
)

// wanter is a process that wants a lock again and again, and what it came to.
type wanter struct {
	Adapter string
	Addrs   []string
	Name    string
	Context time.Duration // of each call
	Pause   time.Duration // after each, half as long on average
	Tries   bool          // it calls TryLock
	Until   time.Time

	Asked, Granted int
}

// wanterEnv has a wanter as JSON, for a test binary that is to be one.
const wanterEnv = "REDLOCK_TEST_WANTER"

// TestWanter is no test: it is what the processes of TestShortContextsOfProcesses run.
func TestWanter(t *testing.T) {
	var w wanter
	if os.Getenv(wanterEnv) == "" {
		t.Skip("not started by TestShortContextsOfProcesses")
	}
	require.NoError(t, json.Unmarshal([]byte(os.Getenv(wanterEnv)), &w))
	var pools []pool.Pool
	for _, addr := range w.Addrs {
		pools = append(pools, adapters[w.Adapter](t, addr))
	}
	rl := redlock.New(pools...)
	m := rl.NewMutex(w.Name)
	lock := m.LockContext
	if w.Tries {
		lock = m.TryLockContext
	}
	for time.Now().Before(w.Until) {
		ctx, cancel := context.WithTimeout(t.Context(), w.Context)
		err := lock(ctx)
		cancel()
		w.Asked++
		if err == nil {
			w.Granted++
			time.Sleep(time.Millisecond)
			mustUnlock(t, m)
		}
		if w.Pause > 0 {
			time.Sleep(rand.N(w.Pause))
		}
	}
	mustClose(t, rl)
	told, err := json.Marshal(w)
	require.NoError(t, err)
	fmt.Printf("%s\n", told)
}

// runAll runs the processes beside each other.
func runAll(t *testing.T, wanters []wanter) {
	t.Helper()
	var all sync.WaitGroup
	for i := range wanters {
		all.Go(func() {
			what, err := json.Marshal(wanters[i])
			assert.NoError(t, err)
			cmd := exec.Command(os.Args[0], "-test.run=^TestWanter$")
			cmd.Env = append(os.Environ(), wanterEnv+"="+string(what))
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
			told, _, _ := strings.Cut(string(out), "\n")
			assert.NoError(t, json.Unmarshal([]byte(told), &wanters[i]), "%s", out)
		})
	}
	all.Wait()
}

// lesson L113: and so it is with processes and servers. The lock is free for most of the time, and
// one who only tries has it then. (Without pauses, 16 processes leave nothing for others, whether
// they wait or try.)
func TestShortContextsOfProcesses(t *testing.T) {
	redistest.Require(t)
	if *more < 3 {
		t.Skip("needs -more 3, and a machine that does nothing else")
	}
	const ms = time.Millisecond
	for _, adapter := range slices.Sorted(maps.Keys(adapters)) {
		var addrs []string
		for _, s := range redistest.Start(t, 3) {
			addrs = append(addrs, s.Addr())
		}
		for _, d := range []time.Duration{5 * ms, 10 * ms, 20 * ms, 50 * ms} {
			// run returns how often the lock is granted to 16 processes, and which share of its
			// tries one beside them wins.
			run := func(tries bool) (granted int, beside float64) {
				w := wanter{
					Adapter: adapter, Addrs: addrs, Name: fmt.Sprint(d, tries), Context: d,
					Tries: tries, Pause: 400 * ms, Until: time.Now().Add(larger(500 * ms)),
				}
				all := slices.Repeat([]wanter{w}, 16)
				w.Tries, w.Pause = true, 40*ms
				all = append(all, w)
				runAll(t, all)
				for _, w := range all[:16] {
					granted += w.Granted
				}
				return granted, float64(all[16].Granted) / float64(all[16].Asked)
			}
			lock, beside := run(false)
			try, besideTries := run(true)
			t.Logf("%s, contexts of %v: %d grants, one beside them wins %.2f of its tries; "+
				"with TryLock %d, %.2f", adapter, d, lock, beside, try, besideTries)
			assert.GreaterOrEqual(t, 2*lock, try)
			assert.GreaterOrEqual(t, beside, 0.2)
		}
	}
}
