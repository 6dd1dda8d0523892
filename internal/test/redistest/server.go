package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a redis-server process. Addr, Do and Dial are safe for concurrent
// use; the methods that change its state are not, among themselves.
type Server struct {
	control
	t     testing.TB
	dir   string
	conf  config
	env   []string
	proc  *Process
	clock *clock
}

// Start runs n servers and returns when they answer. They listen on free
// loopback ports, keep nothing over a restart unless AOF is given, and end
// with the test. The test is skipped if there is no redis-server, see Require.
func Start(t testing.TB, n int, opts ...Option) []*Server {
	t.Helper()
	Require(t)
	var conf config
	for _, o := range opts {
		o(&conf)
	}
	dir := t.TempDir()
	var shim string
	if conf.clock {
		shim = buildShim(t, dir) // memory may not hold what is executed
	}
	if conf.memory {
		dir = memoryDir(t, dir)
	}
	servers := make([]*Server, n)
	for i := range servers {
		host := "127.0.0.1"
		if conf.ownAddr {
			host = fmt.Sprintf("127.0.0.%d", 11+i)
		}
		s := &Server{t: t, conf: conf, dir: filepath.Join(dir, strconv.Itoa(i))}
		s.control = control{addr: FreeAddr(t, host), password: conf.password}
		if err := os.Mkdir(s.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if conf.clock {
			s.clock = newClock(t, s.dir)
			s.env = []string{"LD_PRELOAD=" + shim, "REDISTEST_CLOCK=" + s.clock.path}
		}
		t.Cleanup(s.Kill)
		s.launch(conf)
		servers[i] = s
	}
	for _, s := range servers {
		s.await(conf)
	}
	return servers
}

// memoryDir returns a directory in memory that is removed with the test, or the one given where
// there is none.
func memoryDir(t testing.TB, or string) string {
	dir, err := os.MkdirTemp("/dev/shm", "redistest")
	if err != nil {
		return or
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Addr returns "host:port".
func (s *Server) Addr() string { return s.addr }

// Dir returns the directory of the server's data.
func (s *Server) Dir() string { return s.dir }

// PID returns the process id of the server that was started last.
func (s *Server) PID() int { return s.proc.PID() }

// Do sends one command and returns its reply, waiting half a minute at most: a
// string, an int64, nil or an []any of them. An error reply is an Error. All
// calls share one connection, which is opened again after it broke.
func (s *Server) Do(args ...string) (any, error) { return s.do(args...) }

// Must is Do for a command that has to succeed.
func (s *Server) Must(args ...string) any {
	s.t.Helper()
	v, err := s.do(args...)
	if err != nil {
		s.t.Fatalf("redistest: %s on %s: %v", strings.Join(args, " "), s.addr, err)
	}
	return v
}

// Dial opens a connection of the caller's own, without authentication.
func (s *Server) Dial() *Conn {
	s.t.Helper()
	c, err := Dial(s.addr)
	if err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	return c
}

// Freeze stops the process (SIGSTOP) and returns when it stands still: connections are
// accepted by the kernel, and nothing is answered.
func (s *Server) Freeze() {
	s.t.Helper()
	if err := s.proc.Freeze(); err != nil {
		s.fatal("cannot be frozen: " + err.Error())
	}
}

// Thaw lets a frozen process go on, with all that has arrived meanwhile.
func (s *Server) Thaw() {
	s.t.Helper()
	if err := s.proc.Thaw(); err != nil {
		s.fatal("cannot be thawed: " + err.Error())
	}
}

// Kill ends the process at once (SIGKILL), frozen or not, and returns when it is gone. Killing a
// server that is not running does nothing.
func (s *Server) Kill() {
	if s.proc != nil {
		s.proc.Kill()
	}
	s.close()
}

// Stop ends the process in order (SIGTERM) and returns when it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.proc.p.Signal(sigEnd); err != nil {
		s.fatal("cannot be stopped: " + err.Error())
	}
	select {
	case <-s.proc.Exited():
	case <-time.After(replyTimeout):
		s.fatal("did not stop")
	}
	s.close()
}

// Restart kills the process if it is running, starts it again on the same address and data
// directory, and returns when it answers. Options are added to those of Start for this run only.
func (s *Server) Restart(opts ...Option) {
	s.t.Helper()
	s.Kill()
	conf := s.conf
	conf.args = slices.Clone(conf.args)
	for _, o := range opts {
		o(&conf)
	}
	s.launch(conf)
	s.await(conf)
}

func (s *Server) launch(conf config) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.addr)
	name, err := Program()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(name, append([]string{
		"--bind", host, "--port", port, "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log"),
		"--save", "", "--appendonly", "no", "--protected-mode", "no", "--enable-debug-command",
		"yes",
	}, conf.args...)...)
	cmd.Env = append(os.Environ(), s.env...)
	// What it writes before it has opened its log, on bad arguments for instance.
	out, err := os.OpenFile(filepath.Join(s.dir, "log"),
		os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if s.proc, err = StartProcess(cmd); err != nil {
		s.proc = nil
		s.t.Fatalf("redistest: %v", err)
	}
}

