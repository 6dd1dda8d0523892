package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestServersAreIndependent(t *testing.T) {
	t.Parallel()
	s := Start(t, 3)
	for i, s := range s {
		if got := s.Must("SET", "k", fmt.Sprint(i)); got != "OK" {
			t.Fatalf("SET: %v", got)
		}
	}
	for i, s := range s {
		if got := s.Must("GET", "k"); got != fmt.Sprint(i) {
			t.Errorf("server %d holds %v", i, got)
		}
	}
}

// Beside the test above, two tests start servers at the same time.
func TestRepliesOfEveryKind(t *testing.T) {
	t.Parallel()
	s := Start(t, 1)[0]
	for _, c := range []struct {
		script string
		want   any
	}{
		{"return 'text'", "text"},
		{"return ''", ""},
		{"return 9007199254740991", int64(9007199254740991)},
		{"return false", nil},
		{"return {1, 'a', {}, false}", []any{int64(1), "a", []any{}}},
		{"return {ok='fine'}", "fine"},
	} {
		got := s.Must("EVAL", c.script, "0")
		want := c.want
		if a, ok := want.([]any); ok && len(a) == 3 {
			want = append(a, nil)
		}
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
			t.Errorf("%s: got %#v, want %#v", c.script, got, want)
		}
	}
	_, err := s.Do("NONSENSE")
	var reply Error
	if !errors.As(err, &reply) || !strings.HasPrefix(string(reply), "ERR unknown command") {
		t.Errorf("an unknown command: %v", err)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	s := Start(t, 1)[0]
	s.Freeze()
	c := s.Dial() // the kernel accepts
	defer c.Close()
	answered := make(chan error, 1)
	go func() { _, err := c.Do("SET", "k", "v"); answered <- err }()
	select {
	case err := <-answered:
		t.Fatalf("a frozen server answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.Thaw()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if got := s.Must("GET", "k"); got != "v" {
		t.Errorf("what was sent to the frozen server was not executed: %v", got)
	}
}

func TestKillLosesData(t *testing.T) {
	t.Parallel()
	s := Start(t, 1)[0]
	s.Must("SET", "k", "v")
	addr, pid := s.Addr(), s.PID()
	s.Kill()
	if _, err := s.Do("PING"); err == nil {
		t.Fatal("a killed server answered")
	}
	s.Restart()
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("restarted as %s pid %d, was %s pid %d", s.Addr(), s.PID(), addr, pid)
	}
	if got := s.Must("GET", "k"); got != nil {
		t.Errorf("data without AOF survived: %v", got)
	}
}

func TestAOFKeepsData(t *testing.T) {
	t.Parallel()
	s := Start(t, 1, AOF())[0]
	s.Must("SET", "k", "v")
	s.Freeze()
	s.Kill() // works on a frozen one
	s.Restart()
	if got := s.Must("GET", "k"); got != "v" {
		t.Errorf("after Kill: %v", got)
	}
	s.Stop()
	s.Restart()
	if got := s.Must("GET", "k"); got != "v" {
		t.Errorf("after Stop: %v", got)
	}
}

func TestRestartWithOptionsForOneRun(t *testing.T) {
	t.Parallel()
	s := Start(t, 1, AOF())[0]
	s.Must("EVAL", "for i = 1, 20000 do redis.call('SET', i, 'v') end", "0")
	// While it loads, the server looks at its connections once in 1024 keys: twice a second,
	// twenty times.
	s.Restart(Loading(), Args("--key-load-delay", "500"))
	if _, err := s.Do("GET", "1"); err == nil || !strings.HasPrefix(err.Error(), "LOADING ") {
		t.Errorf("while loading: %v", err)
	}
	s.Restart()
	if got := s.Must("GET", "20000"); got != "v" {
		t.Errorf("after the plain restart: %v", got)
	}
}

