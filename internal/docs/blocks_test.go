package docs

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
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

// foundIn returns the file of another module that has to contain a block which needs that module,
// or "".
func foundIn(block string) string {
	for word, file := range map[string]string{
		"asynq":       "integrations/asynq/example_test.go",
		"pgx":         "fence/dbtest/pgx_test.go",
		"otelredlock": "otelredlock/example_test.go",
	} {
		if strings.Contains(block, word) {
			return file
		}
	}
	return ""
}

// Each block of Go on the pages can be pasted into a program that has what is around it.
func TestTheBlocksOfThePagesCompile(t *testing.T) {
	text := &strings.Builder{}
	text.WriteString(around)
	bare := func(code string) string { // of comments and spaces
		code = regexp.MustCompile(`//.*`).ReplaceAllString(code, "")
		return strings.Join(strings.Fields(code), "")
	}
	var compiled []string
	for _, page := range pages(t) {
		switch page {
		case "README.md", "docs/operations.md", "docs/testing-your-code.md":
			continue // other tests read these
		}
		if !strings.Contains(read(t, page), "```go\n") {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		compiled = append(compiled, name)
		for i, block := range blocks(t, page, "go") {
			if file := foundIn(block); file != "" {
				assert.Contains(t, bare(read(t, file)), bare(block), "%s: %s", file, block)
			} else {
				fmt.Fprintf(text, "func %s%d() error {\n%s\nreturn nil\n}\n", name, i, block)
			}
		}
	}
	assert.Subset(t, compiled, []string{"election", "fence", "observability", "recipes"})
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "pages", text.String(), 0)
	require.NoError(t, err)
	check := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	check.Error = func(err error) { // a block may end with what a reader goes on with
		assert.Contains(t, err.Error(), "declared and not used", text.String())
	}
	_, _ = check.Check("page", fset, []*ast.File{file}, nil)
}
