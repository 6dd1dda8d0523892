package goredis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// many is how many locks these tests release at once.
const many = 64

// releaseTogether starts the releases of many locks while the server answers nothing. It returns
// their outcomes, and how many scripts the server has been sent for them.
func releaseTogether(
	t *testing.T, server *redistest.Server, p *goredis.Pool, prefix func(i int) string,
) ([]received, int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	key := func(i int) string { return fmt.Sprintf("%s{lock:%d}", prefix(i), i) }
	for i := range many {
		server.Must("SET", key(i), "v", "PX", "60000")
	}
	before := server.Commands()["evalsha"]
	all, told := make([]received, many), make(outcomes, many)
	server.Freeze()
	for i := range many {
		p.Start(ctx, pool.Eval(scripts.Release, []string{key(i), key(i) + ":q"}, "v", 200),
			both{&all[i], told})
	}
	server.Thaw()
	for range many {
		<-told
	}
	return all, server.Commands()["evalsha"] - before
}

func wantReleased(t *testing.T, outcomes []received) {
	t.Helper()
	for i, o := range outcomes {
		if o.reply != int64(1) || o.err != nil {
			t.Errorf("release %d = %v, %v, want 1", i, o.reply, o.err)
		}
	}
}

// both tells two receivers.
type both [2]pool.Receiver

func (b both) Receive(reply any, err error) {
	b[0].Receive(reply, err)
	b[1].Receive(reply, err)
}

// none is the prefix of the keys of a test that needs none.
func none(int) string { return "" }

func clientOf(t *testing.T, server *redistest.Server, opt redis.Options) *goredis.Pool {
	opt.Addr = server.Addr()
	client := redis.NewClient(&opt)
	t.Cleanup(func() { _ = client.Close() })
	return goredis.NewPool(client)
}

func TestManyReleasesAreFewCommands(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	p := clientOf(t, server, redis.Options{})
	for range 3 {
		outcomes, sent := releaseTogether(t, server, p, none)
		wantReleased(t, outcomes)
		if sent > many/4 {
			t.Errorf("%d releases were %d scripts", many, sent)
		}
	}
}

// A user who may not touch one of the keys is refused them all when they go together.
func TestReleasesBesideADeniedKey(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	server.Must("ACL", "SETUSER", "app", "on", ">secret", "~app:*", "+evalsha", "+eval", "+get",
		"+pttl", "+del", "+hello")
	p := clientOf(t, server, redis.Options{Username: "app", Password: "secret"})
	outcomes, _ := releaseTogether(t, server, p, func(i int) string {
		if i%16 == 5 {
			return "theirs:"
		}
		return "app:"
	})
	for i, o := range outcomes {
		if denied := i%16 == 5; denied && !strings.Contains(fmt.Sprint(o.err), "NOPERM") {
			t.Errorf("release %d = %v, %v, want NOPERM", i, o.reply, o.err)
		} else if !denied && (o.reply != int64(1) || o.err != nil) {
			t.Errorf("release %d = %v, %v, want 1", i, o.reply, o.err)
		}
	}
}

// A server of a cluster refuses keys of several slots, also if all of them are its own.
func TestReleasesOnAServerOfACluster(t *testing.T) {
	server := redistest.StartCluster(t, 1)[0]
	p := clientOf(t, server, redis.Options{})
	for range 2 {
		outcomes, sent := releaseTogether(t, server, p, none)
		wantReleased(t, outcomes)
		if sent < many {
			t.Errorf("%d releases were %d scripts", many, sent)
		}
	}
}
