// Package redistest starts real redis-server processes for tests, and does to
// them what happens to servers in real life: freeze, kill, restart, skew their
// clocks. Where there is no redis-server, [Nodes] gives embedded ones instead.
//
// The servers listen on loopback addresses, keep their data in a
// temporary directory and end with the test, also when the test process is
// killed (Linux). Everything here waits for what it has caused by looking,
// never by sleeping for a guessed time. A failure in starting or controlling a
// server ends the test; the methods that can do so are called from the test's goroutine.
//
// Environment: REDLOCK_REQUIRE_REDIS=1 makes tests fail that would be skipped, or leave something
// out, for want of a redis-server or of what it takes to do something to it; REDLOCK_LEAVE_OUT
// names what may still be left out, see LeaveOut; REDLOCK_REDIS_SERVER names the program
// to run ("redis-server" from the PATH by default; valkey-server works as well);
// REDLOCK_EMBEDDED=1 makes Nodes give embedded nodes in any case.
package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Program returns the path of the redis-server that Start runs, or an error that
// says why there is none.
func Program() (string, error) {
	name := os.Getenv("REDLOCK_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	return exec.LookPath(name)
}

// Require skips the test, saying why, if there is no redis-server to run; with
// REDLOCK_REQUIRE_REDIS=1 it fails the test instead.
func Require(t testing.TB) {
	t.Helper()
	_, err := Program()
	switch {
	case err == nil:
	case required():
		t.Fatalf("needs a real redis-server: %v (REDLOCK_REQUIRE_REDIS=1)", err)
	default:
		t.Skip("needs a real redis-server: " + err.Error())
	}
}

// required reports whether tests must not go without anything.
func required() bool { return os.Getenv("REDLOCK_REQUIRE_REDIS") == "1" }

// What a machine may be unable to do to its servers.
const (
	Clocks     = "clocks"     // skew theirs: needs gcc to build the clock shim
	Partitions = "partitions" // cut them off: needs root and nftables
)

// LeaveOut notes that the test goes without what for the reason, in the test's log and on
// standard error, where go test shows it without -v too if it is run in the package's directory.
// With REDLOCK_REQUIRE_REDIS=1 it fails the test instead, unless REDLOCK_LEAVE_OUT names what:
// "partitions", or "clocks,partitions".
func LeaveOut(t testing.TB, what, reason string) {
	t.Helper()
	if required() && !slices.Contains(strings.Split(os.Getenv("REDLOCK_LEAVE_OUT"), ","), what) {
		t.Fatalf("no %s: %s (REDLOCK_REQUIRE_REDIS=1; REDLOCK_LEAVE_OUT=%s to go without)", what,
			reason, what)
	}
	t.Logf("left out: %s: %s", what, reason)
	fmt.Fprintf(os.Stderr, "%s: left out: %s: %s\n", t.Name(), what, reason)
}

// Option changes how Start runs its servers.
type Option func(*config)

type config struct {
	args     []string
	password string
	ownAddr  bool
	clock    bool
	loading  bool
	memory   bool // the servers' files are there
}

// Args adds arguments to the server's command line, after (and so overriding)
// the package's own: Args("--maxmemory", "2mb").
func Args(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// AOF makes the servers keep their data over Kill and Restart, in an append-only
// file written before each reply. Without it they keep nothing. The file is in memory where the
// system has a directory for that: a busy disk keeps a write waiting for seconds.
func AOF() Option {
	return func(c *config) {
		c.args = append(c.args, "--appendonly", "yes", "--appendfsync", "always")
		c.memory = true
	}
}

// Password makes the servers require it, and Server.Do give it.
func Password(p string) Option {
	return func(c *config) {
		c.args = append(c.args, "--requirepass", p)
		c.password = p
	}
}

// OwnAddress gives server i the address 127.0.0.(11+i), instead of 127.0.0.1 to
// all, so that a packet filter can tell them apart. Not every system has
// these addresses; Linux does.
func OwnAddress() Option { return func(c *config) { c.ownAddr = true } }

// Loading makes Restart return as soon as the server answers, even if only to say
// that it is still loading its data.
func Loading() Option { return func(c *config) { c.loading = true } }

// Clock runs the servers on a wall clock that Server.Jump and Server.Rate can
// change. Where there is no gcc to build the shim with, the test is skipped, see LeaveOut.
func Clock() Option { return func(c *config) { c.clock = true } }
