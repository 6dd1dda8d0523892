package batch_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
)

// Pool is an adapter that shares round trips: the connection is dialled for each of them.
type Pool struct {
	*calls
	addr string
}

type calls = batch.Batcher

var (
	_ pool.Pool    = (*Pool)(nil)
	_ pool.Starter = (*Pool)(nil)
)

func NewPool(addr string) *Pool {
	p := &Pool{addr: addr}
	p.calls = batch.New(p.send, batch.Options{})
	return p
}

// send sends the calls in one round trip, and answers them.
func (p *Pool) send(ctx context.Context, calls []*batch.Call) {
	conn, err := redis.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		for _, c := range calls {
			c.Answer(nil, pool.NotSent(err))
		}
		return
	}
	defer conn.Close()
	for _, c := range calls {
		if c.Context().Err() != nil {
			c.Answer(nil, pool.NotSent(c.Context().Err()))
			continue
		}
		if err := conn.Send(c.Args()[0].(string), c.Args()[1:]...); err != nil {
			c.Answer(nil, err)
		}
	}
	_ = conn.Flush() // Receive returns its error
	for _, c := range calls {
		if !c.Answered() {
			c.Answer(conn.Receive())
		}
	}
}

func ExampleBatcher() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	p, ctx := NewPool(server.Addr()), context.Background()
	for range 2 {
		ok, err := p.SetNX(ctx, "invoice:42", "mine", time.Minute)
		fmt.Println(ok, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
