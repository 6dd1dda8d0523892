package redlocktest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The programs of the page, one after the other, are recipes_test.go: each of them is run.
func TestThePageIsTheRecipes(t *testing.T) {
	page, err := os.ReadFile("../docs/testing-your-code.md")
	require.NoError(t, err)
	recipes, err := os.ReadFile("recipes_test.go")
	require.NoError(t, err)
	var programs []string
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, block := range blocks {
		programs = append(programs, block[1])
	}
	assert.Equal(t, string(recipes), strings.Join(programs, "\n"))
}

// The package stays small, and the page names all of it.
func TestThePageNamesEveryFunction(t *testing.T) {
	page, err := os.ReadFile("../docs/testing-your-code.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	functions := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "way.go" { // whose methods are a Pool's
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() {
				functions++
				assert.Regexp(t, `\b`+f.Name.Name+`\b`, string(page))
			}
		}
	}
	assert.Positive(t, functions)
	assert.Less(t, functions, 20)
}
