package sim_test

import (
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// ears hear what is published on a simulated node, and by the Lua text beside it.
type ears struct {
	subs   []pool.Subscription // on the simulated node
	conn   redis.Conn
	said   chan any // by conn, until it is closed
	settle func()   // called before what conn has heard is looked at
}

// listen listens on the channels, on conn too. A goroutine reads conn until that is closed.
func listen(t *testing.T, link *sim.Link, conn redis.Conn, settle func()) *ears {
	e := &ears{conn: conn, said: make(chan any, 100), settle: settle}
	for _, channel := range listening {
		sub, err := link.Subscribe(t.Context(), channel)
		require.NoError(t, err)
		t.Cleanup(func() { _ = sub.Close() })
		e.subs = append(e.subs, sub)
		_, err = conn.Do("SUBSCRIBE", channel)
		require.NoError(t, err)
	}
	go func() {
		defer close(e.said)
		for {
			said, err := conn.Receive()
			if err != nil {
				return
			}
			e.said <- said
		}
	}()
	return e
}

// same requires that both sides have heard the same since it was last called.
func (e *ears) same(t *testing.T, s step) {
	t.Helper()
	e.settle()
	require.NoError(t, e.conn.Send("PING")) // the answer comes after what was published
	require.NoError(t, e.conn.Flush())
	want := map[string][]string{}
	for {
		said, open := <-e.said
		require.True(t, open, "nothing is heard any more after %s", s)
		parts, err := redis.Strings(said, nil)
		require.NoError(t, err)
		if parts[0] == "pong" {
			break
		}
		require.Equal(t, "message", parts[0])
		want[parts[1]] = append(want[parts[1]], parts[2])
	}
	got := map[string][]string{}
	for i, sub := range e.subs {
		for range len(sub.Messages()) {
			got[listening[i]] = append(got[listening[i]], <-sub.Messages())
		}
	}
	require.Equal(t, want, got, "messages of %s", s)
}