func TestPasswordAndOwnAddress(t *testing.T) {
	t.Parallel()
	s := Start(t, 2, Password("geheim"), OwnAddress())
	for i, s := range s {
		if want := fmt.Sprintf("127.0.0.%d:", 11+i); !strings.HasPrefix(s.Addr(), want) {
			t.Errorf("server %d listens on %s, want %s…", i, s.Addr(), want)
		}
		if got := s.Must("PING"); got != "PONG" {
			t.Error(got)
		}
		c := s.Dial()
		if _, err := c.Do("PING"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH ") {
			t.Errorf("without the password: %v", err)
		}
		_ = c.Close()
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	s := Start(t, 2, Clock())
	clock := func(s *Server) (least, most time.Duration) { // ahead of ours
		asked := time.Now()
		a, _ := s.Must("TIME").([]any)
		told := time.Now()
		var sec, usec int64
		if _, err := fmt.Sscan(fmt.Sprintln(a...), &sec, &usec); err != nil {
			t.Fatal(err)
		}
		now := time.Unix(sec, usec*1000)
		return now.Sub(told), now.Sub(asked)
	}
	between := func(what string, s *Server, from, to time.Duration) {
		t.Helper()
		if least, most := clock(s); to < least-time.Second || from > most+time.Second {
			t.Errorf("%s: the clock is between %v and %v ahead, want one between %v and %v", what,
				least, most, from, to)
		}
	}
	near := func(what string, s *Server, want time.Duration) {
		t.Helper()
		between(what, s, want, want)
	}
	near("at first", s[0], 0)
	set := time.Now()
	s[0].Must("SET", "k", "v", "PX", "60000")
	s[0].Jump(30 * time.Second)
	near("after a jump", s[0], 30*time.Second)
	ttl, _ := s[0].Must("PTTL", "k").(int64)
	if least := 29000 - time.Since(set).Milliseconds(); ttl < least || ttl > 30000 {
		t.Errorf("PTTL after 30 s of 60: %d ms, want %d at least", ttl, least)
	}
	s[0].Jump(31 * time.Second)
	if got := s[0].Must("GET", "k"); got != nil {
		t.Errorf("the key outlived its expiry: %v", got)
	}
	s[0].Jump(-time.Hour)
	near("after a jump back", s[0], 61*time.Second-time.Hour)
	near("the other server", s[1], 0)

	s[1].Must("SET", "k", "v", "PX", "50000")
	s[1].Rate(99_000_000) // a hundred times as fast
	start := time.Now()
	for s[1].Must("GET", "k") != nil {
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(start); took > 25*time.Second {
		t.Errorf("fifty seconds at a hundredfold took %v", took)
	}
	s[1].Rate(0)
	least, most := clock(s[1])
	s[1].Restart()
	between("after restart", s[1], least, most)
}

func TestCommandsAndMonitor(t *testing.T) {
	t.Parallel()
	s := Start(t, 1, Password("p"))[0]
	m := s.Monitor()
	before := s.Commands()
	sum := s.CommandsProcessed()
	s.Must("SET", "k", "v")
	s.Must("EVAL", "return redis.call('DEL', KEYS[1])", "1", "k")
	if got := m.Lines(); len(got) < 3 || !strings.HasSuffix(got[len(got)-1], `"DEL" "k"`) ||
		!strings.Contains(got[len(got)-1], "lua") {
		t.Errorf("monitor: %q", got)
	}
	after := s.Commands()
	for name, want := range map[string]int64{"set": 1, "eval": 1, "del": 1} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s was called %d times, want %d", name, got, want)
		}
	}
	if got := s.CommandsProcessed() - sum; got != 3 {
		t.Errorf("%d commands in all, want 3: %v, before %v", got, after, before)
	}
}

func TestEmbeddedNodes(t *testing.T) {
	t.Parallel()
	for _, n := range Embedded(t, 2) {
		if got := n.Must("SET", "k", "v", "NX", "PX", "20"); got != "OK" {
			t.Fatalf("SET: %v", got)
		}
		for n.Must("GET", "k") != nil { // until it expires, or the test does
			time.Sleep(time.Millisecond)
		}
		n.Must("SET", "k", "v")
		addr := n.Addr()
		n.Kill()
		if _, err := n.Do("PING"); err == nil {
			t.Error("a killed node answered")
		}
		n.Restart()
		if got := n.Must("GET", "k"); got != nil || n.Addr() != addr {
			t.Errorf("restarted at %s with %v, was %s", n.Addr(), got, addr)
		}
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	var s []*Server
	t.Run("inner", func(t *testing.T) {
		s = Start(t, 2)
		s[0].Freeze()
	})
	if s == nil {
		t.Skip("no servers were started")
	}
	for _, s := range s {
		if s.proc.Running() {
			t.Errorf("process %d outlived its test", s.PID())
		}
		if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", s.Dir(), err)
		}
	}
}

