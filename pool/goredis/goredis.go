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
	"github.com/redlock-go/redlock/pool/internal/hub"
)

// Pool is one node. It is safe for concurrent use.
type Pool struct {
	client redis.UniversalClient
	line   line
	hub    hub.Hub
}

var (
	errNilClient = errors.New("goredis: New was given a nil client")
	errNoArgs    = errors.New("goredis: Do was given no command")
)

// New returns the node behind client.
func New(client redis.UniversalClient) *Pool {
	p := &Pool{client: client}
	p.hub.Dial = p.dial
	return p
}

// SetNX implements [pool.Pool].
func (p *Pool) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	reply, err := p.send(ctx, []any{"SET", key, value, "NX", "PX", expiry.Milliseconds()})
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
	reply, err := p.send(ctx, evalArgs("EVALSHA", script.ID, keys, args))
	if pool.IsNoScript(err) {
		reply, err = p.send(ctx, evalArgs("EVAL", script.Source, keys, args))
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

// Do implements [pool.Doer]. It does not share a round trip with others: a
// command that go-redis refuses to put into a Cluster client's pipeline fails the whole
// pipeline.
func (p *Pool) Do(ctx context.Context, args ...any) (any, error) {
	cmd, err := p.command(ctx, args)
	if err != nil {
		return nil, err
	}
	return cmd.reply(p.client.Process(ctx, cmd))
}

func (p *Pool) send(ctx context.Context, args []any) (any, error) {
	cmd, err := p.command(ctx, args)
	if err != nil {
		return nil, err
	}
	return p.share(ctx, cmd)
}

func (p *Pool) command(ctx context.Context, args []any) (*command, error) {
	if p.client == nil {
		return nil, errNilClient
	}
	if len(args) == 0 {
		return nil, errNoArgs
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return newCommand(ctx, args), nil
}
