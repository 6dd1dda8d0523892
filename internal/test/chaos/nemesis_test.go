package chaos

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// A fault that does nothing would prove nothing: each is tried alone, and its end too.
func TestFaultsOfServers(t *testing.T) {
	redistest.Require(t)
	const expiry = 500 * time.Millisecond
	set := func(s *redistest.Server) error {
		c, err := redistest.Dial(s.Addr())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Do("SET", "k", "v", "PX", "60000")
		return err
	}
	refuses := func(text string) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, s *redistest.Server) {
			if err := set(s); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("SET: %v, want %s", err, text)
			}
		}
	}
	holds := func(want any) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, s *redistest.Server) {
			if got := s.Must("GET", "k"); got != want {
				t.Errorf("the key is %v, want %v", got, want)
			}
		}
	}
	ahead := func(s *redistest.Server) time.Duration { // of the clock here
		ttl, _ := s.Must("PTTL", "k").(int64)
		return time.Minute - time.Duration(ttl)*time.Millisecond
	}
	for fault, c := range map[Fault]struct {
		during, after func(*testing.T, *redistest.Server)
	}{
		Freeze: {during: func(t *testing.T, s *redistest.Server) {
			answered := make(chan error, 1)
			go func() { answered <- set(s) }()
			select {
			case err := <-answered:
				t.Errorf("a frozen server answered: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
		}, after: holds("v")},
		Crash:      {during: refuses("refused"), after: holds("v")},
		Lose:       {during: refuses("refused"), after: holds(nil)},
		LoseAtOnce: {during: holds(nil)},
		LoadSlowly: {during: refuses("LOADING"), after: holds("v")},
		Slow: {during: func(t *testing.T, s *redistest.Server) {
			// A busy machine may keep what slows the server waiting while commands go through.
			eventually(t, "five commands to take 30 ms", func() bool {
				start := time.Now()
				for range 5 {
					s.Must("PING")
				}
				return time.Since(start) >= 30*time.Millisecond
			})
		}, after: holds("v")},
		OOM:        {during: refuses("OOM"), after: holds("v")},
		Misconf:    {during: refuses("MISCONF"), after: holds("v")},
		ReadOnly:   {during: refuses("READONLY"), after: holds("v")},
		NoReplicas: {during: refuses("NOREPLICAS"), after: holds("v")},
		Forget: {during: func(t *testing.T, s *redistest.Server) {
			if _, err := s.Do("EVALSHA", s.Must("GET", "script").(string), "0"); err == nil ||
				!strings.Contains(err.Error(), "NOSCRIPT") {
				t.Errorf("EVALSHA: %v", err)
			}
		}},
		Hangup: {during: func(t *testing.T, s *redistest.Server) {
			list, _ := s.Must("CLIENT", "LIST").(string)
			if n := strings.Count(list, "\n"); n != 1 {
				t.Errorf("%d connections, want its own alone:\n%s", n, list)
			}
		}},
		Mute: {during: func(t *testing.T, s *redistest.Server) {
			eventually(t, "a subscription to break", func() bool {
				c := s.Dial()
				defer c.Close()
				if _, err := c.Do("SUBSCRIBE", "c"); err != nil {
					return true
				}
				_, err := c.Receive()
				return err != nil
			})
		}, after: holds("v")},
		Flush: {during: holds(nil)},
		Rate:  {after: holds("v")}, // half a per cent is more than is to be seen in so short a time
		WildRate: {during: func(t *testing.T, s *redistest.Server) {
			start, before := time.Now(), ahead(s)
			for ran, real := time.Duration(0), time.Duration(0); ; {
				ran, real = ahead(s)-before, time.Since(start)
				if ran > real+50*time.Millisecond || ran < real-50*time.Millisecond {
					return
				}
				if real > 5*time.Second {
					t.Fatalf("the clock ran %v in %v", ran, real)
				}
			}
		}},
		Jump: {during: func(t *testing.T, s *redistest.Server) {
			if d := ahead(s).Abs(); d < expiry-100*time.Millisecond {
				t.Errorf("the clock jumped by %v, want %v", d, expiry)
			}
		}},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			opts := []redistest.Option{redistest.AOF()}
			if _, err := exec.LookPath("gcc"); err == nil {
				opts = append(opts, redistest.Clock())
			} else if fault == Rate || fault == WildRate || fault == Jump {
				redistest.LeaveOut(t, redistest.Clocks, err.Error())
				t.Skip("no clock shim")
			}
			s := redistest.Start(t, 1, opts...)[0]
			s.Must("EVAL", "for i = 1, 20000 do redis.call('SET', 'pad:' .. i, i) end", "0")
			s.Must("SET", "script", s.Must("SCRIPT", "LOAD", "return 1").(string))
			s.Must("SET", "k", "v", "PX", "60000")
			undo := nodeFault(t, s, fault, expiry, expiry)
			if c.during != nil {
				c.during(t, s)
			}
			undo()
			if c.after != nil {
				c.after(t, s)
			}
			if err := set(s); err != nil {
				t.Errorf("after the fault: %v", err)
			}
		})
	}
}

// A test may have several rounds. The partitions of each end by themselves. The clean-up of those
// that another round has removed would fail the test.
func TestEachRoundHasPartitionsOfItsOwn(t *testing.T) {
	redistest.Require(t)
	for range 2 {
		if _, err := newPartitions(t); err != nil {
			redistest.LeaveOut(t, redistest.Partitions, err.Error())
			t.Skip("no partitions")
		}
	}
}

func TestPartitionsAreOneWay(t *testing.T) {
	redistest.Require(t)
	p, err := newPartitions(t)
	if err != nil {
		redistest.LeaveOut(t, redistest.Partitions, err.Error())
		t.Skip("no partitions")
	}
	s := redistest.Start(t, 2, redistest.OwnAddress())
	monitor := s[0].Monitor()
	client, server := sources(1)[0], addrIP(s[0].Addr())
	ping := func(s *redistest.Server, mark string, within time.Duration) error {
		c, err := dialFrom(client, s.Addr(), within)
		if err != nil {
			return err
		}
		defer c.Close()
		return ask(c, mark, within)
	}
	open, err := dialFrom(client, s[0].Addr(), comesThrough)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	executed := func(mark string) bool {
		return strings.Contains(strings.Join(monitor.Lines(),
			"\n"), mark)
	}

	check(p.cut(server, client)) // replies
	if err := ask(open, "reply-cut", isDropped); err == nil {
		t.Error("the reply came through")
	}
	eventually(t, "the request to come through", func() bool { return executed("reply-cut") })
	check(p.join(server, client))
	check(p.cut(client, server)) // requests
	if err := ping(s[0], "request-cut", isDropped); err == nil || executed("request-cut") {
		t.Errorf("the request came through: %v", err)
	}
	if err := ping(s[1], "other", comesThrough); err != nil {
		t.Errorf("the other server is cut off too: %v", err)
	}
	check(p.cut(client, server)) // once more: two faults may want the same
	check(p.join(client, server))
	if err := ping(s[0], "joined-once", isDropped); err == nil {
		t.Error("one of two cuts was joined, and the request came through")
	}
	check(p.join(client, server))
	if err := ping(s[0], "joined", comesThrough); err != nil {
		t.Errorf("after the partition: %v", err)
	}
}
