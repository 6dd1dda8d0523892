// Package goredis makes a redlock node of a go-redis client.
//
//	client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379"})
//	node := goredis.New(client)
package goredis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/pool"
)

// Pool is one node. It is safe for concurrent use.
type Pool struct {
	client redis.UniversalClient
}

var errNilClient = errors.New("goredis: New was given a nil client")

// New returns the node behind client.
func New(client redis.UniversalClient) *Pool {
	return &Pool{client: client}
}

// SetNX implements [pool.Pool].
func (p *Pool) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	reply, err := p.do(ctx, []any{"SET", key, value, "NX", "PX", expiry.Milliseconds()})
	switch {
	case err != nil:
		return false, err
	case reply == nil:
		return false, nil
	case reply == "OK":
		return true, nil
	}
	return false, fmt.Errorf("goredis: SET NX was answered by %T %v, not by OK or null", reply, reply)
}

// Eval implements [pool.Pool].
func (p *Pool) Eval(ctx context.Context, script *pool.Script, keys []string, args ...any) (any, error) {
	reply, err := p.do(ctx, evalArgs("EVALSHA", script.ID, keys, args))
	if pool.IsNoScript(err) {
		reply, err = p.do(ctx, evalArgs("EVAL", script.Source, keys, args))
	}
	return reply, err
}

func evalArgs(name, script string, keys []string, args []any) []any {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, strconv.Itoa(len(keys)))
	for _, key := range keys {
		all = append(all, key)
	}
	return append(all, args...)
}

// Do implements [pool.Doer].
func (p *Pool) Do(ctx context.Context, args ...any) (any, error) {
	return p.do(ctx, args)
}

func (p *Pool) do(ctx context.Context, args []any) (any, error) {
	if p.client == nil {
		return nil, errNilClient
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	cmd := newCommand(ctx, args)
	return cmd.reply(p.client.Process(ctx, cmd))
}
