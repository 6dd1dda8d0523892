package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redistest"
)

// lesson L84: each example runs from the root with go run, which a module of its own would prevent.
func TestExamplesRunFromTheRoot(t *testing.T) {
	dirs, err := os.ReadDir(root + "/examples")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, d := range dirs {
		assert.FileExists(t, root+"/examples/"+d.Name()+"/main.go")
		assert.NoFileExists(t, root+"/examples/"+d.Name()+"/go.mod")
	}
}

// An example can be copied: its directory is all that it needs, beside packages that anybody may
// import.
func TestExamplesCanBeCopied(t *testing.T) {
	files, err := filepath.Glob(root + "/examples/*/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	nodes, watches := map[string][]string{}, map[string][]string{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NotContains(t, string(source), "/internal/", "imports of %s", file)
		switch dir, name := filepath.Split(file); {
		case name == "nodes.go" && filepath.Base(dir) != "quickstart":
			nodes[string(source)] = append(nodes[string(source)], file)
		case name == "watch.go":
			watches[string(source)] = append(watches[string(source)], file)
		}
	}
	assert.Len(t, nodes, 1, "versions of nodes.go")
	assert.Len(t, watches, 1, "versions of watch.go")
}

// example is a program that has been built.
type example string

// run runs the example, and returns what it prints and its exit status.
func (e example) run(t *testing.T, env string, args ...string) (out string, status int) {
	cmd := exec.CommandContext(t.Context(), string(e), args...)
	cmd.Env = append(os.Environ(), "REDLOCK_NODES="+env)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		assert.NoError(t, err)
		return "", -1
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// Examples work on real servers, and on addresses of all kinds.
func TestExamplesOnRealNodes(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	dir := t.TempDir()
	out, err := command("go", "build", "-o", dir, "./examples/...")
	require.NoError(t, err, "%s", out)
	for name, test := range map[string]func(t *testing.T, e example){
		"cron": cronOnRealNodes, "doctor": doctorOnRealNodes, "fencing": fencingOnRealNodes,
		"httpmiddleware": httpOnRealNodes, "quickstart": quickstartOnRealNodes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, example(filepath.Join(dir, name)))
		})
	}
}

// servers returns the addresses of n servers, as the flag -addrs takes them.
func servers(t *testing.T, n int) string {
	var addrs []string
	for _, s := range redistest.Start(t, n) {
		addrs = append(addrs, s.Addr())
	}
	return strings.Join(addrs, ",")
}

// Two processes share the ticks: together they run each once.
func cronOnRealNodes(t *testing.T, e example) {
	addrs := servers(t, 3)
	var outs [2]string
	var group sync.WaitGroup
	for i := range outs {
		group.Go(func() {
			var status int
			outs[i], status = e.run(t, "", "-addrs="+addrs, "-replicas=2", "-every=200ms",
				"-ticks=4")
			assert.Zero(t, status, "%s", outs[i])
		})
	}
	group.Wait()
	ran := map[string]bool{}
	for _, out := range outs {
		for line := range strings.Lines(out) {
			if strings.HasSuffix(line, "  ok\n") {
				tick, _, _ := strings.Cut(line, " ")
				assert.False(t, ran[tick], "%s was run by both", tick)
				ran[tick] = true
			}
		}
	}
	assert.GreaterOrEqual(t, len(ran), 4, "%q", outs)
}

func fencingOnRealNodes(t *testing.T, e example) {
	out, status := e.run(t, "", "-addrs="+servers(t, 3))
	assert.Zero(t, status, "%s", out)
}

func httpOnRealNodes(t *testing.T, e example) {
	out, status := e.run(t, "", "-addrs="+servers(t, 3), "-clients=2")
	assert.Zero(t, status, "%s", out)
	assert.Contains(t, out, "That is exact.")
}

func quickstartOnRealNodes(t *testing.T, e example) {
	out, status := e.run(t, "", "-addrs="+servers(t, 3), "-turns=2", "-v", "-metrics")
	assert.Zero(t, status, "%s", out)
	assert.Contains(t, out, `msg="redlock: lock acquired" lock=quickstart:counter`)
	assert.Regexp(t, `(?m)^ +1\d  acquire, ok$`, out)
	assert.Contains(t, out, "the line to node 1 is mended")
	assert.Contains(t, out, "The counter is 10 after 10 additions: exact.")
}

func doctorOnRealNodes(t *testing.T, e example) {
	t.Run("one server twice", func(t *testing.T) {
		t.Parallel()
		list := redistest.Start(t, 2)
		addr := list[0].Addr()
		out, status := e.run(t, "", "-addrs="+addr+","+list[1].Addr()+","+addr,
			"-lock=invoice:42", "-guard=1m", "-prefix=app:", "-fencing")
		assert.Equal(t, 1, status)
		assert.Contains(t, out, fmt.Sprintf("CRITICAL (same-server), nodes 0 (%s), 2 (%[1]s)\n",
			addr))
		assert.Contains(t, out, `lock "invoice:42": free`)
	})
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		_, status := e.run(t, "", "-addrs=127.0.0.1:1")
		assert.Equal(t, 1, status)
	})
	t.Run("rights", func(t *testing.T) { doctorLooksAtRights(t, e) })
	t.Run("URLs", func(t *testing.T) { doctorTakesURLs(t, e) })
}

// Where INFO is denied, the guard lets nobody lock; and without the counter's pattern, no token
// is made.
func doctorLooksAtRights(t *testing.T, e example) {
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
		{"~app:*", "", 1},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, 1)[0]
			server.Must(append([]string{"ACL", "SETUSER", "default", "-info", "resetkeys"},
				strings.Fields(tt.keys)...)...)
			flags := append(strings.Fields(tt.flags), "-addrs="+server.Addr())
			out, status := e.run(t, "", flags...)
			assert.Equal(t, tt.status, status, "%s", out)
		})
	}
}

// lesson L83: nodes with user and password come from an argument or the environment, and no
// password is printed.
func doctorTakesURLs(t *testing.T, e example) {
	server := redistest.Start(t, 1)[0]
	server.Must("ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all")
	server.Must("ACL", "SETUSER", "default", "off")
	url := "redis://app:s3cret@" + server.Addr()
	for name, tt := range map[string]struct {
		args, env string
		status    int
		says      string
	}{
		"argument":                  {"-addrs=" + url, "", 0, "1 node, quorum 1"},
		"environment":               {"", url, 0, "1 node, quorum 1"},
		"argument over environment": {"-addrs=" + url, "redis://nowhere:1", 0, "1 node, quorum 1"},
		"no password":               {"-addrs=" + server.Addr(), "", 1, "NOAUTH"},
		"a wrong one":               {"", "redis://app:s3cret5@" + server.Addr(), 1, "WRONGPASS"},
		"no URL": {"", "redis://app:s3cret/5@" + server.Addr(), 2,
			"address 1 of 1: not a valid Redis URL"},
		"neither": {"", "app:s3cret@" + server.Addr(), 2,
			"address 1 of 1: neither host:port nor"},
		"a hash sign":  {"", "redis://app:s3#cret@" + server.Addr(), 2, "not a valid Redis URL"},
		"help":         {"-h", url, 0, "REDLOCK_NODES"},
		"unknown flag": {"-password=s3cret", url, 2, "flag provided but not defined"},
	} {
		t.Run(name, func(t *testing.T) {
			out, status := e.run(t, tt.env, strings.Fields(tt.args)...)
			assert.Equal(t, tt.status, status)
			assert.Contains(t, out, tt.says)
			assert.NotContains(t, out, "s3cret")
		})
	}
}
