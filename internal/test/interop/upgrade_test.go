package interop

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

var (
	from = flag.String("from", "3de6c24", "the commit that TestRollingUpgrade upgrades from")
	laps = flag.Int("laps", 1, "how often it goes there and back")
)

// Replicas are upgraded one after the other, under load, and then taken back: versions exclude each
// other, their tokens increase, and nobody waits for longer than an expiry.
func TestRollingUpgrade(t *testing.T) {
	redistest.Require(t)
	require.FileExists(t, "../../../shared.go", "buildReplica knows readers by it")
	before, after := buildReplica(t, "before", checkOut(t, *from)),
		buildReplica(t, "after", "../../..")
	f := &fleet{T: t, turns: map[string]int{}}
	for _, s := range redistest.Start(t, 4) {
		f.servers = append(f.servers, s.Addr())
	}
	replicas := make([]*replica, 4)
	for i := range replicas {
		replicas[i] = f.start(before, i)
	}
	f.work(replicas)
	for range *laps {
		for _, to := range []string{after, before} {
			for i, r := range replicas {
				r.stop()
				replicas[i] = f.start(to, i)
				f.work(replicas)
			}
		}
	}
	for _, r := range replicas {
		r.stop()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("%v turns, nodes slow in %d, the longest wait %v", f.turns, f.slow, f.longest)
	if f.longest > 4*time.Second {
		t.Errorf("somebody waited for %v, longer than an expiry", f.longest)
	}
}

// checkOut returns a directory with the files of a commit.
func checkOut(t *testing.T, commit string) string {
	dir := t.TempDir()
	for _, command := range [][]string{
		{"git", "-C", "../../..", "archive", "--output", dir + "/files.tar", commit},
		{"tar", "-x", "-C", dir, "-f", dir + "/files.tar"},
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
	}
	return dir
}

// buildReplica builds the replica with the version of redlock in a directory, as a program of that
// name.
func buildReplica(t *testing.T, name, redlock string) string {
	redlock, err := filepath.Abs(redlock)
	require.NoError(t, err)
	dir, files := t.TempDir(), []string{"main.go"}
	if _, err := os.Stat(filepath.Join(redlock, "shared.go")); err == nil {
		files = append(files, "readers.go")
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("replica", file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	const module = "github.com/redlock-go/redlock"
	for _, command := range []string{
		"go mod init example.com/replica",
		"go mod edit -require=" + module + "@v0.0.0 -replace=" + module + "=" + redlock,
		"go build -mod=mod -o " + name + " .",
	} {
		fields := strings.Fields(command)
		cmd := exec.Command(fields[0], fields[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
	}
	return filepath.Join(dir, name)
}

// fleet is some replicas.
type fleet struct {
	*testing.T
	servers []string // the resource, and the nodes

	mu      sync.Mutex // guards what follows
	turns   map[string]int
	slow    int           // turns for which too few nodes have answered in time
	longest time.Duration // that somebody has waited
}

// replica is one process.
type replica struct {
	fleet   *fleet
	version string // the name of its program
	in      io.Closer
	ended   chan struct{}
	err     error // of a process that has ended
	turns   int   // since the last call of work; the fleet's mu guards it
}

func (f *fleet) start(program string, i int) *replica {
	version := filepath.Base(program)
	cmd := exec.Command(program, append([]string{fmt.Sprint(version, i)}, f.servers...)...)
	in, out := startPiped(f.T, cmd)
	r := &replica{fleet: f, version: version, in: in, ended: make(chan struct{})}
	f.Cleanup(func() { // which usually finds that it has ended
		_ = cmd.Process.Kill()
		<-r.ended
	})
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.told(lines.Text())
		}
		r.err = cmd.Wait()
		close(r.ended)
	}()
	return r
}

// told is called for each line of a replica.
func (r *replica) told(line string) {
	f := r.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if line == "slow" {
		f.slow++
		return
	}
	us, ok := strings.CutPrefix(line, "turn ")
	waited, err := strconv.Atoi(us)
	if !ok || err != nil {
		f.Errorf("%s: %s", r.version, line)
		return
	}
	r.turns++
	f.turns[r.version]++
	f.longest = max(f.longest, time.Duration(waited)*time.Microsecond)
}

// work waits until each replica has taken fifty turns more.
func (f *fleet) work(replicas []*replica) {
	f.mu.Lock()
	for _, r := range replicas {
		r.turns = 0
	}
	f.mu.Unlock()
	require.NoError(f, redistest.Poll(func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, r := range replicas {
			if r.turns < 50 {
				return fmt.Errorf("%s%d has taken %d turns", r.version, i, r.turns)
			}
		}
		return nil
	}))
}

// stop ends the replica: it takes its last turns, and closes.
func (r *replica) stop() {
	f := r.fleet
	require.NoError(f, r.in.Close())
	select {
	case <-r.ended:
		require.NoError(f, r.err)
	case <-time.After(30 * time.Second):
		f.Fatalf("%s does not end", r.version)
	}
}
