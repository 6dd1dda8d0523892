package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// member is one of an etcd cluster.
type member struct {
	Name, Dir    string
	Client, Peer string // addresses
	Cluster      string // all members, as etcd's flag has them
}

// etcdMain is the program of a member. It says "ready".
func etcdMain(m member, orders *json.Decoder, answers *json.Encoder) error {
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = m.Name, m.Dir, m.Cluster
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.UnsafeNoFsync = true // the Redis servers sync nothing either
	client := []url.URL{{Scheme: "http", Host: m.Client}}
	peer := []url.URL{{Scheme: "http", Host: m.Peer}}
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
	_ = answers.Encode("ready")
	_, _ = orders.Token() // until there are no more
	return nil
}

// startEtcd starts a cluster of n members, each with its data in a directory, and returns their
// addresses. They end with the scope.
func startEtcd(s *scope, n int) (addrs []string, err error) {
	all := make([]member, n)
	var jobs []job
	var cluster []string
	for i := range all {
		all[i] = member{Name: fmt.Sprint("m", i), Dir: s.TempDir(),
			Client: redistest.FreeAddr(s, "127.0.0.1"), Peer: redistest.FreeAddr(s, "127.0.0.1")}
		cluster = append(cluster, all[i].Name+"=http://"+all[i].Peer)
		addrs, jobs = append(addrs, all[i].Client), append(jobs, job{Etcd: &all[i]})
	}
	for i := range all {
		all[i].Cluster = strings.Join(cluster, ",")
	}
	members, err := startAll(jobs)
	for _, m := range members {
		s.Cleanup(m.dismiss)
	}
	return addrs, err
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
