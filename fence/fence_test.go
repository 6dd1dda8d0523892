package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/fence"
)

// recorder is a transaction in which each statement changes the next number of rows, or fails.
type recorder struct {
	rows []int64
	err  error
	sent []string
}

func (r *recorder) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	r.sent = append(r.sent, query[:strings.IndexByte(query, ' ')])
	if r.err != nil {
		return nil, r.err
	}
	n := r.rows[0]
	r.rows = r.rows[1:]
	return rows(n), nil
}

type rows int64

func (rows) LastInsertId() (int64, error)   { return 0, errors.ErrUnsupported }
func (n rows) RowsAffected() (int64, error) { return int64(n), nil }

// Bad arguments are named, and nothing is sent.
func TestGuardRefusesBadArguments(t *testing.T) {
	for _, c := range []struct {
		dialect  fence.Dialect
		resource string
		token    uint64
		want     string
	}{
		{fence.Dialect{}, "a", 1, "fence: the Dialect is empty: use Postgres, MySQL or SQLite"},
		{fence.SQLite, "a", 0, `fence: no fencing token for "a": ` +
			"the context must be that of a lock held with WithFencing"},
		{fence.SQLite, "a", math.MaxInt64 + 1,
			"fence: the token 9223372036854775808 is greater than 9223372036854775807"},
		{fence.SQLite, "", 1, "fence: the resource has no name"},
		{fence.SQLite, strings.Repeat("ä", 96), 1,
			"fence: the name of the resource has 192 bytes, more than 190"},
		{fence.SQLite, "a\x00b", 1, `fence: the resource "a\x00b" is not UTF-8 without NUL`},
		{fence.SQLite, "a\xff", 1, `fence: the resource "a\xff" is not UTF-8 without NUL`},
		{fence.SQLite.WithTable(""), "a", 1, badTable("")},
		{fence.SQLite.WithTable("a.b.c"), "a", 1, badTable("a.b.c")},
		{fence.SQLite.WithTable("a."), "a", 1, badTable("a.")},
		{fence.SQLite.WithTable("a;b"), "a", 1, badTable("a;b")},
		{fence.Postgres.WithTable("$$"), "a", 1, badTable("$$")},
		{fence.Postgres.WithTable(`a"b`), "a", 1, badTable(`a"b`)},
		{fence.MySQL.WithTable("a`b"), "a", 1, badTable("a`b")},
	} {
		tx := &recorder{}
		err := fence.Guard(t.Context(), tx, c.dialect, c.resource, c.token)
		require.EqualError(t, err, c.want)
		assert.Equal(t, c.token == 0, errors.Is(err, fence.ErrNoToken))
		assert.Empty(t, tx.sent)
		if strings.HasPrefix(c.want, "fence: the table") {
			assert.Equal(t, c.want, c.dialect.Schema())
		}
	}
	err := fence.Guard(t.Context(), &sql.DB{}, fence.SQLite, "a", 1)
	require.ErrorContains(t, err, "a *sql.DB is no transaction")
	err = fence.InTx(t.Context(), nil, fence.SQLite, "a", nil)
	require.ErrorIs(
		t,
		err,
		fence.ErrNoToken,
		"not the context of a lock; the database is not asked",
	)
}

func badTable(name string) string {
	return fmt.Sprintf("fence: the table %q needs a name of letters, digits, _ and -, "+
		`such as "tokens" or "billing.tokens"`, name)
}

// A guarded transaction costs one statement more. MySQL takes two more for the first use of a
// resource.
func TestGuardCostsOneStatement(t *testing.T) {
	for _, c := range []struct {
		dialect fence.Dialect
		rows    []int64
		sent    []string
		stale   bool
	}{
		{fence.Postgres, []int64{1}, []string{"INSERT"}, false},
		{fence.Postgres, []int64{0}, []string{"INSERT"}, true},
		{fence.SQLite, []int64{1}, []string{"INSERT"}, false},
		{fence.SQLite, []int64{0}, []string{"INSERT"}, true},
		{fence.MySQL, []int64{1}, []string{"UPDATE"}, false},
		{fence.MySQL, []int64{0, 1}, []string{"UPDATE", "INSERT"}, false},
		{fence.MySQL, []int64{0, 2, 1}, []string{"UPDATE", "INSERT", "UPDATE"}, false},
		{fence.MySQL, []int64{0, 2, 0}, []string{"UPDATE", "INSERT", "UPDATE"}, true},
	} {
		tx := &recorder{rows: c.rows}
		err := fence.Guard(t.Context(), tx, c.dialect, "a", 7)
		assert.Equal(t, c.sent, tx.sent)
		if !c.stale {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, fence.ErrStale)
		assert.EqualError(
			t,
			err,
			`fence: "a" has seen a greater fencing token than 7: `+
				"the lock has been somebody else's since",
		)
	}
}

func TestGuardKeepsTheErrorOfTheDatabase(t *testing.T) {
	broken := errors.New("broken")
	for _, d := range []fence.Dialect{fence.Postgres, fence.MySQL, fence.SQLite} {
		err := fence.Guard(t.Context(), &recorder{err: broken}, d, "a", 1)
		require.ErrorIs(t, err, broken)
		assert.EqualError(t, err, `fence: guarding "a": broken`)
		assert.NotErrorIs(t, err, fence.ErrStale)
	}
}
