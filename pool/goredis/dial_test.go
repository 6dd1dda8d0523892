package goredis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool/goredis"
)

// unknownCA returns the address of a TLS server whose certificate nobody has signed.
func unknownCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	self := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, self, self, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert},
		PrivateKey: key}}}
	return listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, tls.Server(c, config)) })
}

// lesson L74: with default options, go-redis dials for longer than a node timeout, and says no more
// than that time is up.
func TestTheFirstLockOnANodeThatCannotBeReachedSaysWhy(t *testing.T) {
	fails := func(redis.DialHook) redis.DialHook {
		return func(context.Context, string, string) (net.Conn, error) { return nil, errRoute }
	}
	inBubbleHooked(t, dialHook(fails), func(b *bench) {
		rl := redlock.New(b.pool)
		if err := rl.NewMutex("x").TryLock(); !errors.Is(err, redlock.ErrNoQuorum) ||
			!errors.Is(err, errRoute) {
			t.Errorf("TryLock: %v, want it to match ErrNoQuorum and %v", err, errRoute)
		}
		if err := rl.Close(); err != nil {
			t.Error(err)
		}
	})
}

// lesson L74: on a busy machine it takes more than one node timeout until an attempt to connect
// has failed.
func TestANodeThatCannotBeReachedSaysWhy(t *testing.T) {
	t.Parallel()
	port, ca := redistest.Refused, unknownCA(t)
	connect := port + ": connect: connection refused"
	for _, c := range []struct {
		name   string
		client redis.UniversalClient
		want   string
	}{
		{"wrong port", redis.NewClient(&redis.Options{Addr: port}), connect},
		{"unknown host", redis.NewClient(&redis.Options{Addr: "not..a..name:6379"}),
			"not..a..name"},
		{"unknown CA", redis.NewClient(&redis.Options{Addr: ca, TLSConfig: &tls.Config{}}),
			"signed by unknown authority"},
		{"one dial", redis.NewClient(&redis.Options{Addr: port, DialerRetries: 1}), connect},
		{"cluster", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{port}}), connect},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			defer c.client.Close()
			p := goredis.NewPool(c.client)
			rl := redlock.New(p)
			defer rl.Close()
			says := func(what string, call func() error) {
				t.Helper()
				eventually(t, func() error {
					if err := call(); err == nil || !strings.Contains(err.Error(), c.want) ||
						strings.Contains(err.Error(), "\n") {
						return fmt.Errorf("%s: %v, want an error of one line that says %q", what,
							err, c.want)
					}
					return nil
				})
			}
			says("TryLock", func() error {
				err := rl.NewMutex("x").TryLock()
				if !errors.Is(err, redlock.ErrNoQuorum) {
					t.Errorf("TryLock: %v, want it to match ErrNoQuorum", err)
				}
				return err
			})
			says("Check", func() error {
				report, err := doctor.Check(t.Context(), rl)
				if err != nil {
					t.Fatal(err)
				}
				return report.Nodes[0].Err
			})
			says("Inspect", func() error {
				inspection, err := rl.Inspect(t.Context(), "x")
				if err != nil {
					t.Fatal(err)
				}
				return inspection.Nodes[0].Err
			})
			says("Explain", p.Explain)
		})
	}
}

// A Ring finds out by itself that its shards are down.
func TestARingThatCannotBeReachedSaysWhy(t *testing.T) {
	client := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redistest.Refused},
		HeartbeatFrequency: time.Hour})
	defer client.Close()
	p := goredis.NewPool(client)
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, _ = p.SetNX(ctx, "x", "v", time.Second)
		if err := p.Explain(); err == nil || !strings.Contains(err.Error(), "refused") {
			return fmt.Errorf("Explain: %v, want an error that says refused", err)
		}
		return nil
	})
}

