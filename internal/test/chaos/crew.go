package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// crew is the worker processes of a round.
type crew struct {
	t       testing.TB
	dir     string
	history *History
	workers []*workerProcess
	readers sync.WaitGroup

	mu     sync.Mutex
	errors []error // in reading what workers told
}

type workerProcess struct {
	conf   workerConfig
	proc   *redistest.Process
	stdin  *os.File // closing it asks the worker to stop
	paused bool
}

func newCrew(t testing.TB, h *History, confs []workerConfig) *crew {
	c := &crew{t: t, dir: t.TempDir(), history: h}
	for _, conf := range confs {
		c.workers = append(c.workers, &workerProcess{conf: conf})
	}
	t.Cleanup(func() {
		for i := range c.workers {
			c.kill(i)
		}
		c.readers.Wait()
	})
	for i := range c.workers {
		c.start(i)
	}
	return c
}

// start starts worker i, again if it has been killed before.
func (c *crew) start(i int) {
	c.t.Helper()
	if err := c.tryStart(i); err != nil {
		c.t.Fatalf("chaos: starting worker %d: %v", i, err)
	}
}

func (c *crew) tryStart(i int) error {
	w := c.workers[i]
	conf, err := json.Marshal(w.conf)
	if err != nil {
		return err
	}
	w.conf.Life++
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer inR.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, inW.Close())
	}
	defer outW.Close()
	stderr, err := os.OpenFile(c.stderr(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, inW.Close(), outR.Close())
	}
	defer stderr.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(conf))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, stderr
	if w.proc, err = redistest.StartProcess(cmd); err != nil {
		w.proc = nil
		return errors.Join(err, inW.Close(), outR.Close())
	}
	w.stdin = inW
	c.readers.Go(func() {
		defer outR.Close()
		if err := c.history.ReadHistory(outR); err != nil {
			c.mu.Lock()
			c.errors = append(c.errors, err)
			c.mu.Unlock()
		}
	})
	return nil
}

func (c *crew) stderr(i int) string { return filepath.Join(c.dir, fmt.Sprintf("stderr-%d", i)) }

// kill ends worker i at once.
func (c *crew) kill(i int) {
	if w := c.workers[i]; w.proc != nil {
		w.proc.Kill()
		_ = w.stdin.Close()
		w.proc = nil
	}
}

// stop asks all workers to finish their turn and end, and waits until they have and all they told
// is in the history.
func (c *crew) stop(within time.Duration) {
	c.t.Helper()
	for _, w := range c.workers {
		_ = w.stdin.Close()
	}
	timeout := time.After(within)
	for i, w := range c.workers {
		select {
		case <-w.proc.Exited():
		case <-timeout:
			c.t.Errorf("chaos: worker %d has not stopped within %v", i, within)
		}
	}
	for i := range c.workers {
		c.kill(i)
		if text, _ := os.ReadFile(c.stderr(i)); len(text) > 0 {
			c.t.Errorf("chaos: worker %d wrote: %s", i, text)
		}
	}
	c.readers.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := errors.Join(c.errors...); err != nil {
		c.t.Error(err)
	}
}
