package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// lockerEnv is the variable that makes the test binary lock once: its lockerConfig in JSON.
const lockerEnv = "REDLOCK_CHAOS_LOCKER"

// lockerConfig is a process that locks "k" once, tells of it, and waits for its end.
type lockerConfig struct {
	Servers             []string
	Expiry, NodeTimeout time.Duration
	Tries               int
}

// lockerMain makes the process a locker if it was started as one.
func lockerMain() {
	text := os.Getenv(lockerEnv)
	if text == "" {
		return
	}
	var c lockerConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	pools := make([]pool.Pool, len(c.Servers))
	for i, addr := range c.Servers {
		pools[i] = goredis.NewPool(goredislib.NewClient(&goredislib.Options{Addr: addr}))
	}
	m := redlock.New(pools...).NewMutex("k", redlock.WithFencing(),
		redlock.WithExpiry(c.Expiry), redlock.WithNodeTimeout(c.NodeTimeout),
		redlock.WithTries(c.Tries))
	e := Event{Op: Lock, Call: Now()}
	err := m.Lock()
	e.Return, e.OK = Now(), err == nil
	if err != nil {
		e.Err = err.Error()
	}
	e.Until, e.Token = monotonic(m.Until()), m.FencingToken()
	line, _ := json.Marshal(e)
	fmt.Println(string(line))
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// startLocker starts such a process, which lives until the test ends. The function waits for what
// it tells.
func startLocker(t *testing.T, c lockerConfig) (*redistest.Process, func() Event) {
	t.Helper()
	conf, err := json.Marshal(c)
	must(t, "config", err)
	inR, inW, err := os.Pipe()
	must(t, "pipe", err)
	outR, outW, err := os.Pipe()
	must(t, "pipe", err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lockerEnv+"="+string(conf))
	cmd.Stdin, cmd.Stdout = inR, outW
	p, err := redistest.StartProcess(cmd)
	must(t, "start", err)
	_, _ = inR.Close(), outW.Close()
	t.Cleanup(func() {
		p.Kill()
		_, _ = inW.Close(), outR.Close()
	})
	return p, func() Event {
		t.Helper()
		line, err := bufio.NewReader(outR).ReadBytes('\n')
		must(t, "what the process tells", err)
		var e Event
		must(t, "what the process tells", json.Unmarshal(line, &e))
		return e
	}
}
