//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

func TestDoctor(t *testing.T) {
	nodes, _ := setup(t)
	out, _, status := result(t, command(t, nodes, "doctor", "-fencing"))
	assert.Contains(t, out, "3 nodes, quorum 2: ")
	assert.Equal(t, 0, status, out)
	nodes.Stop(0)
	nodes.Stop(1)
	out, _, status = result(t, command(t, nodes, "doctor"))
	assert.Equal(t, 1, status, out)
	assert.Contains(t, out, "connection refused")
}

// Two lists of the same nodes have one fingerprint, whatever the order. It is expected or not.
func TestDoctorComparesTheNodes(t *testing.T) {
	nodes, _ := setup(t)
	a := nodes.Addrs()
	for list, differs := range map[string]bool{
		nodes.list: false, a[2] + "," + a[0] + "," + a[1]: false, a[0] + "," + a[1]: true,
	} {
		cmd := command(t, nil, "doctor", "-nodes", list)
		out, _, _ := result(t, cmd)
		_, after, _ := strings.Cut(out, "\nfingerprint ")
		fingerprint, _, _ := strings.Cut(after, "\n")
		require.NotEmpty(t, fingerprint, out)
		out, _, status := result(t, command(t, nodes, "doctor", "-expect", fingerprint))
		assert.Equal(t, differs, strings.Contains(out, "\nCRITICAL (other-nodes), "), out)
		assert.Equal(t, differs, strings.Contains(out, ", not "+fingerprint), out)
		assert.Equal(t, differs, status == 1, out)
	}
}

func TestDoctorFindsAServerThatIsTwoNodes(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	list := redistest.Start(t, 2)
	addr := list[0].Addr()
	other := strings.Replace(addr, "127.0.0.1", "localhost", 1)
	out, _, status := result(t, command(t, nil, "doctor", "-nodes",
		addr+","+list[1].Addr()+","+other, "-guard", "1m", "-prefix", "app:", "-fencing"))
	assert.Equal(t, 1, status)
	assert.Contains(t, out,
		fmt.Sprintf("CRITICAL (same-server), nodes 0 (%s), 2 (%s)\n", addr, other))

	_, errs, status := result(t, command(t, nil, "doctor", "-nodes",
		addr+","+list[1].Addr()+",redis://"+addr+"/1"))
	assert.Equal(t, exitUsage, status)
	assert.Contains(t, errs, "pools 0 and 2 have the address "+addr)
}

// A node that may have forgotten locks has no vote for run and elect with -guard either.
func TestRunHasARestartGuard(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	nodes := redistest.Start(t, 1)[0].Addr()
	for _, tt := range []struct {
		guard  string
		status int
		said   string
	}{
		{"1h", exitUnavailable, "restarted too recently, takes part again in "},
		{"5s", exitUsage, "WithRestartGuard(5s): must be at least the expiry of 10s"},
	} {
		out, errs, status := result(t, command(t, nil, "run", "-nodes", nodes, "-name", "job",
			"-guard", tt.guard, "--", "echo", "ran"))
		assert.Equal(t, tt.status, status)
		assert.Contains(t, errs, tt.said)
		assert.Empty(t, out)
	}
}

// Where INFO is denied, the guard lets nobody lock; and without the counter's pattern, no token
// is made.
func TestDoctorLooksAtRights(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	for _, tt := range []struct {
		keys, flags string
		status      int
	}{
		{"~app:*", "-prefix=app:", 0},
		{"~app:*", "-prefix=app: -fencing", 1},
		{"~app:* ~redlock:fence:*", "-prefix=app: -fencing", 0},
		{"~app:* ~redlock:fence:*", "-prefix=app: -fencing -fence-per-name", 1},
		{"~app:* ~{app:*", "-prefix=app: -fencing -fence-per-name", 0},
		{"~app:*", "-prefix=app: -guard=1m", 1},
		{"~app:*", "-prefix=app: -guard=2s", 1},
		{"~app:*", "", 1},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, 1)[0]
			server.Must(append([]string{"ACL", "SETUSER", "default", "-info", "resetkeys"},
				strings.Fields(tt.keys)...)...)
			args := append([]string{"doctor", "-nodes", server.Addr()}, strings.Fields(tt.flags)...)
			out, _, status := result(t, command(t, nil, args...))
			assert.Equal(t, tt.status, status, out)
		})
	}
}

// A user may be bound to the key prefix of its locks. Doctor then asks for that first, and does not
// only advise to allow every key.
func TestDoctorAsksForThePrefix(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	server := redistest.Start(t, 1)[0]
	server.Must("ACL", "SETUSER", "default", "resetkeys", "~app:*")
	const hint = "If the locks have a key prefix, check with that (WithKeyPrefix, or -prefix)."
	out, _, status := result(t, command(t, nil, "doctor", "-nodes", server.Addr()))
	assert.Equal(t, 1, status)
	out = strings.Join(strings.Fields(out), " ")
	assert.Contains(t, out, hint+" Otherwise allow it: ACL SETUSER default ~*")
	server.Must("ACL", "SETUSER", "default", "-pexpire")
	out, _, _ = result(t, command(t, nil, "doctor", "-prefix", "app:", "-nodes", server.Addr()))
	assert.Contains(t, out, "Allow it: ACL SETUSER default +pexpire")
	assert.NotContains(t, out, "prefix")
}

// lesson L83: nodes with user and password come from the environment, and no password is printed.
func TestDoctorTakesURLs(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	server := redistest.Start(t, 1)[0]
	server.Must("ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all")
	server.Must("ACL", "SETUSER", "default", "off")
	url := "redis://app:s3cret@" + server.Addr()
	for name, tt := range map[string]struct {
		args, env string
		status    int
		says      string
	}{
		"a URL":             {"", url, 0, "1 node, quorum 1"},
		"flag, environment": {"-nodes=redis://" + server.Addr(), url, 1, "NOAUTH"},
		"no password":       {"", server.Addr(), 1, "NOAUTH"},
		"a wrong one":       {"", "redis://app:s3cret5@" + server.Addr(), 1, "WRONGPASS"},
		"no URL": {"", "redis://app:s3cret/5@" + server.Addr(), exitUsage,
			"address 1 of 1: not a valid Redis URL"},
		"neither": {"", "app:s3cret@" + server.Addr(), exitUsage,
			"address 1 of 1: neither host:port nor"},
		"a hash sign": {"", "redis://app:s3#cret@" + server.Addr(), exitUsage,
			"not a valid Redis URL"},
		"help":         {"-h", url, 0, "REDLOCK_NODES"},
		"unknown flag": {"-password=s3cret", url, exitUsage, "flag provided but not defined"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := command(t, nil, append([]string{"doctor"}, strings.Fields(tt.args)...)...)
			cmd.Env = append(cmd.Env, "REDLOCK_NODES="+tt.env)
			out, errs, status := result(t, cmd)
			assert.Equal(t, tt.status, status)
			assert.Contains(t, out+errs, tt.says)
			assert.NotContains(t, out+errs, "s3cret")
		})
	}
}
