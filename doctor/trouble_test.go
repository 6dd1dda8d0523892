package doctor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// lesson L80: each kind of trouble has a code and advice of its own, whatever the server's version
// calls it.
func TestCheckTellsTroublesApart(t *testing.T) {
	advice := map[string]string{}
	texts := map[string][]string{
		"noauth": {
			"NOAUTH Authentication required.",
		},
		"wrongpass": {
			"WRONGPASS invalid username-password pair or user is disabled.",
			"ERR invalid password",
		},
		"noperm": {
			"NOPERM this user has no permissions to run the 'eval' command",
			"NOPERM No permissions to access a key",
			"ERR The user executing the script can't run this command or subcommand script: f80",
			"ERR ACL failure in script: User app has no permissions to run the 'del' command",
		},
		"command": { // lesson L150
			"ERR unknown command 'EVALSHA'",
			"ERR unknown command `EVAL`",
		},
		"moved": {
			"MOVED 3999 127.0.0.1:6381",
			"ASK 3999 127.0.0.1:6381",
		},
		"crossslot": {
			"CROSSSLOT Keys in request don't hash to the same slot",
		},
		"clusterdown": {
			"CLUSTERDOWN Hash slot not served",
		},
		"loading": {
			"LOADING Redis is loading the dataset in memory",
			"LOADING Valkey is loading the dataset in memory",
		},
		"readonly": {
			"READONLY You can't write against a read only replica.",
			"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		},
		"oom": {
			"OOM command not allowed when used memory > 'maxmemory'.",
		},
		"misconf": {
			"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to.",
		},
		"noreplicas": {
			"NOREPLICAS Not enough good replicas to write.",
		},
		"busy": {
			"BUSY Redis is busy running a script. You can only call SCRIPT KILL.",
		},
		"maxclients": {
			"ERR max number of clients reached",
		},
		"tls": {
			"tls: first record does not look like a TLS handshake",
			"tls: failed to verify certificate: x509: certificate signed by unknown authority",
		},
		"name": {
			"dial tcp: lookup redis-1: no such host",
		},
		"refused": {
			"dial tcp 10.0.0.1:6379: connect: connection refused",
			"no answer within 400ms: the last dial: dial tcp 10.0.0.1:1: connect: connection " +
				"refused",
		},
		"timeout": {
			"dial tcp 10.0.0.1:6379: i/o timeout",
		},
		"closed": {
			"read tcp 10.0.0.9:1->10.0.0.1:6379: read: connection reset by peer",
			"EOF",
		},
		"unreachable": {
			"ERR something else",
			"THELOADINGS are not a word",
		},
	}
	for code, texts := range texts {
		for _, text := range texts {
			ds, pools := doers(5)
			ds[1].Pool.(*sim.Link).Plan(func(sim.Op) sim.Fate { return sim.Fail(errors.New(text)) })
			r, found := check(t, redlock.New(pools...))
			assert.Equal(t, []string{"warning " + code + " [1]"}, found, text)
			f := r.Findings[0]
			assert.Contains(t, f.Problem, strings.TrimRight(text, "."))
			assert.NotContains(t, f.Problem+f.Advice, "..")
			if said := advice[code]; said != "" {
				assert.Equal(t, said, f.Advice)
			}
			advice[code] = f.Advice
		}
	}
	seen := map[string]string{}
	for code, text := range advice {
		if code != "moved" && code != "clusterdown" { // which have one remedy
			assert.Empty(t, seen[text], "%s and %s have the same advice", code, seen[text])
		}
		seen[text] = code
	}
}

// lesson L80: a cluster comes before the errors that it causes, also where they prevent every lock.
func TestCheckPutsTheClusterBeforeItsSymptoms(t *testing.T) {
	ds, pools := doers(3)
	for i, d := range ds {
		d.info["redis_mode"] = "cluster"
		if i > 0 {
			moved := errors.New("MOVED 3999 127.0.0.1:6381")
			d.Pool.(*sim.Link).Plan(func(sim.Op) sim.Fate { return sim.Fail(moved) })
		}
	}
	_, found := check(t, redlock.New(pools...))
	assert.Equal(t, []string{"critical cluster [0 1 2]", "critical moved [1 2]"}, found)
}
