package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
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
	var c lockerConfig
	if !started(lockerEnv, &c) {
		return
	}
	m := redlock.New(poolsOf(c.Servers)...).NewMutex("k", redlock.WithFencing(),
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
	p, in, out := start(t, lockerEnv, c)
	t.Cleanup(func() {
		p.Kill()
		_, _ = in.Close(), out.Close()
	})
	return p, func() Event {
		t.Helper()
		line, err := bufio.NewReader(out).ReadBytes('\n')
		must(t, "what the process tells", err)
		var e Event
		must(t, "what the process tells", json.Unmarshal(line, &e))
		return e
	}
}
