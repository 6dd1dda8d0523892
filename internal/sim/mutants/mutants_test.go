// Package mutants plants bugs in redlock, one at a time, and lets the simulation find them. The
// bugs are pairs of text to search and replace, laid over the sources while a test is
// built; the code that is shipped knows nothing of them.
//
//	go test ./internal/sim/mutants -kill -v -timeout 20m          // some minutes
//	go test ./internal/sim/mutants -kill -update -timeout 20m     // and writes docs/mutants.md
package mutants

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	kill   = flag.Bool("kill", false, "build every mutant and run the simulation against it")
	only   = flag.String("only", "", "the names of the mutants that -kill is about, as M1,M2; all if empty")
	update = flag.Bool("update", false, "write the result to docs/mutants.md")
)

const root = "../../.."

// mutant is a bug.
type mutant struct {
	name      string
	bug       string
	edits     []edit
	test      string // that finds it
	schedules int    // it has for that, where it is a campaign
}

type edit struct{ file, old, new string }

const (
	campaign   = "TestSchedules"
	edge       = "TestSchedulesAtTheEdge"
	outOfModel = "TestSchedulesOutOfTheModel"
	cancels    = "TestCancelAtEveryEvent"
	contention = "TestContentionBesideAHungNode"
)

var mutants = []mutant{
	{"M1", "validity counted from the end of the attempt", []edit{{
		"acquire.go", "	if err == nil && won && clock.Remaining(m.core.now(), l.until) > 0 {",
		"	l.until = m.core.now().Add(m.cfg.expiry - m.cfg.drift())\n	if err == nil && won && clock.Remaining(m.core.now(), l.until) > 0 {",
	}}, campaign, 100},
	{"M2", "no drift", []edit{{
		"options.go", "return time.Duration(float64(c.expiry)*c.driftFactor) + driftFloor", "return 0",
	}}, campaign, 100},
	{"M3", "no drift in an extension", []edit{{
		"lease.go", "until := start.Add(m.cfg.expiry - m.cfg.drift())", "until := start.Add(m.cfg.expiry)",
	}}, edge, 100},
	{"M4", "an extension counted from its end", []edit{{
		"lease.go", "until := start.Add(m.cfg.expiry - m.cfg.drift())", "_, until := start, m.core.now().Add(m.cfg.expiry-m.cfg.drift())",
	}}, campaign, 300},
	{"M5", "a node deletes the key whoever it belongs to", []edit{{
		"internal/sim/command.go", "	switch n.holds(c) {\n	case 1:\n		delete(n.keys, c.key)", "	switch n.holds(c) {\n	case 1, -1:\n		delete(n.keys, c.key)",
	}}, campaign, 100},
	{"M6", "half of the nodes are a quorum", []edit{{
		"redlock.go", "quorum:  len(pools)/2 + 1,", "quorum:  max(len(pools)/2, 1),",
	}}, campaign, 100},
	{"M7", "an attempt that failed is not released", []edit{{
		"acquire.go", "	d.back = m.release(ctx, l, quorum.Spec{\n", "	d.back = m.release(ctx, l, quorum.Spec{\n		Skip: func(int) bool { return true },\n",
	}}, campaign, 100},
	{"M8", "commands end with the caller's context", []edit{{
		"internal/quorum/round.go", "return context.WithoutCancel(ctx)", "return ctx",
	}}, cancels, 0},
	{"M9", "extended though it has ended", []edit{{
		"lease.go", "!until.IsZero() && left <= 0 {\n		return nil, refuse(ErrExpired, fmt.Sprintf(", "!until.IsZero() && left <= -time.Hour {\n		return nil, refuse(ErrExpired, fmt.Sprintf(",
	}}, campaign, 1000},
	{"M10", "what waits for a node is sent after Unlock", []edit{
		{"internal/quorum/lane.go", " || c.mark != nil && c.mark.over) {", ") {"},
		{"internal/quorum/lane.go", "		idle = l.withdraw(c.mark)\n", ""},
	}, campaign, 1000},
	{"M11", "renewal goes on after Unlock", []edit{
		{"hold.go", "	over, r := h.over, h.renewal\n	h.over = true\n	if h.timer != nil {\n		h.timer.Stop()\n	}\n", "	over, r := h.over, (*renewal)(nil)\n"},
		{"lease.go", "	m.mu.Lock()\n	if l.releasing {\n", "	m.mu.Lock()\n	if false {\n"},
		{"internal/quorum/lane.go", " || c.mark != nil && c.mark.over) {", ") {"},
	}, campaign, 100},
	{"M12", "the holder learns of the loss a little late", []edit{
		{"hold.go", "case clock.Remaining(now, h.l.until) <= 0:", "case clock.Remaining(now, h.l.until) <= -h.m.cfg.expiry/20:"},
		{"hold.go", "	d := clock.Remaining(now, h.l.until)\n	if !h.limit", "	d := clock.Remaining(now, h.l.until) + h.m.cfg.expiry/20\n	if !h.limit"},
	}, campaign, 300},
	{"M13", "the holder does not learn at once what its own question has proven", []edit{{
		"lease.go", "		h.timer.Reset(0)\n", "",
	}}, outOfModel, 500},
	{"M14", "one value for all attempts of a mutex", []edit{
		{"acquire.go", "	value, err := m.newValue()\n", "	value, err := m.oldValue()\n"},
		{"acquire.go", "// sawToken remembers", "var old = map[*Mutex]string{}\n\nfunc (m *Mutex) oldValue() (v string, err error) {\n	m.core.mu.Lock()\n	defer m.core.mu.Unlock()\n	if v = old[m]; v == \"\" {\n		v, err = m.newValue()\n		old[m] = v\n	}\n	return v, err\n}\n\n// sawToken remembers"},
	}, campaign, 100},
	{"M15", "a round waits for all nodes", []edit{{
		"internal/quorum/round.go", "if r.tally.Yes >= r.need || r.tally.Yes+r.tally.Pending < r.need {", "if r.tally.Pending == 0 {",
	}}, contention, 0},
	{"M16", "an attempt waits for a hung node while others need its votes", []edit{{
		"acquire.go", "Hasty: !final,", "Hasty: false,",
	}}, contention, 0},
	{"M17", "Extend counts the nodes that it is about to heal", []edit{{
		"lease.go", "	if has {\n		return r, nil\n	}\n",
		"	for _, o := range r.Outcomes() {\n		if o.Err == nil && o.Reply == 0 {\n			has = true\n		}\n	}\n	if has {\n		return r, nil\n	}\n",
	}}, campaign, 300},
	{"M18", "an error is a vote", []edit{{
		"internal/quorum/round.go", "r.tally.Failed++\n	case r.yes", "r.tally.Yes++\n	case r.yes",
	}}, campaign, 100},
	{"M19", "no raise round", []edit{{
		"acquire.go", "	if agree >= m.core.quorum {\n", "	if agree > 0 {\n",
	}}, campaign, 3000},
	{"M20", "tokens by INCR alone", []edit{
		{"acquire.go", "	if agree >= m.core.quorum {\n", "	if agree > 0 {\n"},
		{"acquire.go", "return max(c.lastToken.Load()+1, uint64(max(c.now().UnixMicro(), 1)))", "return 1"},
	}, campaign, 300},
	{"M21", "no lanes: a release overtakes its SET", []edit{{
		"internal/quorum/lane.go", "	case l.running == nil:\n", "	case true:\n",
	}}, campaign, 100},
	{"M22", "the node timeout is left to the client", []edit{{
		"internal/quorum/round.go", "time.AfterFunc(s.Budget-last, r.expire)", "time.AfterFunc(100*s.Budget, r.expire)",
	}}, campaign, 100},
	{"M23", "Unlock takes a missing key for a deleted one", []edit{{
		"lease.go", "	if s.Need == 0 {\n", "	if s.Vote == nil {\n		s.Vote = func(_ int, reply int64) bool { return reply >= 0 }\n	}\n	if s.Need == 0 {\n",
	}}, campaign, 300},
	{"M24", "the restart guard is not asked for", []edit{{
		"commands.go", "		guard = uptime(m.cfg.guard)\n", "		guard = 0\n",
	}}, campaign, 3000},
	{"M25", "Lock does not look at its context while it waits for nodes", []edit{{
		"internal/quorum/round.go", "	case <-ctx.Done():\n		return false, ctx.Err()\n", "",
	}}, cancels, 0},
}

