package interop

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/redistest"
)

const (
	root  = "../../.."
	guide = root + "/docs/migrating-from-redsync.md"
)

var update = flag.Bool("update", false, "write the diff of the programs into the guide")

func TestGuideShowsTheDiffOfTheTwoPrograms(t *testing.T) {
	// diff exits with 1 where there are differences.
	diff, err := exec.Command("diff", "-U1", "--label", "before/main.go",
		"--label", "after/main.go",
		"migration/before/main.go", "migration/after/main.go").Output()
	require.ErrorContains(t, err, "exit status 1")

	page := read(t, guide)
	before, rest, ok := strings.Cut(page, "```diff\n")
	require.True(t, ok, "no diff in the guide")
	_, after, ok := strings.Cut(rest, "```\n")
	require.True(t, ok, "no end of the diff in the guide")
	want := before + "```diff\n" + string(diff) + "```\n" + after
	if *update {
		require.NoError(t, os.WriteFile(guide, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, page, "run: go test -run Diff . -update")
}

// Both programs work, on the same nodes. The one on redlock leaves nothing behind, at once; the
// other may, because it ends before Redsync's releases have reached every node.
func TestProgramsOfTheGuideRun(t *testing.T) {
	nodes := redistest.Start(t, 3)
	addrs := nodes[0].Addr() + "," + nodes[1].Addr() + "," + nodes[2].Addr()
	for _, program := range []string{"after", "before"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "go", "run", "./migration/"+program, "-redis",
			addrs).CombinedOutput()
		require.NoError(t, err, "%s: %s", program, out)
		require.Equal(t, "booked cards of acme\nbooked transfers of acme\nbooked refunds of acme\n",
			string(out), program)
		if program == "after" {
			for i, node := range nodes {
				require.Nil(t, node.Must("GET", "book:acme"), "node %d", i)
			}
		}
	}
}

// More forms of what the recipe changes: renamed imports, options on one line, each error that
// has another name.
const moreOfRedsync = `package main

import (
	"errors"

	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"
)

type service struct{ locks *redsync.Redsync }

func main() {
	options := &goredislib.Options{Addr: "127.0.0.1:1"}
	client := goredislib.NewClient(options)
	pools := []rsredis.Pool{rsgoredis.NewPool(client), redigo.NewPool(&redis.Pool{
		Dial: func() (redis.Conn, error) { return redis.Dial("tcp", "127.0.0.1:1") },
	})}
	s := service{redsync.New(pools...)}
	var m *redsync.Mutex = s.locks.NewMutex("x",
		redsync.WithTries(2), redsync.WithFailFast(true), redsync.WithShufflePools(true))
	if err := m.Lock(); errors.Is(err, redsync.ErrFailed) {
		println("somebody else has the lock")
	} else if err != nil {
		println("an alarm")
	}
	ok, err := m.Extend()
	println(ok, errors.Is(err, redsync.ErrExtendFailed) ||
		errors.Is(err, redsync.ErrLockAlreadyExpired))
}
`

// lesson L82: the guide's commands do all but what the compiler finds, and no outage is taken for
// a lock that somebody else has.
func TestRecipeOfTheGuide(t *testing.T) {
	if out, err := exec.Command("sed", "--version").Output(); err != nil ||
		!strings.Contains(string(out), "GNU") {
		t.Skip("needs GNU sed")
	}
	_, rest, ok := strings.Cut(read(t, guide), "```sh\n")
	require.True(t, ok, "no commands in the guide")
	recipe, _, _ := strings.Cut(rest, "```\n")

	dir := t.TempDir()
	program := func(name string) string { return filepath.Join(dir, name, "main.go") }
	for name, text := range map[string]string{"before": read(t, "migration/before/main.go"),
		"more": moreOfRedsync} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.WriteFile(program(name), []byte(text), 0o600))
	}
	cmd := exec.Command("sh", "-euc", recipe)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	out, err = exec.CommandContext(t.Context(), "go", "run", program("more")).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "an alarm\nfalse false\n", string(out))

	out, err = exec.CommandContext(t.Context(), "go", "vet", program("before")).CombinedOutput()
	require.Error(t, err, "errors.As has to be changed by hand")
	require.Contains(t, string(out), "redlock.ErrTaken (variable of interface type error) is not "+
		"a type")
	text := read(t, program("before"))
	text = strings.Replace(text, "	var taken *redlock.ErrTaken\n	if errors.As(err, &taken) {",
		"	if errors.Is(err, redlock.ErrTaken) {", 1)
	require.NoError(t, os.WriteFile(program("before"), []byte(text), 0o600))
	out, err = exec.CommandContext(t.Context(), "go", "vet", program("before")).CombinedOutput()
	require.NoError(t, err, string(out))
}

var backticked = regexp.MustCompile("`([^`]+)`")

