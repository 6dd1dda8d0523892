package redigo_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/pool/redigo"
)

// lesson L96: without a PING now and then, a quiet connection would be given up every eleven
// seconds.
func TestAQuietSubscriptionKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		first, err := m.Dial() // starts the node, which has no Server before
		if err != nil {
			t.Fatal(err)
		}
		_ = first.Close()
		var dials, pings atomic.Int32
		m.Server().SetPreHook(func(_ *server.Peer, name string, _ ...string) bool {
			if strings.EqualFold(name, "PING") {
				pings.Add(1)
			}
			return false
		})
		p := redigo.NewPool(&redis.Pool{DialContext: func(context.Context) (redis.Conn, error) {
			dials.Add(1)
			conn, err := m.Dial()
			return redis.NewConn(conn, 0, 0), err
		}})
		sub, err := p.Subscribe(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := dials.Load(); n != 1 {
			t.Errorf("%d connections in a quiet minute, want the first", n)
		}
		if n := pings.Load(); n < 10 {
			t.Errorf("%d PINGs in a quiet minute, want one every five seconds", n)
		}
		select {
		case message := <-sub.Messages():
			t.Errorf("message %q, want none", message)
		default:
		}
		_ = sub.Close()
		time.Sleep(time.Second)
		m.Close()
	})
}