func TestServersDieWithTheTestProcess(t *testing.T) {
	if os.Getenv("REDISTEST_CHILD") != "" {
		s := Start(t, 1)[0]
		fmt.Println("addr:", s.Addr())
		killSelf()
	}
	Require(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersDieWithTheTestProcess$", "-test.v")
	cmd.Env = append(os.Environ(), "REDISTEST_CHILD=1")
	out, _ := cmd.Output()
	_, rest, ok := strings.Cut(string(out), "addr: ")
	if !ok {
		t.Fatalf("the child said %q", out)
	}
	addr := strings.Fields(rest)[0]
	for end := time.Now().Add(replyTimeout); ; time.Sleep(time.Millisecond) {
		c, err := Dial(addr)
		if err != nil {
			return
		}
		_ = c.Close()
		if time.Now().After(end) {
			t.Fatalf("the server on %s outlived its test process", addr)
		}
	}
}

func TestRequire(t *testing.T) {
	t.Setenv("REDLOCK_REDIS_SERVER", "/nonexistent/redis-server")
	for _, c := range []struct {
		env         string
		skips, dies bool
	}{{"", true, false}, {"1", false, true}} {
		t.Setenv("REDLOCK_REQUIRE_REDIS", c.env)
		fake := &fakeTB{TB: t}
		done := make(chan struct{})
		go func() { defer close(done); Require(fake) }()
		<-done
		if fake.skipped != c.skips || fake.failed != c.dies {
			t.Errorf("REDLOCK_REQUIRE_REDIS=%q: skipped %v, failed %v", c.env, fake.skipped,
				fake.failed)
		}
		if !strings.Contains(fake.text, "/nonexistent/redis-server") {
			t.Errorf("the reason does not name the program: %q", fake.text)
		}
	}
}

func TestLeaveOut(t *testing.T) {
	for _, c := range []struct {
		require, leave string
		dies           bool
	}{
		{"", "", false},
		{"1", "", true},
		{"1", Clocks, true},
		{"1", Partitions, false},
		{"1", Clocks + "," + Partitions, false},
	} {
		t.Setenv("REDLOCK_REQUIRE_REDIS", c.require)
		t.Setenv("REDLOCK_LEAVE_OUT", c.leave)
		fake := &fakeTB{TB: t}
		done := make(chan struct{})
		go func() { defer close(done); LeaveOut(fake, Partitions, "not root") }()
		<-done
		if fake.failed != c.dies || fake.skipped {
			t.Errorf("%+v: failed %v, skipped %v", c, fake.failed, fake.skipped)
		}
		if c.dies && !strings.Contains(fake.text, "REDLOCK_LEAVE_OUT=partitions") {
			t.Errorf("%+v: the text does not say how to go without: %q", c, fake.text)
		}
	}
}

// The address of a node that is down, or not up yet, still belongs to it.
func TestAddressesAreReserved(t *testing.T) {
	addr := FreeAddr(t, "127.0.0.1")
	if c, err := net.ListenPacket("udp", addr); err == nil {
		_ = c.Close()
		t.Errorf("%s is free for the tests of other packages", addr)
	}
}

// A process that is being launched has copies of what the test has open, closed listeners too.
func TestAddressesAreFreeWhileProcessesAreLaunched(t *testing.T) {
	program := filepath.Join(t.TempDir(), "none")
	done := make(chan struct{})
	var launches sync.WaitGroup
	defer launches.Wait()
	defer close(done)
	for range 2 {
		launches.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_, _ = os.StartProcess(program, nil, &os.ProcAttr{})
				}
			}
		})
	}
	for range 100 {
		l, err := net.Listen("tcp", FreeAddr(t, "127.0.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
	m := Embedded(t, 1)[0]
	for range 100 {
		m.Restart()
	}
}

func TestPulseFeelsAServerThatStops(t *testing.T) {
	t.Parallel()
	s := Start(t, 2)
	p := TakePulse(t, s...)
	const pause = 300 * time.Millisecond
	for _, stop := range []bool{false, true} {
		// Other work on the machine can only make a beat later.
		for try := 1; ; try++ {
			p.Worst()
			if stop {
				s[1].Freeze()
			}
			time.Sleep(pause)
			worst := p.Worst()
			// A beat that was over when the server stopped may be counted late.
			for end := time.Now().Add(replyTimeout / 2); stop && worst < pause; worst = p.Worst() {
				if time.Now().After(end) {
					t.Fatalf("a server stands still, and no beat was later than %v", worst)
				}
				time.Sleep(time.Millisecond)
			}
			s[1].Thaw()
			if stop || worst < pause/2 {
				break
			}
			if try == 20 {
				SkipBusy(t, "the latest of many beats was %v late", worst)
			}
		}
	}
}
