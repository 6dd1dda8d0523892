package docs

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	mark     = regexp.MustCompile(`\blessons? (L\d+(?:(?:, | and )L\d+)*)`)
	number   = regexp.MustCompile(`L\d+`)
	row      = regexp.MustCompile(`(?m)^- (L\d+): `)
	testName = regexp.MustCompile(`^(Test|Fuzz)`)
)

// Each lesson has a test that names it, and conversely. Only a comment above a test function, or in
// one, names its lesson: no helper and no table tests anything by itself. The cases of pooltest are
// tests that adapters run.
// lesson L164
func TestEachLessonHasATest(t *testing.T) {
	listed, tested := map[string]bool{}, map[string]bool{}
	for _, r := range row.FindAllStringSubmatch(read(t, "docs/lessons.md"), -1) {
		assert.False(t, listed[r[1]], "docs/lessons.md has %s twice", r[1])
		listed[r[1]] = true
	}
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		numbers, astray := lessons(t, filepath.ToSlash(path), source)
		for _, at := range astray {
			t.Errorf("%s: the number of a lesson belongs above a test function, or in one", at)
		}
		for _, n := range numbers {
			tested[n] = true
		}
		return nil
	}))
	assert.Equal(t, listed, tested, "docs/lessons.md, and the comments of tests")
}

// lessons returns the numbers that tests of a file name, and where it names others.
func lessons(t *testing.T, path string, source []byte) (numbers, astray []string) {
	t.Helper()
	if !bytes.Contains(source, []byte("lesson")) {
		return nil, nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ParseComments)
	require.NoError(t, err)
	conformance := strings.Contains(path, "pool/pooltest/")
	ofTest := func(c *ast.CommentGroup) bool {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && strings.HasSuffix(path, "_test.go") && testName.MatchString(f.Name.Name) &&
				(c == f.Doc || f.Pos() < c.Pos() && c.Pos() < f.End()) {
				return true
			}
		}
		return conformance
	}
	for _, c := range file.Comments {
		for _, m := range mark.FindAllStringSubmatch(c.Text(), -1) {
			if !ofTest(c) {
				astray = append(astray, files.Position(c.Pos()).String()+": "+m[0])
				continue
			}
			numbers = append(numbers, number.FindAllString(m[1], -1)...)
		}
	}
	return numbers, astray
}

func TestOnlyTestsNameLessons(t *testing.T) {
	source := strings.ReplaceAll(`package x

// NUMBER L1000, L1001 and L1002: what is tested.
func TestX(t *testing.T) {
	_ = 1 // NUMBER L1003
}

// NUMBER L1004
func helper() {
	_ = 1 // NUMBER L1005
}

// NUMBER L1006
var table = []int{
	1, // NUMBER L1007
}

// NUMBER L1008

func FuzzX(t *testing.T) { _ = "NUMBER L1009" }
`, "NUMBER", "lesson")
	numbers, astray := lessons(t, "x_test.go", []byte(source))
	assert.Equal(t, []string{"L1000", "L1001", "L1002", "L1003"}, numbers)
	assert.Len(t, astray, 5)
	numbers, _ = lessons(t, "x.go", []byte(source))
	assert.Empty(t, numbers)
}