// overlay writes the mutated files to dir and returns the name of the overlay.
func (m mutant) overlay(t *testing.T, dir string) string {
	replace := make(map[string]string)
	for i, e := range m.edits {
		path, err := filepath.Abs(filepath.Join(root, e.file))
		require.NoError(t, err)
		from := path
		if replace[path] != "" {
			from = replace[path]
		}
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), e.old), "%s: %s must contain once:\n%s", m.name, e.file, e.old)
		replace[path] = filepath.Join(dir, fmt.Sprintf("%s-%d.go", m.name, i))
		require.NoError(t, os.WriteFile(replace[path], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600))
	}
	name := filepath.Join(dir, m.name+".json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, text, 0o600))
	return name
}

// Every planted bug still fits the code.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		m.overlay(t, t.TempDir())
	}
}

var (
	schedulesRun = regexp.MustCompile(`(\d+) schedules in`)
	broken       = regexp.MustCompile(`(?m)^\s+(I\d+ [a-z ]+):`)
)

// Every planted bug is found.
func TestMutantsDie(t *testing.T) {
	if !*kill {
		t.Skip("needs -kill; it takes some minutes")
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| | planted bug | found by | after schedules | of at most | what broke |\n|---|---|---|---|---|---|\n")
	for _, m := range mutants {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), m.name) {
			continue
		}
		begun := time.Now()
		args := []string{"test", "-vet=off", "-count=1", "-timeout=10m", "-overlay", m.overlay(t, t.TempDir()), "./internal/sim", "-run", "^" + m.test + "$", "-shrink=false"}
		after, limit := "–", "–"
		if m.schedules > 0 {
			args = append(args, fmt.Sprintf("-schedules=%d", m.schedules))
			limit = fmt.Sprint(m.schedules)
		}
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		text := string(out)
		what := "the test's own bounds"
		if f := broken.FindStringSubmatch(text); f != nil {
			what = f[1]
		} else if strings.Contains(text, "deadlock") {
			what = "something hangs for ever"
		}
		if f := schedulesRun.FindStringSubmatch(text); f != nil && m.schedules > 0 {
			after = f[1]
		}
		line := fmt.Sprintf("| %s | %s | `%s` | %s | %s | %s |", m.name, m.bug, m.test, after, limit, what)
		switch {
		case strings.Contains(text, "[build failed]"):
			t.Errorf("%s does not compile:\n%s", m.name, text)
		case err == nil || !strings.Contains(text, "FAIL: "+m.test) && !strings.Contains(text, "panic: "):
			t.Errorf("%s survives: %s\n%s", m.name, m.bug, text)
			line = fmt.Sprintf("| %s | %s | **not found** by `%s` | | %s | |", m.name, m.bug, m.test, limit)
		}
		if testing.Verbose() {
			t.Log(text)
		}
		t.Logf("%s %.0f s", line, time.Since(begun).Seconds())
		fmt.Fprintln(&table, line)
	}
	if *update {
		const head = "# Planted bugs\n\nMade by `go test ./internal/sim/mutants -kill -update`: each bug is laid over the sources while the\nsimulation is built, which has to find it within the stated number of schedules.\n\n"
		require.NoError(t, os.WriteFile(filepath.Join(root, "docs/mutants.md"), []byte(head+table.String()), 0o644))
	}
}
