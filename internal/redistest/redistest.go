// Package redistest starts real redis-server processes for tests, and does to
// them what happens to servers in real life: freeze, kill, restart, skew their
// clocks. Where there is no redis-server, [Nodes] gives embedded ones instead.
//
// The servers listen on loopback addresses, keep their data in the test's
// temporary directory and end with the test, also when the test process is
// killed (Linux). Everything here waits for what it has caused by looking,
// never by sleeping for a guessed time. A failure in starting or controlling a
// server ends the test; the methods that can do so are called from the test's goroutine.
//
// Environment: REDLOCK_REQUIRE_REDIS=1 makes tests fail that would be skipped for
// want of a redis-server; REDLOCK_REDIS_SERVER names the program to run
// ("redis-server" from the PATH by default; valkey-server works as well);
// REDLOCK_EMBEDDED=1 makes Nodes give embedded nodes all the same.
package redistest

import (
	"os"
	"os/exec"
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
	if _, err := Program(); err != nil {
		missing(t, "needs a real redis-server: "+err.Error())
	}
}

// missing skips the test for the reason, or fails it if nothing may be skipped.
func missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("REDLOCK_REQUIRE_REDIS") == "1" {
		t.Fatalf("%s (REDLOCK_REQUIRE_REDIS=1)", reason)
	}
	t.Skip(reason)
}

// Option changes how Start runs its servers.
type Option func(*config)

type config struct {
	args     []string
	password string
	ownAddr  bool
	clock    bool
	loading  bool
}

// Args adds arguments to the server's command line, after (and so overriding)
// the package's own: Args("--maxmemory", "2mb").
func Args(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// AOF makes the servers keep their data over Kill and Restart, in an append-only
// file written before each reply. Without it they keep nothing.
func AOF() Option { return Args("--appendonly", "yes", "--appendfsync", "always") }

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
// change. The test is skipped where there is no gcc to build the shim with.
func Clock() Option { return func(c *config) { c.clock = true } }