func TestGuideMapsEveryIdentifierOfRedsync(t *testing.T) {
	theirs, ours := exported(t, redsyncDir(t)), exported(t, root)
	mapped := map[string]bool{}
	_, tables, ok := strings.Cut(read(t, guide), "## Every identifier")
	require.True(t, ok)
	for line := range strings.SplitSeq(tables, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || cells[1] == " Redsync " {
			continue
		}
		for _, m := range backticked.FindAllStringSubmatch(cells[1], -1) {
			require.Contains(t, theirs, m[1], "no such identifier in Redsync")
			mapped[m[1]] = true
		}
		for _, m := range backticked.FindAllStringSubmatch(cells[2], -1) {
			name := strings.NewReplacer("goredis.", "pool/goredis.", "redigo.", "pool/redigo.",
				"rueidis.", "pool/rueidis.", "valkeygo.", "pool/valkeygo.").Replace(m[1])
			if !strings.HasPrefix(name, "*multierror.") {
				require.Contains(t, ours, name, "no such identifier in redlock")
			}
		}
	}
	for name := range theirs {
		require.Contains(t, mapped, name, "the guide does not map it")
	}
}

// What the pages for users say is in the package is there.
func TestPagesNameWhatExists(t *testing.T) {
	have := exported(t, root)
	named := regexp.MustCompile(`\bredlock\.([A-Z]\w*)|` +
		`[^.\w]((?:With|Err|Default)[A-Z]\w*|WithPolling)\b`)
	for _, page := range []string{"/README.md", "/CHANGELOG.md", "/docs/options.md"} {
		found := named.FindAllStringSubmatch(read(t, root+page), -1)
		require.NotEmpty(t, found, page)
		for _, m := range found {
			require.Contains(t, have, m[1]+m[2], page)
		}
	}
}

// The tables of docs/options.md list every option and every error, and the defaults as they are.
func TestTablesOfOptionsAndErrorsAreComplete(t *testing.T) {
	page := read(t, root+"/docs/options.md")
	row := func(pattern string, args ...any) bool {
		pattern = "(?m)^\\|[^|]*" + fmt.Sprintf(pattern, args...)
		return regexp.MustCompile(pattern).MatchString(page)
	}
	wanted := regexp.MustCompile(`^(With\w+|Err[A-Z]\w*)$`)
	for name := range exported(t, root) {
		found := !wanted.MatchString(name) || row("`%s`[^|]*\\|", name)
		require.True(t, found, "no row for %s", name)
	}
	for option, value := range map[string]string{
		"WithExpiry": fmt.Sprintf("%g s", redlock.DefaultExpiry.Seconds()),
		"WithTries":  fmt.Sprint(redlock.DefaultTries),
		"WithRetryDelayFunc": fmt.Sprintf("random, %d–%d ms",
			redlock.DefaultMinRetryDelay.Milliseconds(),
			redlock.DefaultMaxRetryDelay.Milliseconds()),
		"WithDriftFactor":   fmt.Sprint(redlock.DefaultDriftFactor),
		"WithTimeoutFactor": fmt.Sprint(redlock.DefaultTimeoutFactor),
		"WithFenceTTL":      fmt.Sprintf("%g h", redlock.DefaultFenceTTL.Hours()),
	} {
		found := row("`%s` \\| %s \\|", option, regexp.QuoteMeta(value))
		require.True(t, found, "the default of %s is %s", option, value)
	}
}

func redsyncDir(t *testing.T) string {
	const module = "github.com/go-redsync/redsync/v4"
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// exported lists the exported identifiers of the packages in and below dir that users can
// import: Name, Type.Member, and with the package's path in front of them, as in
// pool/redigo.NewPool, for all but the package in dir.
func exported(t *testing.T, dir string) map[string]bool {
	names := map[string]bool{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "internal" || d.Name() == "examples" ||
			path != dir && exists(filepath.Join(path, "go.mod")) && !isAdapter(path)):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		prefix := ""
		if rel, err := filepath.Rel(dir, filepath.Dir(path)); err != nil {
			return err
		} else if rel != "." {
			prefix = filepath.ToSlash(rel) + "."
		}
		for _, name := range declared(file) {
			if isExported(name) {
				names[prefix+name] = true
			}
		}
		return nil
	}))
	return names
}

// isAdapter reports whether the directory of a module is that of an adapter.
func isAdapter(dir string) bool { return filepath.Base(filepath.Dir(dir)) == "pool" }

// isExported reports whether each part of a dotted name is exported.
func isExported(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		if !ast.IsExported(part) {
			return false
		}
	}
	return true
}

// declared lists what a file declares: Name or Type.Member.
func declared(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name := decl.Name.Name
			if decl.Recv != nil {
				t := decl.Recv.List[0].Type
				if p, ok := t.(*ast.StarExpr); ok {
					t = p.X
				}
				if g, ok := t.(*ast.IndexExpr); ok { // of a type with a type parameter
					t = g.X
				}
				name = t.(*ast.Ident).Name + "." + name
			}
			names = append(names, name)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						names = append(names, n.Name)
					}
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
					var members *ast.FieldList
					switch t := spec.Type.(type) {
					case *ast.StructType:
						members = t.Fields
					case *ast.InterfaceType:
						members = t.Methods
					default:
						continue
					}
					for _, field := range members.List {
						for _, n := range field.Names {
							names = append(names, spec.Name.Name+"."+n.Name)
						}
					}
				}
			}
		}
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
