package pooltest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
)

// node is a whole adapter, here for a client that knows no more than to dial, to send a
// command and to receive a reply.
type node struct {
	addr string
	idle chan *redistest.Conn
}

func (n *node) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	reply, err := n.do(ctx, "SET", key, value, "NX", "PX", fmt.Sprint(expiry.Milliseconds()))
	return reply == "OK", err
}

func (n *node) Eval(ctx context.Context, s *pool.Script, keys []string, args ...any) (any, error) {
	rest := append([]string{strconv.Itoa(len(keys))}, keys...)
	for _, arg := range args {
		rest = append(rest, fmt.Sprint(arg))
	}
	reply, err := n.do(ctx, append([]string{"EVALSHA", s.ID}, rest...)...)
	if pool.IsNoScript(err) {
		reply, err = n.do(ctx, append([]string{"EVAL", s.Source}, rest...)...)
	}
	return reply, err
}

func (n *node) do(ctx context.Context, args ...string) (reply any, err error) {
	var conn *redistest.Conn
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	select {
	case conn = <-n.idle:
	default:
		if conn, err = redistest.Dial(n.addr); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	reply, err = conn.Do(args...)
	if !stop() {
		return nil, ctx.Err() // the connection is closed
	}
	if redisErr := redistest.Error(""); err == nil || errors.As(err, &redisErr) {
		n.idle <- conn
	}
	return reply, err
}
