package goredis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/test/together"
	"github.com/redlock-go/redlock/pool/goredis"
)

func clientOf(t *testing.T, server *redistest.Server, opt redis.Options) *goredis.Pool {
	opt.Addr = server.Addr()
	client := redis.NewClient(&opt)
	t.Cleanup(func() { _ = client.Close() })
	return goredis.NewPool(client)
}

func TestManyReleasesAreFewCommands(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	together.FewScripts(t, server, clientOf(t, server, redis.Options{}))
}

// A user who may not touch one of the keys is refused them all when they go together.
func TestReleasesBesideADeniedKey(t *testing.T) {
	server := redistest.Start(t, 1)[0]
	server.Must("ACL", "SETUSER", "app", "on", ">secret", "~app:*", "+evalsha", "+eval", "+get",
		"+pttl", "+del", "+hello")
	p := clientOf(t, server, redis.Options{Username: "app", Password: "secret"})
	outcomes, _ := together.Release(t, server, p, func(i int) string {
		if i%16 == 5 {
			return "theirs:" + together.Key(i)
		}
		return "app:" + together.Key(i)
	})
	for i, o := range outcomes {
		if denied := i%16 == 5; denied && !strings.Contains(fmt.Sprint(o.Err), "NOPERM") {
			t.Errorf("release %d = %v, %v, want NOPERM", i, o.Reply, o.Err)
		} else if !denied && (o.Reply != int64(1) || o.Err != nil) {
			t.Errorf("release %d = %v, %v, want 1", i, o.Reply, o.Err)
		}
	}
}

// A server of a cluster refuses keys of several slots, also if all of them are its own.
func TestReleasesOnAServerOfACluster(t *testing.T) {
	t.Parallel()
	server := redistest.StartCluster(t, 1)[0]
	together.ManyScripts(t, server, clientOf(t, server, redis.Options{}), together.Key)
}

// A client that knows of several servers may have to send releases to several.
func TestReleasesOfAClusterOrRingClient(t *testing.T) {
	t.Parallel()
	server := redistest.StartCluster(t, 1)[0]
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	defer func() { _ = cluster.Close() }()
	together.ManyScripts(t, server, goredis.NewPool(cluster), together.KeyOfOneSlot)

	server = redistest.Start(t, 1)[0]
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"shard": server.Addr()}})
	defer func() { _ = ring.Close() }()
	together.ManyScripts(t, server, goredis.NewPool(ring), together.Key)
}
