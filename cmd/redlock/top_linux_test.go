package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
)

// perSecond is the most commands that a server was sent within a second, those of scripts not
// counted.
func perSecond(t *testing.T, lines []string) (most int) {
	t.Helper()
	var times []float64
	for _, l := range lines {
		at, rest, _ := strings.Cut(l, " ")
		command, _ := strconv.ParseFloat(at, 64)
		if strings.Contains(rest, " lua]") {
			continue
		}
		times = append(times, command)
	}
	for i, from := range times {
		n := slices.IndexFunc(times[i:], func(at float64) bool { return at >= from+1 })
		if n < 0 {
			n = len(times) - i
		}
		most = max(most, n)
	}
	return most
}

// Top shows nodes and locks in a terminal, sorts by a key, sees each change within a second,
// with a minority of nodes dead, frozen or full, 200 waiters and 10,000 keys beside.
// It leaves the terminal as it was.
func TestTopInATerminal(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			s := newScene(t, n)
			s.lock(t, "aaa", redlock.WithOwner("zoe"))
			s.lock(t, "bbb", redlock.WithOwner("ada"))
			s.crowd(t, "bbb", 200)
			pulse := redistest.TakePulse(t, s.servers[n-1])
			x := atTerminal(t, s.cluster,
				`stty rows 40 cols 160; "$0" top -prefix app:; `+
					`echo "status $?"; stty -a | tr ';' '\n'`)
			x.shows("zoe") // all that is needed has answered
			x.shows("sorted by name")
			// What a frame shows is said by the line of a lock. Another change follows each.
			shows := func(what, text string) {
				t.Helper()
				soon(t, pulse, what, func() { x.shows(text) })
			}
			assert.Regexp(t, `^aaa +zoe +> .*s +\d .*s +0 *`, x.shows("aaa "))
			assert.Regexp(t, `^bbb +ada +> .*s +\d +59m.*s +200 +200h0m`, x.shows("bbb "))
			// The order of lines within one frame is what a sort changes.
			order := func(first, second string) {
				t.Helper()
				deadline := time.Now().Add(patient)
				for last := ""; time.Now().Before(deadline); {
					l := x.shows("")
					switch {
					case strings.HasPrefix(l, "LOCK"):
						last = ""
					case strings.HasPrefix(l, first+" "):
						last = first
					case strings.HasPrefix(l, second+" ") && last == first:
						return
					}
				}
				t.Fatalf("%s is not before %s", first, second)
			}
			for key, first := range map[string]string{
				"n": "aaa", "o": "bbb", "w": "bbb", "l": "bbb",
			} {
				second := map[string]string{"aaa": "bbb", "bbb": "aaa"}[first]
				x.types(key)
				order(first, second)
				x.types("r")
				order(second, first)
			}
			x.types("n")
			m := s.lock(t, "new", redlock.WithOwner("eve"))
			shows("a new lock", "eve")
			if n > 1 {
				s.servers[0].Kill()
				shows("a dead node", " no ")
			}
			if n > 3 {
				s.servers[1].Freeze()
				t.Cleanup(s.servers[1].Thaw)
				x.shows("no answer within") // at the latest an interval and a timeout
			}
			s.servers[n-1].Must("CONFIG", "SET", "maxmemory", "1")
			shows("a full node", "% of 0.0 MB")
			s.servers[n-1].Must("CONFIG", "SET", "maxmemory", "0")
			_, err := m.Unlock()
			require.NoError(t, err)
			x.types("q")
			x.shows("status 0")
			x.shows(" icanon")
			x.shows(" echo")
			require.NoError(t, x.shell.Wait())
			screen := strings.Join(x.seen, "\n")
			assert.Contains(t, screen, "\x1b[?1049h")
			assert.Regexp(t, regexp.QuoteMeta("\x1b[?1049l")+"[^\x1b]*status 0", screen)
		})
	}
}

// ^Z gives the terminal back, and fg shows top again.
func TestTopStopsWithTheTerminal(t *testing.T) {
	s := newScene(t, 1)
	s.lock(t, "job", redlock.WithOwner("ada"))
	x := atTerminal(t, s.cluster, `set -m; stty rows 40 cols 160; "$0" top -prefix app:; `+
		`echo "stopped $?"; stty -a | tr ';' '\n'; fg; echo "status $?"`)
	x.shows("ada")
	x.types("\x1a")
	x.shows(fmt.Sprint("stopped ", 128+int(syscall.SIGTSTP)))
	x.shows(" icanon")
	x.shows("ada")
	x.types("q")
	x.shows("status 0")
	require.NoError(t, x.shell.Wait())
}

// The commands of a view to a node are few: no more than twenty in any second, while all change.
func TestViewsAskLittle(t *testing.T) {
	for _, args := range [][]string{{"top"}, {"watch", "job"}, {"status"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 1)
			s.lock(t, "job", redlock.WithShared())
			monitor := s.servers[0].Monitor()
			x := atTerminal(t, s.cluster, `stty rows 40 cols 160; timeout --foreground 4 "$0" `+
				args[0]+` -prefix app: `+strings.Join(args[1:], " ")+`; echo "status $?"`)
			x.shows("status ")
			require.NoError(t, x.shell.Wait())
			lines := monitor.Lines()
			most := perSecond(t, lines)
			t.Logf("%d commands, at most %d a second", len(lines), most)
			assert.LessOrEqual(t, most, 20)
		})
	}
}
