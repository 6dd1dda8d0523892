// Package lone is what the tests of adapters share about a lone caller, or one of a few, who sends
// its own command: see pool.Carrier.
package lone

import (
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock"
)

// Sends reports whether the goroutine is that of a caller, in a method of a Mutex.
func Sends() bool { return strings.Contains(string(debug.Stack()), "(*Mutex)") }

// Call is one call of a Mutex.
type Call struct {
	name string
	do   func() error
}

// Unlock is the release of a lock.
func Unlock(m *redlock.Mutex) Call {
	return Call{"Unlock", func() error { _, err := m.Unlock(); return err }}
}

// TryLock is one attempt.
func TryLock(m *redlock.Mutex) Call { return Call{"TryLock", m.TryLock} }

// fails makes the call, which fails for want of a quorum.
func (c Call) fails(t testing.TB) error {
	t.Helper()
	err := c.do()
	if !errors.Is(err, redlock.ErrNoQuorum) {
		t.Errorf("%s: %v, want it to match ErrNoQuorum", c.name, err)
	}
	return err
}

// FailInTime makes the calls in a bubble. Each fails for want of a quorum, at the node timeout.
func FailInTime(t testing.TB, nodeTimeout time.Duration, calls ...Call) {
	t.Helper()
	for _, c := range calls {
		synctest.Wait()
		began := time.Now()
		err := c.fails(t)
		took := time.Since(began)
		if took < nodeTimeout-2*time.Millisecond || took > 2*nodeTimeout {
			t.Errorf("%s took %v, the node timeout is %v: %v", c.name, took, nodeTimeout, err)
		}
	}
}

// few is how many callers of a node send their own commands at the same time.
const few = 3

// FewFailInTime makes few callers try to lock the name at the same time, in a bubble. Each fails
// for want of a quorum, at the node timeout, and sends its own command. Carried counts those, or is
// nil.
func FewFailInTime(t testing.TB, nodeTimeout time.Duration, rl *redlock.Redlock, name string,
	carried *atomic.Int64) {
	t.Helper()
	synctest.Wait()
	if carried != nil {
		before := carried.Load()
		defer func() {
			if n := carried.Load() - before; n < few {
				t.Errorf("%d of %d callers sent their own commands", n, few)
			}
		}()
	}
	began := time.Now()
	var all sync.WaitGroup
	for range few {
		all.Go(func() {
			err := TryLock(rl.NewMutex(name)).fails(t)
			took := time.Since(began)
			if took < nodeTimeout-2*time.Millisecond || took > 2*nodeTimeout {
				t.Errorf("one of a few took %v, the node timeout is %v: %v", took, nodeTimeout, err)
			}
		})
	}
	all.Wait()
}

// FailOnSockets makes the calls. Each fails for want of a quorum. The bound is wide: a test runs on
// busy machines.
func FailOnSockets(t testing.TB, calls ...Call) {
	t.Helper()
	began := time.Now()
	for _, c := range calls {
		_ = c.fails(t)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("they took %v", took)
	}
}
