package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/embedded"
)

// series are the series of one metric by what they are called, with their labels and values.
type series struct {
	labels map[string]string
	value  string
}

var (
	line    = regexp.MustCompile(`(?m)^(redlock_\w+)\{(.*)\} (\S+)$`)
	label   = regexp.MustCompile(`(\w+)="([^"]*)"`)
	used    = regexp.MustCompile(`(redlock_\w+)(?:\{([^}]*)\})?(?:\[[^\]]*\])?`)
	matcher = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouped = regexp.MustCompile(`by \(([^)]*)\)`)
)

// scrape returns what the example serves.
func scrape(t *testing.T, a *app) map[string][]series {
	t.Helper()
	w := httptest.NewRecorder()
	a.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	all := map[string][]series{}
	for _, l := range line.FindAllStringSubmatch(w.Body.String(), -1) {
		s := series{labels: map[string]string{}, value: l[3]}
		for _, pair := range label.FindAllStringSubmatch(l[2], -1) {
			s.labels[pair[1]] = pair[2]
		}
		all[l[1]] = append(all[l[1]], s)
	}
	return all
}

// expressions are those of the alerts and of the dashboard, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	alerts, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	for _, rule := range strings.Split(string(alerts), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		_, rest, _ = strings.Cut(rest, "expr: ")
		expr, _, _ := strings.Cut(rest, "labels:")
		found["alert "+name] = expr
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &board))
	for _, p := range board.Panels {
		for i, target := range p.Targets {
			found[fmt.Sprint("panel ", p.Title, " ", i)] = target.Expr
		}
	}
	return found
}

// missing says which metrics and labels of an expression are not among what was scraped, but for
// the labels that Prometheus adds.
func missing(expr string, scraped map[string][]series) (what []string) {
	var groups []string
	for _, g := range grouped.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(g[1], ",") {
			groups = append(groups, strings.TrimSpace(l))
		}
	}
	for _, m := range used.FindAllStringSubmatch(expr, -1) {
		if slices.Contains(groups, m[1]) {
			continue // a label
		}
		has := func(ok func(s series) bool) bool { return slices.ContainsFunc(scraped[m[1]], ok) }
		if !has(func(series) bool { return true }) {
			what = append(what, m[1])
			continue
		}
		fits := func(s series) bool {
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				value, ok := s.labels[l[1]]
				switch {
				case l[1] == "job" || l[1] == "instance":
				case !ok, l[2] == "=" && value != l[3], l[2] == "!=" && value == l[3]:
					return false
				}
			}
			return true
		}
		if !has(fits) {
			what = append(what, m[0])
		}
		for _, g := range groups {
			if g != "job" && g != "instance" &&
				!has(func(s series) bool { _, ok := s.labels[g]; return ok && fits(s) }) {
				what = append(what, m[0]+" by "+g)
			}
		}
	}
	return what
}

// The page has every alert, and every metric and attribute.
func TestThePageOfTheMetrics(t *testing.T) {
	text, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	page := string(text)
	alerts := regexp.MustCompile("(?m)^\\| `(Redlock\\w+)` \\|")
	var told []string
	for _, m := range alerts.FindAllStringSubmatch(page, -1) {
		told = append(told, "alert "+m[1])
	}
	var all []string
	for where := range expressions(t) {
		if strings.HasPrefix(where, "alert ") {
			all = append(all, where)
		}
	}
	assert.ElementsMatch(t, all, told)

	for _, file := range []string{"../metrics.go", "../otelredlock.go"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		names := regexp.MustCompile(`"(redlock\.[a-z_.]+)"`).
			FindAllStringSubmatch(string(source), -1)
		require.Greater(t, len(names), 6)
		for _, m := range names {
			assert.Contains(t, page, "`"+m[1]+"`")
		}
	}
}

