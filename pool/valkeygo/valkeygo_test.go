package valkeygo_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	client "github.com/valkey-io/valkey-go"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/pooltest"
	"github.com/redlock-go/redlock/pool/valkeygo"
)

// options are those that the package comment asks for.
func options(addr string) client.ClientOption {
	return client.ClientOption{
		InitAddress:       []string{addr},
		ForceSingleClient: true,
		DisableCache:      true,
	}
}

// newClient returns a client that is closed with the test. The server may be down.
func newClient(t testing.TB, o client.ClientOption) client.Client {
	t.Helper()
	c, err := client.NewClient(o)
	if c == nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for protocol, resp2 := range map[string]bool{"RESP2": true, "RESP3": false} {
		suite := func(t *testing.T, addr string) {
			pooltest.Run(t, func(t *testing.T) pool.Pool {
				o := options(addr)
				o.AlwaysRESP2 = resp2
				return valkeygo.NewPool(newClient(t, o))
			})
		}
		t.Run("embedded "+protocol, func(t *testing.T) {
			suite(t, redistest.Embedded(t, 1)[0].Addr())
		})
		t.Run("real "+protocol, func(t *testing.T) {
			suite(t, redistest.Start(t, 1)[0].Addr())
		})
	}
	addr := redistest.Start(t, 1)[0].Addr()
	own, always := options(addr), options(addr)
	own.DisableAutoPipelining, always.AlwaysPipelining = true, true
	for name, o := range map[string]client.ClientOption{
		"DisableAutoPipelining": own,
		"AlwaysPipelining":      always,
		"the default options":   {InitAddress: []string{addr}},
	} {
		t.Run("real with "+name, func(t *testing.T) {
			p := valkeygo.NewPool(newClient(t, o))
			pooltest.Run(t, func(*testing.T) pool.Pool { return p })
		})
	}
}

var (
	_ pool.Pool       = (*valkeygo.Pool)(nil)
	_ pool.Subscriber = (*valkeygo.Pool)(nil)
	_ pool.Doer       = (*valkeygo.Pool)(nil)
	_ pool.Addressed  = (*valkeygo.Pool)(nil)
	_ pool.Starter    = (*valkeygo.Pool)(nil)
	_ pool.Carrier    = (*valkeygo.Pool)(nil)
	_ pool.Explainer  = (*valkeygo.Pool)(nil)
)

// lesson L76: a node has a name that people know.
func TestAddr(t *testing.T) {
	o := options("127.0.0.1:1")
	o.Username, o.Password = "app", "secret"
	if addr := valkeygo.NewPool(newClient(t, o)).Addr(); addr != "127.0.0.1:1" {
		t.Errorf("the address is %q", addr)
	}
}

func TestBadUseIsAnError(t *testing.T) {
	ctx := t.Context()
	var misuse *redlock.OptionError
	err := redlock.New(valkeygo.NewPool(nil)).NewMutex("x").TryLock()
	if !errors.As(err, &misuse) || misuse.Value != "pool 0 is nil" {
		t.Errorf("TryLock with a nil client: %v", err)
	}
	addr := redistest.Embedded(t, 1)[0].Addr()
	p := valkeygo.NewPool(newClient(t, options(addr)))
	for _, args := range [][]any{{}, {""}, {"SUBSCRIBE", "c"}} {
		if _, err := p.Do(ctx, args...); err == nil {
			t.Errorf("Do(%q): no error", args)
		}
	}
	if reply, err := p.Do(ctx, "PING"); reply != "PONG" || err != nil {
		t.Errorf("PING = %v, %v, want PONG", reply, err)
	}
}

