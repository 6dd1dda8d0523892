package redigo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/redigo"
)

// lesson L15 and L41: whatever connections, contexts and the node do, each command has one outcome,
// arrives once at most, and not at all if its outcome says that it was not sent.
func TestOutcomesAreTrue(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(b *bench) { b.storm(rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

// storm starts commands for a while, and compares their outcomes with what the node has seen.
func (b *bench) storm(random *rand.Rand) {
	some := func(most time.Duration) time.Duration {
		return time.Duration(random.Int64N(int64(most)))
	}
	b.inner.MaxActive, b.inner.Wait = random.IntN(4), random.IntN(2) == 0
	if random.IntN(2) == 0 { // else it does not know the bound
		b.pool = redigo.NewPool(b.inner)
	}
	dial, fates := b.inner.DialContext, make(chan int, 1000)
	for range cap(fates) {
		fates <- random.IntN(20)
	}
	var panics atomic.Int64
	b.inner.DialContext = func(ctx context.Context) (redis.Conn, error) {
		switch fate := <-fates; {
		case fate == 0:
			return nil, errors.New("refused")
		case fate == 1 && b.inner.MaxActive == 0: // redigo counts the connection for ever
			panics.Add(1)
			panic("a dialler that panics")
		case fate == 2:
			time.Sleep(8 * time.Millisecond) // and does not look at ctx
		}
		return dial(ctx)
	}
	var all []*received
	for i := range 150 {
		key := fmt.Sprint(i)
		switch random.IntN(12) {
		case 0:
			gate := b.hold(key)
			time.AfterFunc(some(40*time.Millisecond), func() { close(gate) })
		case 1:
			b.mu.Lock()
			b.cut[key] = true
			b.mu.Unlock()
		}
		ctx, cancel := context.WithCancel(b.Context())
		switch random.IntN(4) {
		case 0:
			time.AfterFunc(some(20*time.Millisecond), cancel)
		case 1, 2:
			ctx, cancel = context.WithTimeout(b.Context(), some(20*time.Millisecond))
		}
		defer cancel()
		all = append(all, b.begin(ctx, key))
		if random.IntN(3) == 0 {
			time.Sleep(some(3 * time.Millisecond))
		}
	}
	time.Sleep(time.Second)
	for _, r := range all {
		r.isTrue()
	}
	used := b.inner.ActiveCount() - b.inner.IdleCount() - int(panics.Load())
	if used != 0 {
		b.Errorf("%d connections are in use when every command has its outcome", used)
	}
}

// isTrue compares an outcome with what the node has seen.
func (r *received) isTrue() {
	r.b.Helper()
	sent := r.b.arrived(r.key)
	synctest.Wait()
	unsent := errors.Is(r.err, pool.ErrNotSent)
	switch {
	case r.times != 1:
		r.b.Errorf("%s: %d outcomes", r.key, r.times)
	case sent > 1:
		r.b.Errorf("%s was sent %d times", r.key, sent)
	case sent == 1 && unsent:
		r.b.Errorf("%s was sent, and its outcome is %v", r.key, r.err)
	case r.err == nil && (sent == 0 || r.reply != true):
		r.b.Errorf("%s was sent %d times, and answered by %v", r.key, sent, r.reply)
	}
}
