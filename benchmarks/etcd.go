package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// The program runs itself again for each member of etcd, with etcdEnv set to a member as JSON. It
// says "ready" in a line, and ends with its standard input.
const etcdEnv = "REDLOCK_BENCHMARK_ETCD"

// member is one of an etcd cluster.
type member struct {
	Name, Dir    string
	Client, Peer string // addresses
	Cluster      string // all members, as etcd's flag has them
}

// etcdMain is the program of a member.
func etcdMain(text string, in io.Reader, out io.Writer) error {
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = m.Name, m.Dir, m.Cluster
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.UnsafeNoFsync = true // the Redis servers sync nothing either
	client, peer := []url.URL{address(m.Client)}, []url.URL{address(m.Peer)}
	c.ListenClientUrls, c.AdvertiseClientUrls = client, client
	c.ListenPeerUrls, c.AdvertisePeerUrls = peer, peer
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return err
	}
	if _, err := fmt.Fprintln(out, `"ready"`); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

func address(hostPort string) url.URL { return url.URL{Scheme: "http", Host: hostPort} }

// startEtcd starts a cluster of n members, each with its data in a directory, and returns their
// addresses. They end with the scope.
func startEtcd(s *scope, n int) (addrs []string, err error) {
	all := make([]member, n)
	var cluster []string
	for i := range all {
		all[i] = member{Name: fmt.Sprint("m", i), Dir: s.TempDir(),
			Client: redistest.FreeAddr(s, "127.0.0.1"), Peer: redistest.FreeAddr(s, "127.0.0.1")}
		cluster = append(cluster, all[i].Name+"=http://"+all[i].Peer)
		addrs = append(addrs, all[i].Client)
	}
	var members []*crew
	for _, m := range all {
		m.Cluster = strings.Join(cluster, ",")
		text, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		c, err := again(etcdEnv, string(text))
		if err != nil {
			return nil, err
		}
		s.Cleanup(c.dismiss)
		members = append(members, c)
	}
	for _, c := range members {
		if err := c.ready(); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// etcdCandidate is etcd's.
type etcdCandidate struct{ *concurrency.Election }

func (c etcdCandidate) Campaign(ctx context.Context) error { return c.Election.Campaign(ctx, "a") }

func standEtcd(addrs []string) (candidate, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client,
		concurrency.WithTTL(int(electionExpiry/time.Second)))
	if err != nil {
		return nil, err
	}
	return etcdCandidate{concurrency.NewElection(session, "/scheduler")}, nil
}
