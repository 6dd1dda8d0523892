package pooltest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlock-go/redlock/pool"
)

// started is a Pool whose commands are not called but started.
type started struct {
	pool.Pool
	starter pool.Starter
	t       *testing.T
}

func (s *started) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	reply, err := s.run(ctx, pool.SetNX(key, value, expiry))
	ok, isBool := reply.(bool)
	if err == nil && !isBool {
		s.t.Errorf("a started SetNX was answered by %T %v, want a bool", reply, reply)
	}
	return ok && err == nil, err
}

func (s *started) Eval(ctx context.Context, script *pool.Script, keys []string, args ...any) (any, error) {
	return s.run(ctx, pool.Eval(script, keys, args...))
}

// run starts a command and waits for its outcome.
func (s *started) run(ctx context.Context, c *pool.Command) (any, error) {
	r := &receiver{t: s.t, done: make(chan struct{})}
	s.starter.Start(ctx, c, r)
	<-r.done
	return r.reply, r.err
}

// receiver is told an outcome, once.
type receiver struct {
	t     *testing.T
	times atomic.Int64
	reply any
	err   error
	done  chan struct{}
}

func (r *receiver) Receive(reply any, err error) {
	if r.times.Add(1) > 1 {
		r.t.Errorf("Receive was called again, with %v, %v", reply, err)
		return
	}
	r.reply, r.err = reply, err
	close(r.done)
}
