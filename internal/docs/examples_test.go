package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/redistest"
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
func (e example) run(t *testing.T, args ...string) (out string, status int) {
	cmd := exec.CommandContext(t.Context(), string(e), args...)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		assert.NoError(t, err)
		return "", -1
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// Examples work on real servers.
func TestExamplesOnRealNodes(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	for name, test := range map[string]func(t *testing.T, e example){
		"cron": cronOnRealNodes, "fencing": fencingOnRealNodes,
		"httpmiddleware": httpOnRealNodes, "quickstart": quickstartOnRealNodes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, example(build(t, "./examples/"+name)))
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
			outs[i], status = e.run(t, "-addrs="+addrs, "-replicas=2", "-every=200ms",
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
	out, status := e.run(t, "-addrs="+servers(t, 3))
	assert.Zero(t, status, "%s", out)
}

func httpOnRealNodes(t *testing.T, e example) {
	out, status := e.run(t, "-addrs="+servers(t, 3), "-clients=2")
	assert.Zero(t, status, "%s", out)
	assert.Contains(t, out, "That is exact.")
}

func quickstartOnRealNodes(t *testing.T, e example) {
	out, status := e.run(t, "-addrs="+servers(t, 3), "-turns=2", "-v", "-metrics")
	assert.Zero(t, status, "%s", out)
	assert.Contains(t, out, `msg="redlock: lock acquired" lock=quickstart:counter`)
	assert.Regexp(t, `(?m)^ +1\d  acquire, ok$`, out)
	assert.Contains(t, out, "the connection to node 1 is restored")
	assert.Contains(t, out, "The counter is 10 after 10 additions: exact.")
}