// Each metric of the alerts and of the dashboard exists, with the labels that they look at, in what
// the example serves. Counters are there, with 0, before anything has happened: otherwise an alert
// would miss the first event.
func TestWhatIsLookedAtExists(t *testing.T) {
	nodes, err := embedded.Start(3)
	require.NoError(t, err)
	defer nodes.Close()
	a, err := newApp(nodes.Addrs())
	require.NoError(t, err)
	defer a.close()

	exprs := expressions(t)
	require.Greater(t, len(exprs), 20)
	fresh := scrape(t, a)
	counter := regexp.MustCompile(`redlock_\w+_total(\{[^}]*\})?`)
	for where, expr := range exprs {
		for _, c := range counter.FindAllString(expr, -1) {
			assert.Empty(t, missing(c, fresh), where)
		}
	}
	for name, all := range fresh {
		for _, s := range all {
			assert.Equal(t, "0", s.value, "%s%v", name, s.labels)
		}
	}

	// Everything that makes a histogram: a lock that is contended, extended, and nodes that fail.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.work(ctx)
	}()
	for range 2 {
		require.NoError(t, a.rl.Do(t.Context(), "monitoring",
			func(context.Context) error { return nil }))
	}
	cancel()
	<-done
	m := a.rl.NewMutex("extended")
	require.NoError(t, m.Lock())
	_, err = m.Extend()
	require.NoError(t, err)
	nodes.Stop(2)
	_, err = m.Unlock()
	require.NoError(t, err)
	nodes.Stop(1)
	require.ErrorIs(t, m.TryLock(), redlock.ErrNoQuorum)

	const patience = 10 * time.Second
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		scraped, none := scrape(t, a), true
		for where, expr := range exprs {
			if what := missing(expr, scraped); len(what) > 0 {
				none = false
				if time.Now().After(end) {
					t.Errorf("%s: there is no %q", where, what)
				}
			}
		}
		if none || t.Failed() {
			return
		}
	}
}

// The check above finds a metric that is called otherwise, or lacks a label or its value.
func TestMissing(t *testing.T) {
	scraped := map[string][]series{"redlock_x_total": {{map[string]string{"end": "lost"}, "0"}}}
	for expr, want := range map[string]bool{
		`rate(redlock_x_total{end="lost", job=~"a"}[5m])`:    true,
		`sum by (end, job) (redlock_x_total{end!="other"})`:  true,
		`rate(redlock_y_total{end="lost"}[5m])`:              false,
		`rate(redlock_x_total{end="margin"}[5m])`:            false,
		`rate(redlock_x_total{reason!=""}[5m])`:              false,
		`sum by (redlock_node) (rate(redlock_x_total[5m]))`:  false,
		`redlock_x_total / redlock_z_total{end="lost"} > .5`: false,
	} {
		assert.Equal(t, want, len(missing(expr, scraped)) == 0, expr)
	}
}

// Prometheus accepts the rules, and each alert fires on the series that its fault makes.
func TestAlerts(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("REDLOCK_REQUIRE_PROMTOOL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, args := range [][]string{
		{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"},
	} {
		out, err := exec.Command("promtool", args...).CombinedOutput()
		assert.NoError(t, err, "%s: %s", args, out)
	}
	rules, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	tests, err := os.ReadFile("alerts_test.yml")
	require.NoError(t, err)
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	for _, name := range alerts {
		assert.Regexp(t, `alertname: `+name[1]+`\n\s+exp_alerts:\n\s+- `, string(tests),
			"no test says that it fires")
	}
}

// Each panel has a place of its own.
func TestPanelsDoNotOverlap(t *testing.T) {
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
		}
	}
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &board))
	ids := map[int]bool{}
	for i, p := range board.Panels {
		assert.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		a := p.GridPos
		assert.LessOrEqual(t, a.X+a.W, 24, p.Title)
		for _, other := range board.Panels[:i] {
			b := other.GridPos
			assert.False(t, a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H,
				"%s and %s", p.Title, other.Title)
		}
	}
}

// The example runs until it is told to end.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	assert.NoError(t, run(ctx, "127.0.0.1:0", ""))
	assert.Error(t, run(t.Context(), "127.0.0.1:nonsense", ""))
}