// await returns when the server that was launched answers.
func (s *Server) await(conf config) {
	s.t.Helper()
	s.poll("to answer", func() error {
		if !s.proc.Running() {
			s.fatal("ended at once")
		}
		_, err := s.do("PING")
		if err != nil && conf.loading && strings.HasPrefix(err.Error(), "LOADING ") {
			err = nil
		}
		return err
	})
}

// poll waits for the server until f returns nil.
func (s *Server) poll(what string, f func() error) {
	s.t.Helper()
	if err := Poll(f); err != nil {
		s.fatal("was waited for " + what + ": " + err.Error())
	}
}

// Poll calls f until it returns nil, and gives up with its error after half a minute. It asks less
// often as time passes, from 1000 to 50 times a second. A server answers in a few milliseconds, and
// a cluster in two seconds.
func Poll(f func() error) error {
	start := time.Now()
	for {
		err := f()
		took := time.Since(start)
		if err == nil || took > replyTimeout {
			return err
		}
		time.Sleep(max(time.Millisecond, min(took/20, 20*time.Millisecond)))
	}
}

// log returns the end of what the server wrote since it was launched.
func (s *Server) log() string {
	b, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(b[max(0, len(b)-2000):])
}

// fatal ends the test with what happened and what the server wrote about it.
func (s *Server) fatal(what string) {
	s.t.Helper()
	s.t.Fatalf("redistest: server %s %s\n%s", s.addr, what, s.log())
}

// Refused is an address that refuses connections. Nothing listens there, and no system gives it
// to anybody who asks for a free port, as it may do with a port that was free a moment ago.
const Refused = "127.0.0.1:1"

// FreeAddr finds a free port below those that the system gives to outgoing
// connections: such a connection could take the port of a server that is down, or
// even connect to itself. The port of a cluster's bus, 10000 above, is there as well.
//
// Until the end of the test the UDP port of the same number is taken too. That reserves it, also
// from tests of other packages, before the node has bound it and while it is down.
func FreeAddr(t testing.TB, host string) string {
	t.Helper()
	var err error
	for range 100 {
		port := strconv.Itoa(12000 + rand.IntN(10000))
		var reserved net.PacketConn
		if reserved, err = net.ListenPacket("udp",
			net.JoinHostPort("127.0.0.1", port)); err != nil {
			continue
		}
		if err = free(net.JoinHostPort(host, port)); err != nil {
			_ = reserved.Close()
			continue
		}
		t.Cleanup(func() { _ = reserved.Close() })
		return net.JoinHostPort(host, port)
	}
	t.Fatalf("redistest: no free port on %s: %v", host, err)
	return ""
}

// free tells whether a server could be bound to a TCP address. No process is launched meanwhile:
// it would have a copy of the listener, and keep the port, until it runs its own program.
func free(addr string) error {
	probeProcesses()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// probeProcesses makes package os launch a process to see what the system can do. It does so once,
// before anything else with processes, and in spite of [syscall.ForkLock].
var probeProcesses = sync.OnceFunc(func() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
})
