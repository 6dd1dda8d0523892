package redlocktest_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/leak"
	"github.com/redlock-go/redlock/redlocktest"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var errOops = errors.New("oops")

// bubble runs a test in virtual time, with a cluster of n nodes.
func bubble(t *testing.T, n int, f func(t *testing.T, c *redlocktest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, redlocktest.New(t, n)) })
}

// mustLock returns a mutex that has locked the name.
func mustLock(
	t *testing.T, locks *redlock.Redlock, name string, opts ...redlock.Option,
) *redlock.Mutex {
	t.Helper()
	m := locks.NewMutex(name, opts...)
	require.NoError(t, m.Lock())
	return m
}

// mustUnlock unlocks m, which holds its lock.
func mustUnlock(t *testing.T, m *redlock.Mutex) {
	t.Helper()
	_, err := m.Unlock()
	require.NoError(t, err)
}

// recorder is the testing.TB of a test that may fail.
type recorder struct {
	testing.TB // nil: what is not below is not called

	mu       sync.Mutex
	lines    []string
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record runs a test with a cluster of n nodes, and returns what it has failed with.
func record(n int, f func(t testing.TB, c *redlocktest.Cluster)) []string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		f(r, redlocktest.New(r, n))
	}()
	<-done
	return r.lines
}
