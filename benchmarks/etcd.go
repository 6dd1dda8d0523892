package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// etcdMembers is how many members the cluster has.
const etcdMembers = 3

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

// etcd is a cluster of processes of its own.
type etcd struct {
	members []*crew
	addrs   []string
}

// startEtcd starts a cluster of n members that keep their data in dir.
func startEtcd(s *scope, n int) (*etcd, error) {
	all := make([]member, n)
	var cluster []string
	for i := range all {
		all[i] = member{Name: fmt.Sprint("m", i), Dir: s.TempDir(),
			Client: redistest.FreeAddr(s, "127.0.0.1"), Peer: redistest.FreeAddr(s, "127.0.0.1")}
		cluster = append(cluster, all[i].Name+"=http://"+all[i].Peer)
	}
	e := &etcd{}
	s.Cleanup(func() {
		for _, m := range e.members {
			m.dismiss()
		}
	})
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
		e.members, e.addrs = append(e.members, c), append(e.addrs, m.Client)
	}
	for _, c := range e.members {
		if err := c.ready(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// cpu is the processor time that the members have used together. The kernel counts in hundredths
// of a second.
func (e *etcd) cpu() (sum time.Duration) {
	for _, m := range e.members {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
		_, after, _ := strings.Cut(string(stat), ") ")
		for i, f := range strings.Fields(after) {
			if i == 11 || i == 12 { // utime, stime
				ticks, _ := strconv.Atoi(f)
				sum += time.Duration(ticks) * time.Second / 100
			}
		}
	}
	return sum
}

// again starts this program again with a variable set, in a session of its own.
func again(variable, value string) (*crew, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &crew{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), variable+"="+value)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.orders, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.send, c.answers = json.NewEncoder(c.orders), json.NewDecoder(out)
	return c, nil
}

// etcdLocker is a client with one session, whose lease expires as other contenders' keys do.
type etcdLocker struct {
	client  *clientv3.Client
	session *concurrency.Session
}

func openEtcd(addrs []string) (locker, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(expiry/time.Second)))
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &etcdLocker{client, session}, nil
}

func (l *etcdLocker) Lock(ctx context.Context, name string) (func() error, error) {
	m := concurrency.NewMutex(l.session, "/lock/"+name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return func() error { return m.Unlock(context.Background()) }, nil
}

func (l *etcdLocker) Close() {
	_ = l.session.Close()
	_ = l.client.Close()
}
