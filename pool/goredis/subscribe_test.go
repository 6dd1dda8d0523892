package goredis_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/pool"
)

// lesson L96: without a PING now and then, a quiet connection would be given up every seven
// seconds.
func TestAQuietSubscriptionKeepsItsConnection(t *testing.T) {
	inBubble(t, redis.Options{}, func(b *bench) {
		var dials atomic.Int32
		b.client.AddHook(dialHook(func(next redis.DialHook) redis.DialHook {
			return func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return next(ctx, network, addr)
			}
		}))
		sub, err := b.pool.Subscribe(b.ctx, "c")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := dials.Load(); n != 1 {
			t.Errorf("%d connections in a quiet minute, want the first", n)
		}
		if n := b.arrived("PING"); n < 10 {
			t.Errorf("%d PINGs in a quiet minute, want one every five seconds", n)
		}
		select {
		case m := <-sub.Messages():
			t.Errorf("message %q, want none", m)
		default:
		}
		_ = sub.Close()
		time.Sleep(time.Second)
	})
}

// lesson L62: a panic on a goroutine that is not the caller's is one node's failure.
func TestADialerThatPanics(t *testing.T) {
	var panics atomic.Bool
	inBubble(t, redis.Options{}, func(b *bench) {
		b.client.AddHook(dialHook(func(next redis.DialHook) redis.DialHook {
			return func(ctx context.Context, network, addr string) (net.Conn, error) {
				if panics.Load() {
					panic("a bug in\nthe Dialer")
				}
				return next(ctx, network, addr)
			}
		}))
		panics.Store(true)
		_, err := b.pool.Subscribe(b.ctx, "c")
		var panicked *pool.PanicError
		if !errors.As(err, &panicked) || err.Error() != "the client panicked: a bug in the Dialer" {
			t.Errorf("Subscribe: %v, want what the panic said, in one line", err)
		}
		panics.Store(false)
		sub, err := b.pool.Subscribe(b.ctx, "c")
		if err != nil {
			t.Fatal(err)
		}
		_ = sub.Close()
		time.Sleep(time.Second)
	})
}

// dialHook is a hook that wraps how the client dials.
type dialHook func(next redis.DialHook) redis.DialHook

func (h dialHook) DialHook(next redis.DialHook) redis.DialHook { return h(next) }

func (dialHook) ProcessHook(redis.ProcessHook) redis.ProcessHook { return nil }

func (dialHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return nil
}
