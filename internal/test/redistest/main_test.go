package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// lesson L86, L98: waiting tests run at the same time, on one processor too, and a refused dial
// leaves no line in the output.
func TestMainRunsWaitingTestsTogetherAndPrintsNothing(t *testing.T) {
	const child = "REDISTEST_MAIN"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), child+"=1", "GOMAXPROCS=1")
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "PASS\n" {
			t.Errorf("%v, output:\n%s", err, out)
		}
		return
	}
	var all sync.WaitGroup
	all.Add(8)
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			all.Done()
			all.Wait() // for ever, unless they run at the same time
		})
	}
	c := redis.NewClient(&redis.Options{Addr: Refused, DialerRetries: 1})
	defer c.Close()
	for range 2 {
		if err := c.Ping(t.Context()).Err(); err == nil {
			t.Error("a closed port answers")
		}
	}
}

// Stacks start as large as they usually become, whatever else GODEBUG says, unless it says which.
func TestMainAdaptsStacks(t *testing.T) {
	const child = "REDISTEST_STACKS"
	if os.Getenv(child) != "" {
		fmt.Println(os.Getenv("GODEBUG"))
		return
	}
	for _, set := range []struct{ before, after string }{
		{"", "adaptivestackstart=1"},
		{"panicnil=1", "panicnil=1,adaptivestackstart=1"},
		{"adaptivestackstart=0", "adaptivestackstart=0"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), child+"=1", "GODEBUG="+set.before)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != set.after+"\nPASS\n" {
			t.Errorf("GODEBUG=%s: %v, output:\n%s", set.before, err, out)
		}
	}
}
