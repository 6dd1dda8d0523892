package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/internal/test/redistest"
)

func TestLedger(t *testing.T) {
	// A history of lines "seconds, owner, command": a script by the owner that does this; + for
	// the same script, * before an owner whose release goes together with others. One of those is
	// of the same key, but by the owner x.
	for name, c := range map[string]struct {
		lines   string
		unknown bool // what the key holds at first
		changes int
		blind   int
		expired int
		wrong   string // part of the accusation; "" for none
	}{
		"in turn": {lines: "0 a SET k a PX 9000;1 a PEXPIRE k 9000;2 a DEL k;3 b " +
			"SET k b PX 9000;4 b DEL k", changes: 5},
		"expired": {lines: "0 a SET k a PX 1000;2 b SET k b PX 1000", changes: 2,
			expired: 1},
		"extended, then expired": {lines: "0 a SET k a PX 1000;1 a PEXPIRE k 3000;5 b SET k b PX " +
			"1000", changes: 3, expired: 1},
		"set again by its owner": {lines: "0 a SET k a PX 9000;1 a SET k a PX 9000", changes: 2},
		"flushed": {lines: "0 a SET k a PX 9000;1 - FLUSHALL;2 b SET k b PX 9000",
			changes: 2},
		"granted": {lines: "0 a SET k a PX 9000 NX;0 + SET {k}:fence 7 PX 100;1 a " +
			"DEL k;2 b SET k b PX 9000 NX;3 b DEL k", changes: 4},
		"refused": {lines: "0 a SET k a PX 9000 NX;1 b SET k b PX 9000 NX;1 + GET " +
			"k;2 a DEL k", changes: 2},
		"granted for another": {lines: "0 a SET k b PX 9000 NX;0 + SET {k}:fence 7 PX 100",
			changes: 1, wrong: "of another value"},
		"reads and other keys": {lines: "0 a GET k;0 a PTTL k;0 a SET {k}:fence 7 PX 100;0 a " +
			"DEL other"},
		"after a gap": {lines: "0 a PEXPIRE k 9000;1 a DEL k;2 b SET k b PX 100",
			unknown: true, changes: 3, blind: 1},
		"deleted by another": {lines: "0 a SET k a PX 9000;1 b DEL k", changes: 2,
			wrong: `by b, of what was "a"'s`},
		"deleted twice": {lines: "0 a SET k a PX 9000;1 a DEL k;1 a DEL k", changes: 3,
			wrong: `by a, of what was ""'s`},
		"extended by another": {lines: "0 a SET k a PX 9000;1 b PEXPIRE k 9000", changes: 2,
			wrong: `by b, of what was "a"'s`},
		"set over another's": {lines: "0 a SET k a PX 9000;8 b SET k b PX 9000", changes: 2,
			expired: 1, wrong: "was a's for another 1s"},
		"set in a script that took long": {
			lines: "0 a GET k;1 + SET k a PX 1000;1 b SET k b PX 1000", changes: 2, expired: 1,
		},
		"extended in a script that took long": {
			lines:   "0 a SET k a PX 1000;0 a GET k;1 + PEXPIRE k 1000;1 b SET k b PX 1000",
			changes: 3, expired: 1,
		},
		"set over an extended": {lines: "0 a SET k a PX 1000;1 a PEXPIRE k 9000;8 b SET k b PX " +
			"100", changes: 3, expired: 1, wrong: "was a's for another 2s"},
		"another's value": {lines: "0 a SET k b PX 9000", changes: 1,
			wrong: "of another value"},
		"after a gap, by another": {
			lines: "0 a PEXPIRE k 9000;1 b DEL k", unknown: true, changes: 2, blind: 1,
			wrong: `by b, of what was "a"'s`,
		},
		"handed on": {
			lines: "0 a SET k a PX 9000;1 a SET k ~redlock:turn:m PX 400;" +
				"2 b|redlock:turn:m SET k b PX 9000 XX;3 b DEL k", changes: 4,
		},
		"handed on, nobody came": {
			lines: "0 a SET k a PX 9000;1 a SET k ~redlock:turn:m PX 400;" +
				"2 |redlock:turn:n SET k ~redlock:turn:n PX 400", changes: 3, expired: 1,
		},
		"given back": {
			lines: "0 a SET k a PX 9000;1 a SET k ~redlock:turn:m PX 400;" +
				"1 |redlock:turn:m SET k ~redlock:turn:n PX 400", changes: 3,
		},
		"granted before its owner stood": {
			lines:   "0 a SET k a PX 9000;1 |redlock:turn:m/a SET k ~redlock:turn:n PX 400",
			changes: 2,
		},
		"another's, as somebody stood": {
			lines:   "0 a SET k a PX 9000;1 |redlock:turn:m/b SET k ~redlock:turn:n PX 400",
			changes: 2, expired: 1, wrong: "while the key was a's",
		},
		"given back by another": {
			lines: "0 a SET k a PX 9000;1 a SET k ~redlock:turn:m PX 400;" +
				"1 |redlock:turn:n SET k ~redlock:turn:n PX 400",
			changes: 3, expired: 1, wrong: "while the key was ~redlock:turn:m's",
		},
		"claimed by another": {
			lines: "0 a SET k a PX 9000;1 a SET k ~redlock:turn:m PX 400;" +
				"1 b|redlock:turn:n SET k b PX 9000 XX",
			changes: 3, expired: 1, wrong: "while the key was ~redlock:turn:m's",
		},
		"healed": {
			lines:   "0 a SET k a PX 9000;1 a SET k ~redlock:turn:m PX 400;1 b SET k b PX 9000 XX",
			changes: 3,
		},
		"handed over": {
			lines:   "0 a SET k a PX 9000;1 b>a SET k b PX 9000 XX;2 b DEL k",
			changes: 3,
		},
		"handed over by another": {
			lines:   "0 a SET k a PX 9000;1 b>c SET k b PX 9000 XX",
			changes: 2, expired: 1, wrong: "while the key was a's",
		},
		"released with others": {
			lines: "0 a SET k a PX 9000;1 *a DEL j k", changes: 2,
		},
		"released with others by the last of two": {
			lines: "0 x SET k x PX 9000;1 *a DEL j k", changes: 2,
		},
		"released with others by another": {
			lines: "0 a SET k a PX 9000;1 *b DEL k j", changes: 2, wrong: `of what was "a"'s`,
		},
		"looked at with others": {
			lines: "0 a SET k a PX 9000;1 *b MGET k j;2 *b EXISTS k:q j:q", changes: 1,
		},
		"others are released": {
			lines: "0 a SET k a PX 9000;1 *b DEL j;2 a DEL k", changes: 2,
		},
		"a command unheard of": {lines: "0 a RENAME k x", wrong: "unknown"},
		"outside of a script":  {lines: "0 - DEL k", wrong: "not in a script"},
	} {
		l := &ledger{key: "k", known: !c.unknown}
		for line := range strings.SplitSeq(c.lines, ";") {
			f := strings.Fields(line)
			at, owner, command := "170000000"+f[0]+".000000", f[1], ""
			for _, arg := range f[2:] {
				command += fmt.Sprintf(" %q", arg)
			}
			if owner == "-" {
				l.line(at + " [0 127.0.0.1:4000]" + command)
				continue
			}
			const evalsha = `%s [0 127.0.0.1:4000] "evalsha" "id" `
			const releases = `%s [0 127.0.0.1:4000] "evalsha" %q ` +
				`"6" "j" "k" "k" "r" "q" "q" "i" %q "x"`
			value, member, queues := strings.Cut(owner, "|")
			heir, old, handed := strings.Cut(owner, ">")
			switch {
			case owner == "+":
			case owner[0] == '*':
				l.line(fmt.Sprintf(releases, at, scripts.Releases.ID, owner[1:]))
			case value == "": // it stands in the queue
				id, before, tried := strings.Cut(member, "/")
				stand := fmt.Sprintf(evalsha+
					`"4" "k" "q" "t" "r" "400" %q "17" "0" "60000" "5" "0"`, at, id)
				if tried {
					stand += fmt.Sprintf(" %q", before)
				}
				l.line(stand)
			case queues:
				l.line(fmt.Sprintf(evalsha+`"2" "k" "{k}:fence" %q "9000" %q`, at, value, member))
			case handed:
				l.line(fmt.Sprintf(evalsha+`"2" "k" "{k}:fence" %q "9000" %q`, at, heir, old))
			default:
				l.line(fmt.Sprintf(evalsha+`"2" "k" "{k}:fence" %q "9000"`, at, owner))
			}
			l.line(at + " [0 lua]" + command)
		}
		wrong := strings.Join(l.wrong, "; ")
		if l.changes != c.changes || l.blind != c.blind || l.expired != c.expired ||
			c.wrong == "" && wrong != "" || !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %d changes, %d blind, %d expired, wrong: %q; want %+v", name, l.changes,
				l.blind, l.expired, wrong, c)
		}
	}
	l := &ledger{key: "k"}
	for _, broken := range []string{"", "OK", "1.2 [0 lua]", `1.2 [0 lua] "SET`, `1.2 [0 lua] `,
		`x.y [0 lua] "SET"`} {
		l.line(broken)
	}
	if len(l.wrong) != 6 {
		t.Errorf("of six broken lines: %q", l.wrong)
	}
}

