package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// A peer is a lock library of another language. It runs in a process that does as it is told.
type peer struct {
	name string
	// command returns what runs the peer, or why it cannot run here.
	command func() (*exec.Cmd, error)
}

var peers = []peer{
	{"redis-py", func() (*exec.Cmd, error) {
		// The first may not see the distribution's packages.
		for _, python := range []string{"python3", "/usr/bin/python3"} {
			if exec.Command(python, "-c", "import redis").Run() == nil {
				return exec.Command(python, filepath.Join("peers", "redis_py.py")), nil
			}
		}
		return nil, fmt.Errorf("no python3 has the package redis")
	}},
	{"node-redlock", func() (*exec.Cmd, error) {
		modules := os.Getenv("REDLOCK_NODE_MODULES")
		if modules == "" {
			return nil, fmt.Errorf("REDLOCK_NODE_MODULES names no directory with redlock and " +
				"ioredis")
		}
		cmd := exec.Command("node", filepath.Join("peers", "node_redlock.js"))
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		return cmd, cmd.Err
	}},
}

// request is what a peer is asked to do, and answer is what came of it.
type request struct {
	Op   string `json:"op"`
	Name string `json:"name"`
	TTL  int64  `json:"ttl,omitempty"` // in milliseconds
}

type answer struct {
	OK    bool   `json:"ok"`
	Value string `json:"value"`
	Error string `json:"error"`
}

// running is a peer's process. It is not safe for concurrent use.
type running struct {
	t       *testing.T
	ask     *json.Encoder
	answers *bufio.Scanner
}

// start runs a peer with connections to the nodes, until the end of the test.
func (p peer) start(t *testing.T, nodes []*redistest.Server) *running {
	t.Helper()
	cmd, err := p.command()
	if err != nil {
		redistest.LeaveOut(t, p.name, err.Error())
		t.SkipNow()
	}
	for _, n := range nodes {
		cmd.Args = append(cmd.Args, n.Addr())
	}
	in, out := startPiped(t, cmd)
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	})
	return &running{t, json.NewEncoder(in), bufio.NewScanner(out)}
}

// startPiped starts a command, and returns what it reads and what it writes.
func startPiped(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err = cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return in, out
}

func (r *running) do(req request) answer {
	if err := r.ask.Encode(req); err != nil {
		r.t.Errorf("%+v: %v", req, err)
		return answer{}
	}
	var a answer
	if !r.answers.Scan() {
		r.t.Errorf("%+v: no answer: %v", req, r.answers.Err())
	} else if err := json.Unmarshal(r.answers.Bytes(), &a); err != nil {
		r.t.Errorf("%+v: %q: %v", req, r.answers.Text(), err)
	}
	return a
}

func (r *running) acquire(name string, ttl time.Duration) answer {
	return r.do(request{"acquire", name, ttl.Milliseconds()})
}

func (r *running) release(name string) bool { return r.do(request{"release", name, 0}).OK }

func (r *running) extend(name string, ttl time.Duration) bool {
	return r.do(request{"extend", name, ttl.Milliseconds()}).OK
}

// withPeers runs f with each peer, on one node and on several.
func withPeers(t *testing.T, f func(t *testing.T, p peer, rl library, nodes []*redistest.Server)) {
	for _, p := range peers {
		for _, n := range []int{1, 3, 5} {
			t.Run(fmt.Sprintf("%s on %d", p.name, n), func(t *testing.T) {
				if _, err := p.command(); err != nil {
					redistest.LeaveOut(t, p.name, err.Error())
					t.SkipNow()
				}
				nodes := redistest.Start(t, n)
				var pools []pool.Pool
				for _, node := range nodes {
					pools = append(pools, goredis.NewPool(goRedis(t, node.Addr())))
				}
				f(t, p, useRedlock(t, pools), nodes)
			})
		}
	}
}

// lesson L95: clients of other languages and redlock exclude each other, and hand locks over.
func TestPeersExcludeEachOther(t *testing.T) {
	const ttl = 20 * time.Second
	withPeers(t, func(t *testing.T, p peer, rl library, nodes []*redistest.Server) {
		other := p.start(t, nodes)
		ours := rl.mutex("name", ttl)

		require.NoError(t, ours.TryLock())
		holds(t, nodes, "name", ours.Value())
		require.False(t, other.acquire("name", ttl).OK, "%s acquired a lock that redlock holds",
			p.name)
		holds(t, nodes, "name", ours.Value())
		_, err := ours.Extend()
		require.NoError(t, err, "what %s tried took something away", p.name)
		_, err = ours.Unlock()
		require.NoError(t, err)
		holds(t, nodes, "name", nil)

		theirs := other.acquire("name", ttl)
		require.True(t, theirs.OK, "%s did not acquire a free lock: %s", p.name, theirs.Error)
		holds(t, nodes, "name", theirs.Value)
		require.ErrorIs(t, ours.TryLock(), redlock.ErrTaken)
		_, err = rl.resume("name", "stranger").Unlock()
		require.ErrorIs(t, err, redlock.ErrExpired)
		require.True(t, other.extend("name", ttl), "what redlock tried took something away")
		require.True(t, other.release("name"))
		holds(t, nodes, "name", nil)
		require.NoError(t, ours.TryLock())
		_, err = ours.Unlock()
		require.NoError(t, err)
		holds(t, nodes, "name", nil)

		// The value is all that redlock needs to take over.
		theirs = other.acquire("name", ttl)
		require.True(t, theirs.OK, theirs.Error)
		handed := rl.resume("name", theirs.Value)
		_, err = handed.Extend()
		require.NoError(t, err)
		require.True(t, handed.Until().After(time.Now()))
		_, err = handed.Unlock()
		require.NoError(t, err)
		holds(t, nodes, "name", nil)
		require.False(t, other.release("name"), "%s released a lock that it had no more", p.name)

		// What a peer leaves behind expires.
		const short = time.Second
		began := time.Now()
		require.True(t, other.acquire("name", short).OK)
		require.NoError(t, ours.Lock())
		require.Greater(t, time.Since(began), short-10*time.Millisecond)
		require.False(t, other.release("name"))
		_, err = ours.Extend()
		require.NoError(t, err)
		_, err = ours.Unlock()
		require.NoError(t, err)
	})
}

// A peer and redlock take turns, two workers each, and are never inside together.
func TestTurnsWithPeers(t *testing.T) {
	const turns = 15 // of each worker
	withPeers(t, func(t *testing.T, p peer, rl library, nodes []*redistest.Server) {
		var inside, total atomic.Int64
		turn := func() {
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d inside", n)
			}
			time.Sleep(time.Millisecond) // the work, long enough to be interrupted
			total.Add(1)
			inside.Add(-1)
		}
		var wg sync.WaitGroup
		for range 2 {
			other := p.start(t, nodes)
			wg.Go(func() {
				for done, tries := 0, 0; done < turns; tries++ {
					if tries == plenty || t.Failed() {
						t.Errorf("%s had %d turns", p.name, done)
						return
					}
					if !other.acquire("counter", 20*time.Second).OK {
						time.Sleep(retryDelay(tries))
						continue
					}
					turn()
					if !other.release("counter") {
						t.Errorf("%s lost its lock", p.name)
						return
					}
					done++
				}
			})
			wg.Go(func() {
				for range turns {
					m := rl.mutex("counter", 20*time.Second)
					if err := m.Lock(); err != nil {
						t.Error(err)
						return
					}
					turn()
					if _, err := m.Unlock(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 4*turns, total.Load())
	})
}
