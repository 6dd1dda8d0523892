package docs

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the blocks of the pages use without declaring it.
const around = `package page

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/fence"
	"github.com/redlock-go/redlock/pool"
)

var (
	err       error
	ctx       context.Context
	pools     []pool.Pool
	rl, locks *redlock.Redlock
	election  *redlock.Election
	db        *sql.DB
	url       string
	from, to  string
	k         int
	d         time.Duration
	cache     interface {
		Get(string) (string, bool)
		Set(string, string) error
	}
)

func report(context.Context) error                       { return nil }
func read(context.Context) error                         { return nil }
func write(context.Context) error                        { return nil }
func call(context.Context) error                         { return nil }
func load(context.Context, string) error                 { return nil }
func compute(context.Context) string                     { return "" }
func lead(context.Context, string) error                 { return nil }
func schedule(context.Context, uint64) error             { return nil }
func move(_ context.Context, _, _ string, _, _ uint64) error { return nil }
`

// Each block of Go on the pages that no other test reads can be pasted into a program that has what
// is around it. Those that need another module are left to the tests of that.
func TestTheBlocksOfThePagesCompile(t *testing.T) {
	text := &strings.Builder{}
	text.WriteString(around)
	for _, page := range []string{"election", "fence", "observability", "recipes"} {
		for i, block := range blocks(t, "docs/"+page+".md", "go") {
			if !strings.Contains(block, "asynq") && !strings.Contains(block, "pgx") &&
				!strings.Contains(block, "otelredlock") {
				fmt.Fprintf(text, "func %s%d() error {\n%s\nreturn nil\n}\n", page, i, block)
			}
		}
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "pages", text.String(), 0)
	require.NoError(t, err)
	check := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	check.Error = func(err error) { // a block may end with what a reader goes on with
		assert.Contains(t, err.Error(), "declared and not used", text.String())
	}
	_, _ = check.Check("page", fset, []*ast.File{file}, nil)
}
