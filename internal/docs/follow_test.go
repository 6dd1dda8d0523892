package docs

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// shell returns the commands in a section of the page, which are indented.
func shell(t *testing.T, section string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, operations), "\n### "+section+"\n")
	require.True(t, found, section)
	text, _, _ = strings.Cut(text, "\n### ")
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^    (.+)$`).FindAllStringSubmatch(text, -1) {
		lines = append(lines, m[1])
	}
	require.NotEmpty(t, lines, section)
	return strings.Join(lines, "\n")
}

// Who follows the commands of the page comes to a report without problems. They run as they are
// there, but for addresses and directories, and redlock is this one, not the latest. A script
// stands in for Docker, and the servers of the first section for those that it would start.
func TestFollowingThePage(t *testing.T) {
	redistest.Require(t)
	program, err := redistest.Program()
	require.NoError(t, err)
	program, err = filepath.Abs(program)
	require.NoError(t, err)
	bin := t.TempDir()
	for name, script := range map[string]string{
		"redis-server": "exec '" + program + `' "$@"`, "docker": `[ "$*" = "compose up -d" ]`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name),
			[]byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	command := func(script string) *exec.Cmd {
		cmd := exec.Command("sh", "-euc", script)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOBIN="+bin,
			"GOFLAGS='-ldflags=-s -w'", "REDLOCK_NODES=")
		return cmd
	}

	plain := shell(t, "One configuration")
	start := regexp.MustCompile(`(?s)^(.*\n)?redis-server [^\n]*\n`).FindString(plain)
	require.NotEmpty(t, start)
	look := strings.Replace(plain[len(start):], "@latest", "", 1)
	var addrs []string
	var servers []*redistest.Process
	for range 3 {
		addr, dir := redistest.FreeAddr(t, "127.0.0.1"), t.TempDir()
		_, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		here := strings.NewReplacer("/data", dir+"/data", "/etc/redis", dir,
			"bind * -::*", "bind 127.0.0.1", "port 6379", "port "+port,
			// Without exec, Kill would end the shell and leave the server.
			"redis-server ", "exec redis-server ")
		conf := here.Replace(blocks(t, operations, "conf")[0])
		require.NoError(t, os.WriteFile(filepath.Join(dir, "redis.conf"), []byte(conf), 0o600))
		cmd := command(here.Replace(start))
		said, err := os.Create(filepath.Join(dir, "log"))
		require.NoError(t, err)
		cmd.Stdout, cmd.Stderr = said, said
		server, err := redistest.StartProcess(cmd)
		require.NoError(t, said.Close())
		require.NoError(t, err)
		t.Cleanup(func() {
			server.Kill()
			if out, err := os.ReadFile(said.Name()); err == nil && t.Failed() {
				t.Logf("%s", out)
			}
		})
		addrs, servers = append(addrs, addr), append(servers, server)
	}

	for _, script := range []string{look, shell(t, "Compose")} {
		places := regexp.MustCompile(`@[\d.]+:\d+`)
		require.Len(t, places.FindAllString(script, -1), len(addrs))
		node := 0
		script = places.ReplaceAllStringFunc(script, func(string) string {
			node++
			return "@" + addrs[node-1]
		})
		running := true
		var out []byte
		sound := func() bool { return strings.HasSuffix(string(out), "\nNo problems found.\n") }
		// A server takes time to start, and a busy one may not answer in time.
		for end := time.Now().Add(10 * time.Second); running && time.Now().Before(end); {
			if out, err = command(script).CombinedOutput(); err == nil && sound() {
				break
			}
			for _, s := range servers {
				running = running && s.Running()
			}
		}
		require.True(t, running, "a server has ended")
		require.NoError(t, err, "%s", out)
		require.True(t, sound(), "%s", out)
	}
}