// The auditor sees what really happens on a server, also after it hung up.
func TestAuditor(t *testing.T) {
	redistest.Require(t)
	servers := redistest.Start(t, 1)
	s := servers[0]
	a := newAuditor(t, servers, "k")
	c := newClient(t, servers)
	for range 2 {
		m := c.NewMutex("k", redlock.WithFencing())
		must(t, "lock", m.Lock())
		_, err := m.Extend()
		must(t, "extend", err)
		_, err = m.Unlock()
		must(t, "unlock", err)
	}
	s.Must("EVAL", "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000)", "1", "k", "a")
	s.Must("CLIENT", "KILL", "TYPE", "normal")
	eventually(t, "the auditor to come back", func() bool {
		list, _ := s.Must("CLIENT", "LIST").(string)
		return strings.Contains(list, " flags=O ")
	})
	s.Must("EVAL", "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000)", "1", "k", "b")
	s.Must("EVAL", "return redis.call('DEL', KEYS[1])", "1", "k", "\"c\"\n")
	l := a.close()[0]
	if l.changes != 9 || l.blind != 1 || len(l.wrong) != 1 ||
		!strings.Contains(l.wrong[0], "by \"c\"\n, of what was \"b\"'s") {
		t.Errorf("%d changes, %d blind, wrong: %q", l.changes, l.blind, l.wrong)
	}
}

// lesson L90: MONITOR as Redis and Valkey write it.
func TestArgumentsOfMonitor(t *testing.T) {
	for list, want := range map[string][]string{
		`"SET" "k" "v"`:           {"SET", "k", "v"},
		`"GET" ""`:                {"GET", ""},
		`"GET" "a\" b" "c"`:       {"GET", `a" b`, "c"},
		`"EVAL" "1" "\"c\"\n"`:    {"EVAL", "1", "\"c\"\n"},
		`"EVAL" "1" ""c"\n"`:      {"EVAL", "1", "\"c\"\n"},
		`"EVAL" "1" "a"b" "\x00"`: {"EVAL", "1", `a"b`, "\x00"},
	} {
		if args, err := arguments(list); err != nil || !slices.Equal(args, want) {
			t.Errorf("%s: %q, %v; want %q", list, args, err, want)
		}
	}
	for _, list := range []string{`"SET`, `SET`, `"`} {
		if args, err := arguments(list); err == nil {
			t.Errorf("%s: %q, want an error", list, args)
		}
	}
}
