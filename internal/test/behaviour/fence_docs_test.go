package behaviour_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// fencedSQL is how a program of the docs uses a fenced row. Without a claim it shows the token
// with the write alone.
type fencedSQL struct{ claim, read, write string }

// sqlOfTheDocs returns the statements of each place in the docs that shows some with a fence.
func sqlOfTheDocs(t *testing.T) map[string]fencedSQL {
	t.Helper()
	found := map[string]fencedSQL{}
	for file, block := range map[string]string{
		"docs/safety.md": "(?s)```sql\n(.*?)```",
		"mutex.go":       `((?:(?m:^//\t[A-Z].*\n)){3})`,
	} {
		text, err := os.ReadFile("../../../" + file)
		require.NoError(t, err)
		m := regexp.MustCompile(block).FindAllStringSubmatch(string(text), -1)
		require.Len(t, m, 1, "blocks of SQL in %s", file)
		var statements []string
		for line := range strings.Lines(m[0][1]) {
			line, _, _ = strings.Cut(strings.TrimPrefix(line, "//\t"), "--")
			if line = strings.TrimSuffix(strings.TrimSpace(line), ";"); line != "" {
				statements = append(statements, line)
			}
		}
		require.Len(t, statements, 3, "claim, read and write in %s", file)
		found[file] = fencedSQL{statements[0], statements[1], statements[2]}
	}
	return found
}

// table is a table in memory that executes UPDATE … SET … WHERE … and SELECT column FROM … WHERE
// …, where all conditions compare a column with a parameter. Each statement is one step.
type table struct {
	t    *testing.T
	name string
	rows []map[string]any // strings and uint64
}

var (
	update    = regexp.MustCompile(`^UPDATE (\w+) SET (.+) WHERE (.+)$`)
	selection = regexp.MustCompile(`^SELECT (\w+) FROM (\w+) WHERE (.+)$`)
	term      = regexp.MustCompile(`^(\w+) (=|<=) (\$\w+)$`)
)

// exec returns how many rows matched, and the column of the last one that was selected.
func (d *table) exec(statement string, params map[string]any) (matched int, selected any) {
	d.t.Helper()
	var column, name, set, where string
	if m := update.FindStringSubmatch(statement); m != nil {
		name, set, where = m[1], m[2], m[3]
	} else {
		m := selection.FindStringSubmatch(statement)
		require.NotNil(d.t, m, "not understood: %s", statement)
		column, name, where = m[1], m[2], m[3]
	}
	require.Equal(d.t, d.name, name)
	parts := func(text string) (column, operator string, value any) {
		m := term.FindStringSubmatch(text)
		require.NotNil(d.t, m, "not understood: %s in %s", text, statement)
		require.Contains(d.t, d.rows[0], m[1], "columns")
		require.Contains(d.t, params, m[3], "parameters of %s", statement)
		return m[1], m[2], params[m[3]]
	}
rows:
	for _, row := range d.rows {
		for _, condition := range strings.Split(where, " AND ") {
			switch column, operator, value := parts(condition); {
			case operator == "=" && row[column] != value:
				continue rows
			case operator == "<=" && row[column].(uint64) > value.(uint64):
				continue rows
			}
		}
		matched++
		if set == "" {
			selected = row[column]
			continue
		}
		for _, assignment := range strings.Split(set, ", ") {
			column, _, value := parts(assignment)
			row[column] = value
		}
	}
	return matched, selected
}

// seller sells one item under a lock.
type seller struct {
	m     *redlock.Mutex
	d     *table
	sql   fencedSQL
	stock uint64 // as read
}

func (s *seller) params() map[string]any {
	return map[string]any{"$id": "lamp", "$token": s.m.FencingToken(), "$stock": s.stock - 1}
}

// begin locks, claims and reads. It reports whether the resource accepted the token.
func (s *seller) begin() bool {
	require.NoError(s.d.t, s.m.Lock())
	if s.sql.claim != "" {
		if n, _ := s.d.exec(s.sql.claim, s.params()); n == 0 {
			return false
		}
	}
	_, stock := s.d.exec(s.sql.read, s.params())
	s.stock = stock.(uint64)
	return true
}

