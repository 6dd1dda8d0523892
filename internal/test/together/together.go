// Package together is what the tests of adapters share about releases that go together, as one
// command: see OneServer of batch.Batcher.
package together

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
)

// Many is how many locks are released.
const Many = 128

// Outcome is what one of the releases came to.
type Outcome struct {
	Reply any
	Err   error
}

// Release starts the releases of many locks while the server answers nothing. It returns their
// outcomes, and how many scripts the server has executed for them.
func Release(
	t testing.TB, server *redistest.Server, p pool.Starter, key func(int) string,
) ([]Outcome, int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range Many {
		server.Must("SET", key(i), "v", "PX", "60000")
	}
	before := server.Commands()["evalsha"]
	all := make([]Outcome, Many)
	var told sync.WaitGroup
	told.Add(Many)
	server.Freeze()
	for i := range Many {
		release := pool.Eval(scripts.Release, []string{key(i), key(i) + ":q"}, "v", 200)
		release.Joint = scripts.Releases
		p.Start(ctx, release,
			receiver(func(reply any, err error) {
				all[i] = Outcome{reply, err}
				told.Done()
			}))
	}
	server.Thaw()
	told.Wait()
	return all, server.Commands()["evalsha"] - before
}

// receiver is told an outcome.
type receiver func(reply any, err error)

// Receive implements [pool.Receiver].
func (r receiver) Receive(reply any, err error) { r(reply, err) }

// FewScripts proves that the releases of locks in several hash slots are few scripts. On a busy
// machine up to 16 batches begin before the last release, and some hold one release only.
func FewScripts(t testing.TB, server *redistest.Server, p pool.Starter) {
	t.Helper()
	for range 3 {
		if sent := released(t, server, p, Key); sent > Many/4 {
			t.Errorf("%d releases were %d scripts", Many, sent)
		}
	}
}

// ManyScripts proves that the releases of locks with these keys are a script each.
func ManyScripts(t testing.TB, server *redistest.Server, p pool.Starter, key func(int) string) {
	t.Helper()
	for range 2 {
		if sent := released(t, server, p, key); sent < Many {
			t.Errorf("%d releases were %d scripts", Many, sent)
		}
	}
}

// released returns how many scripts the releases of the locks were.
func released(
	t testing.TB, server *redistest.Server, p pool.Starter, key func(int) string,
) int64 {
	t.Helper()
	outcomes, sent := Release(t, server, p, key)
	for i, o := range outcomes {
		if o.Reply != int64(1) || o.Err != nil {
			t.Errorf("release %d = %v, %v, want 1", i, o.Reply, o.Err)
		}
	}
	return sent
}

// Key is the key of a lock, in a hash slot of its own.
func Key(lock int) string { return fmt.Sprintf("{lock:%d}", lock) }

// KeyOfOneSlot is the key of a lock, in the same hash slot as the others.
func KeyOfOneSlot(lock int) string { return fmt.Sprintf("{lock}:%d", lock) }