// With Sentinel, each attempt to connect asks the sentinels first, several times. Its error is
// known when that has failed, after DialTimeout at most.
func TestSentinelsThatCannotBeReached(t *testing.T) {
	t.Parallel()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "m", SentinelAddrs: []string{redistest.Refused},
		DialTimeout: 300 * time.Millisecond, DialerRetries: 1, // the last dials outlive the test
	})
	defer client.Close()
	rl := redlock.New(goredis.NewPool(client))
	defer rl.Close()
	const want = "all sentinels specified in configuration are unreachable"
	for end := time.Now().Add(20 * time.Second); ; {
		err := rl.NewMutex("x").TryLock()
		if strings.Contains(err.Error(), want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("TryLock: %v, want an error that says %q", err, want)
		}
	}
}

var errRoute = errors.New("no route")

// What was in the way is not told any more when it is not in the way.
func TestAFailureToConnectIsForgotten(t *testing.T) {
	var down atomic.Bool
	flaky := func(next redis.DialHook) redis.DialHook {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			if down.Load() {
				return nil, errRoute
			}
			return next(ctx, network, addr)
		}
	}
	for name, repair := range map[string]func(b *bench){
		"by a connection": func(b *bench) {
			down.Store(false)
			if ok, err := b.pool.SetNX(b.ctx, "k", "v", time.Hour); !ok || err != nil {
				b.Errorf("SetNX = %v, %v", ok, err)
			}
		},
		"by a reply": func(b *bench) { // over the connection that is open already
			close(b.gates["SET busy"])
			synctest.Wait()
		},
		"by time": func(*bench) { time.Sleep(2 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleHooked(t, dialHook(flaky), func(b *bench) {
				down.Store(false)
				if err := b.pool.Explain(); err != nil {
					t.Errorf("before any dial: %v", err)
				}
				b.hold("busy")
				b.set(b.ctx, "busy")
				down.Store(true)
				b.pool.Do(b.within(50*time.Millisecond), "PING")
				if err := b.pool.Explain(); !errors.Is(err, errRoute) {
					t.Errorf("after a failed dial: %v, want %v", err, errRoute)
				}
				repair(b)
				if err := b.pool.Explain(); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

func TestPoolsOfOneClientShareItsHook(t *testing.T) {
	var watched func() bool // lesson L97: other tests' clients come and go meanwhile
	func() {
		client := redis.NewClient(&redis.Options{Addr: redistest.Refused, DialerRetries: 1})
		defer client.Close()
		watched = goredis.Watched(client)
		if watched() {
			t.Error("a client without a pool is remembered")
		}
		pools := make([]*goredis.Pool, 100)
		var wg sync.WaitGroup
		for i := range pools {
			wg.Go(func() { pools[i] = goredis.NewPool(client) })
		}
		wg.Wait()
		_, _ = pools[0].Do(t.Context(), "PING")
		for _, p := range pools {
			if err := p.Explain(); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Fatalf("another Pool of the client: %v, want what the first learned", err)
			}
		}
		if !watched() {
			t.Error("the client is not remembered")
		}
	}()
	for end := time.Now().Add(10 * time.Second); watched(); runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("a client is remembered that nobody has any more")
		}
		time.Sleep(time.Millisecond)
	}
}

// lesson L93: NewPool adds its hook to clients that are in use. Before v9.22, go-redis reads its
// hooks without a lock, which the race detector sees.
func TestAPoolOfClientsInUse(t *testing.T) {
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }
	for name, client := range map[string]redis.UniversalClient{
		"client": redis.NewClient(&redis.Options{Dialer: refuse, DialerRetries: 1, MaxRetries: -1}),
		"ring": redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"shard": "a:1"}, Dialer: refuse, DialerRetries: 1,
			MaxRetries:         -1,
			HeartbeatFrequency: time.Hour,
		}),
	} {
		t.Run(name, func(t *testing.T) {
			defer client.Close()
			var wg sync.WaitGroup
			begun := make(chan struct{})
			wg.Go(func() {
				for i := range 1000 {
					_ = client.Ping(t.Context()).Err()
					if i == 0 {
						close(begun)
					}
				}
			})
			<-begun
			goredis.NewPool(client)
			wg.Wait()
		})
	}
}