// finish writes. It reports whether the resource accepted the token.
func (s *seller) finish() bool {
	n, _ := s.d.exec(s.sql.write, s.params())
	return n > 0
}

// sold plays two sales of a stock of ten, and returns what is left. Ada is paused after she has
// read, until Grace has the lock and has read, too. Ada writes first.
func sold(t *testing.T, rl *redlock.Redlock, sql fencedSQL) (left uint64, refused bool) {
	t.Helper()
	d := &table{t: t, name: "item", rows: []map[string]any{
		{"id": "chair", "stock": uint64(3), "fence": uint64(1) << 52},
		{"id": "lamp", "stock": uint64(10), "fence": uint64(0)},
	}}
	sale := func() *seller { return &seller{m: rl.NewMutex("lamp"), d: d, sql: sql} }
	ada, grace := sale(), sale()
	require.True(t, ada.begin())
	time.Sleep(redlock.DefaultExpiry) // the pause
	require.True(t, grace.begin())
	refused = !ada.finish()
	require.True(t, grace.finish(), "Grace holds the lock")
	mustUnlock(t, grace.m)
	_, err := ada.m.Unlock()
	require.ErrorIs(t, err, redlock.ErrExpired)
	if refused {
		ada = sale()
		require.True(t, ada.begin())
		require.True(t, ada.finish())
		mustUnlock(t, ada.m)
	}
	_, stock := d.exec("SELECT stock FROM item WHERE id = $id", map[string]any{"$id": "lamp"})
	assert.Equal(t, uint64(3), d.rows[0]["stock"], "the other row")
	return stock.(uint64), refused
}

// lesson L72: a stale holder that writes before the new one does is refused, because the new one
// has claimed the row before it read it.
func TestTheSQLOfTheDocsLosesNoUpdate(t *testing.T) {
	for place, sql := range sqlOfTheDocs(t) {
		t.Run(place, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
				left, refused := sold(t, rl, sql)
				assert.True(t, refused)
				assert.EqualValues(t, 8, left)
			}, redlock.WithFencing())
		})
	}
}

// To show the token with the writes alone is what the docs must not say: the update is lost.
func TestATokenThatIsShownWithTheWriteAloneLosesAnUpdate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) {
		left, refused := sold(t, rl, fencedSQL{
			read: "SELECT stock FROM item WHERE id = $id",
			write: "UPDATE item SET stock = $stock, fence = $token WHERE id = $id AND fence <= " +
				"$token",
		})
		assert.False(t, refused)
		assert.EqualValues(t, 9, left, "one of the two sales is lost")
	}, redlock.WithFencing())
}

// The command of the docs tells the counter that a lock really has. lesson L87
func TestTheCommandOfTheDocsTellsTheCounter(t *testing.T) {
	text, err := os.ReadFile("../../../docs/safety.md")
	require.NoError(t, err)
	command := regexp.MustCompile(
		`(?m)^    \$ printf %s (\S+) \| sha256sum \| cut -c 1-4\n    ([0-9a-f]{4})$`)
	m := command.FindStringSubmatch(string(text))
	require.NotNil(t, m)
	bubble(t, 1, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
		lock := rl.NewMutex(m[1])
		require.NoError(t, lock.Lock())
		assert.Equal(t, fmt.Sprint(lock.FencingToken()), nodes[0].Value("redlock:fence:"+m[2]))
		mustUnlock(t, lock)
	}, redlock.WithFencing())
}

func TestTheTableOfTheseTestsCompares(t *testing.T) {
	d := &table{t: t, name: "item", rows: []map[string]any{{"id": "lamp", "fence": uint64(7)}}}
	for token, want := range map[uint64]int{6: 0, 7: 1, 8: 1} {
		n, _ := d.exec("UPDATE item SET id = $id WHERE id = $id AND fence <= $token",
			map[string]any{"$id": "lamp", "$token": token})
		assert.Equal(t, want, n, fmt.Sprint(token))
	}
}
