package pool_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
)

// Node is a complete adapter, here for redigo.
type Node struct{ conns *redis.Pool }

func NewNode(addr string) *Node {
	return &Node{&redis.Pool{
		MaxIdle: 8,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr)
		},
	}}
}

func (n *Node) SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	reply, err := n.do(ctx, "SET", key, value, "NX", "PX", expiry.Milliseconds())
	return reply == "OK", err
}

func (n *Node) Eval(
	ctx context.Context,
	script *pool.Script,
	keys []string,
	args ...any,
) (any, error) {
	rest := []any{script.ID, len(keys)}
	for _, key := range keys {
		rest = append(rest, key)
	}
	rest = append(rest, args...)
	reply, err := n.do(ctx, "EVALSHA", rest...)
	if pool.IsNoScript(err) {
		rest[0] = script.Source
		reply, err = n.do(ctx, "EVAL", rest...)
	}
	return reply, err
}

// do sends a command at most once, and not after its context has ended.
func (n *Node) do(ctx context.Context, command string, args ...any) (any, error) {
	conn, err := n.conns.GetContext(ctx)
	if err != nil {
		return nil, pool.NotSent(err) // so redlock need not take it back
	}
	defer conn.Close()
	if ctx.Err() != nil {
		return nil, pool.NotSent(ctx.Err())
	}
	reply, err := redis.DoContext(conn, ctx, command, args...)
	if err != nil {
		return nil, err
	}
	return text(reply), nil
}

// text turns bulk strings, which redigo returns as []byte, into strings.
func text(reply any) any {
	switch r := reply.(type) {
	case []byte:
		return string(r)
	case []any:
		for i := range r {
			r[i] = text(r[i])
		}
	}
	return reply
}

// An adapter of one's own is two methods. TestNode proves by package pooltest that this one
// behaves.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	m := redlock.New(NewNode(server.Addr())).NewMutex("invoice:42")
	fmt.Println(m.Lock())
	fmt.Println(m.Unlock())
	// Output:
	// <nil>
	// true <nil>
}