// After the client's Close, which is the caller's, everything fails at once.
func TestAClientThatIsClosed(t *testing.T) {
	c := newClient(t, options(redistest.Embedded(t, 1)[0].Addr()))
	p := valkeygo.NewPool(c)
	if _, err := p.SetNX(t.Context(), "k", "v", time.Minute); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for range 3 {
		_, setErr := p.SetNX(t.Context(), "k", "v", time.Minute)
		_, doErr := p.Do(t.Context(), "PING")
		for _, err := range []error{setErr, doErr} {
			if !errors.Is(err, client.ErrClosing) {
				t.Errorf("with a client that is closed: %v, want %v", err, client.ErrClosing)
			}
		}
	}
	if err := p.Explain(); !errors.Is(err, client.ErrClosing) {
		t.Errorf("Explain: %v, want %v", err, client.ErrClosing)
	}
	if _, err := p.Subscribe(t.Context(), "c"); !errors.Is(err, client.ErrClosing) {
		t.Errorf("Subscribe: %v, want %v", err, client.ErrClosing)
	}
}

// answered returns a Pool of a server that answers each command of a lock as given, and closes the
// connection.
func answered(t *testing.T, answer string) *valkeygo.Pool {
	t.Helper()
	var served sync.WaitGroup
	o := options("node:6379")
	o.AlwaysRESP2 = true // so that there is no reply to HELLO to be understood
	o.ClientSetInfo = client.DisableClientSetInfo
	o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		ours, theirs := net.Pipe()
		served.Go(func() {
			redistest.Answer(theirs, func(command []string) (string, bool) {
				if command[0] == "HELLO" {
					return "-ERR unknown command 'HELLO'\r\n", true
				}
				return answer, false
			})
		})
		return ours, nil
	}
	t.Cleanup(served.Wait)
	return valkeygo.NewPool(newClient(t, o))
}

// lesson L96: what is neither OK nor null is neither a grant nor a refusal.
func TestOnlyOKIsAGrant(t *testing.T) {
	for answer, want := range map[string]any{
		"+OK\r\n":              true,
		"$2\r\nOK\r\n":         true,
		"$-1\r\n":              false,
		"*-1\r\n":              false,
		"_\r\n":                false,
		"+QUEUED\r\n":          nil,
		"+ok\r\n":              nil,
		"+\r\n":                nil,
		"$0\r\n\r\n":           nil,
		":1\r\n":               nil,
		":0\r\n":               nil,
		"*0\r\n":               nil,
		"*1\r\n$2\r\nOK\r\n":   nil,
		"-ERR OK\r\n":          nil,
		"#t\r\n":               nil,
		",1.5\r\n":             nil,
		"%1\r\n+OK\r\n+OK\r\n": nil,
		"$1\r\nO\r\nK\r\n":     nil,
		"+OK":                  nil,
		"":                     nil,
		"OK\r\n":               nil,
		"$2\r\nOK":             nil,
	} {
		// With a deadline, valkey-go reads on the caller's goroutine, where a panic is an error.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		ok, err := answered(t, answer).SetNX(ctx, "k", "v", time.Second)
		if want == nil {
			if err == nil || ok {
				t.Errorf("%q = %v, %v, want an error", answer, ok, err)
			}
		} else if ok != want || err != nil {
			t.Errorf("%q = %v, %v, want %v", answer, ok, err, want)
		}
		cancel()
	}
}

// Numbers arrive as they are, whichever were sent before or are sent at the same time.
func TestNumbers(t *testing.T) {
	p := valkeygo.NewPool(newClient(t, options(redistest.Start(t, 1)[0].Addr())))
	add := &pool.Script{
		Name: "add", Source: `return tonumber(ARGV[1]) + 1`,
		ID: "b7be0a850e2db3a846c2a50affe4a993c4fabbcd",
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := int64(-100); i <= 100; i++ { // more than texts are kept
				if got, err := p.Eval(t.Context(), add, nil, i*int64(n)); got != i*int64(n)+1 {
					t.Errorf("%d + 1 = %v, %v", i*int64(n), got, err)
				}
			}
		})
	}
	all.Wait()
}
