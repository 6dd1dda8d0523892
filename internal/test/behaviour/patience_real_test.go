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

// contender is a process that asks for a lock again and again, and how that went.
type contender struct {
	Adapter string
	Addrs   []string
	Name    string
	Context time.Duration // of each call
	Pause   time.Duration // after each, half as long on average
	Tries   bool          // it calls TryLock
	Until   time.Time

	Asked, Granted int
}

// contenderEnv is the environment variable that makes a test binary a contender, given as JSON.
const contenderEnv = "REDLOCK_TEST_CONTENDER"

// TestContender is no test: it is what the processes of TestShortContextsOfProcesses run.
func TestContender(t *testing.T) {
	var c contender
	if os.Getenv(contenderEnv) == "" {
		t.Skip("not started by TestShortContextsOfProcesses")
	}
	require.NoError(t, json.Unmarshal([]byte(os.Getenv(contenderEnv)), &c))
	var pools []pool.Pool
	for _, addr := range c.Addrs {
		pools = append(pools, adapters[c.Adapter](t, addr))
	}
	rl := redlock.New(pools...)
	m := rl.NewMutex(c.Name)
	lock := m.LockContext
	if c.Tries {
		lock = m.TryLockContext
	}
	for time.Now().Before(c.Until) {
		ctx, cancel := context.WithTimeout(t.Context(), c.Context)
		err := lock(ctx)
		cancel()
		c.Asked++
		if err == nil {
			c.Granted++
			time.Sleep(time.Millisecond)
			mustUnlock(t, m)
		}
		if c.Pause > 0 {
			time.Sleep(rand.N(c.Pause))
		}
	}
	mustClose(t, rl)
	told, err := json.Marshal(c)
	require.NoError(t, err)
	fmt.Printf("%s\n", told)
}

// runAll runs the processes beside each other.
func runAll(t *testing.T, contenders []contender) {
	t.Helper()
	var all sync.WaitGroup
	for i := range contenders {
		all.Go(func() {
			what, err := json.Marshal(contenders[i])
			assert.NoError(t, err)
			cmd := exec.Command(os.Args[0], "-test.run=^TestContender$")
			cmd.Env = append(os.Environ(), contenderEnv+"="+string(what))
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
			told, _, _ := strings.Cut(string(out), "\n")
			assert.NoError(t, json.Unmarshal([]byte(told), &contenders[i]), "%s", out)
		})
	}
	all.Wait()
}

// lesson L113: so it is with processes and servers, too. The lock is free most of the time, and a
// process that only tries gets it then. (Without pauses, 16 processes leave nothing for others,
// whether they wait or try.)
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
				c := contender{
					Adapter: adapter, Addrs: addrs, Name: fmt.Sprint(d, tries), Context: d,
					Tries: tries, Pause: 400 * ms, Until: time.Now().Add(larger(500 * ms)),
				}
				all := slices.Repeat([]contender{c}, 16)
				c.Tries, c.Pause = true, 40*ms
				all = append(all, c)
				runAll(t, all)
				for _, c := range all[:16] {
					granted += c.Granted
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
