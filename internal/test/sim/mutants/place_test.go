package mutants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A place names the part of the sources that an edit is about: a function or method of a package by
// the path of that, as New, Mutex.attempt and internal/quorum.Round.decide, wherever in the package
// it stands; or a file that is not Go.
type place string

func (p place) isFile() bool { return path.Ext(string(p)) == ".lua" }

// split returns the directory and the name of a function.
func (p place) split() (dir, name string) {
	dir, name = path.Split(string(p))
	if dir == "" {
		return ".", name
	}
	last, name, _ := strings.Cut(name, ".")
	return dir + last, name
}

// file returns the path of the file that the place is in.
func (p place) file(t *testing.T) string {
	if p.isFile() {
		return filepath.Join(root, string(p))
	}
	dir, _ := p.split()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		if _, _, ok := p.within(t, string(text)); ok {
			return f
		}
	}
	require.Fail(t, "no such function", "%s", p)
	return ""
}

// within returns where in the text of a file the place begins and ends, if it is there.
func (p place) within(t *testing.T, text string) (from, to int, ok bool) {
	if p.isFile() {
		return 0, len(text), true
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "", text, parser.SkipObjectResolution)
	require.NoError(t, err)
	_, name := p.split()
	for _, d := range f.Decls {
		if fn, isFunc := d.(*ast.FuncDecl); isFunc && nameOf(fn) == name {
			return files.Position(fn.Pos()).Offset, files.Position(fn.End()).Offset, true
		}
	}
	return 0, 0, false
}

// nameOf returns the name of a function, after that of its receiver's type.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	return of.(*ast.Ident).Name + "." + fn.Name.Name
}
