package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// planted are bugs that pass a package's plain tests, and that AtEveryCommand finds.
var planted = map[string]struct {
	pkg, file string // where the bug is
	build     string // what needs to be compiled: the package, or a file that needs no other
	good, bug string // the text that it replaces, and its own
	plain     string // tests that pass
	every     string // the test that fails
	sample    bool   // the page shows lines of the failure
}{
	"a report under the outer context": {
		pkg: "redlocktest", file: "recipes_test.go", build: "./redlocktest/recipes_test.go",
		good:  `"report", func(ctx context.Context) error {`,
		bug:   `"report", func(context.Context) error {`,
		plain: "^(TestRunsOnce|TestGoesOnWithTwoNodesDown|TestWaitsItsTurn)$",
		every: "TestNeverWritesWithoutTheLock", sample: true,
	},
	"a report that hides the error of Unlock": {
		pkg: "redlocktest", file: "recipes_test.go", build: "./redlocktest/recipes_test.go",
		good: `	return locks.Do(ctx, "report", func(ctx context.Context) error {
`,
		bug: `	m := locks.NewMutex("report")
	held, err := m.Hold(ctx)
	if err != nil {
		return err
	}
	defer m.Unlock()
	do := func(fn func(context.Context) error) error { return fn(held) }
	return do(func(ctx context.Context) error {
`,
		plain: "^Test(RunsOnce|Stops|GoesOn|DoesNotStart|AFenced|WaitsItsTurn)",
		every: "TestNeverHidesALoss",
	},
	"a middleware that keeps the held context to itself": {
		pkg: "examples/httpmiddleware", file: "middleware.go", build: "./examples/httpmiddleware",
		good: "next.ServeHTTP(w, r.WithContext(ctx))", bug: "next.ServeHTTP(w, r)",
		plain: "^(TestNoWithdrawalIsLost|TestAnswers)$",
		every: "TestNothingIsWithdrawnWithoutTheLock",
	},
}

// A plain test loses no lock, or loses it at another moment: it passes beside the bug.
func TestAtEveryCommandFindsWhatPlainTestsDoNot(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/testing-your-code.md")
	for name, p := range planted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := filepath.Abs(filepath.Join(root, p.pkg, p.file))
			require.NoError(t, err)
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(source), p.good), "the text to replace")
			copied := filepath.Join(t.TempDir(), p.file)
			source = []byte(strings.Replace(string(source), p.good, p.bug, 1))
			require.NoError(t, os.WriteFile(copied, source, 0o600))

			binary := copied + ".test"
			out, err := command("go", "test", "-ldflags=-s -w", "-overlay",
				overlay(t, map[string]string{file: copied}), "-c", "-o", binary, p.build)
			require.NoError(t, err, "%s", out)
			out, err = command(binary, "-test.v", "-test.run", p.plain)
			require.NoError(t, err, "the plain tests: %s", out)
			assert.Contains(t, out, "--- PASS")
			out, err = command(binary, "-test.run", "^"+p.every+"$")
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s", out)
			assert.Regexp(t, `--- FAIL: `+p.every+`/\w+/\d{3}_\w+_on_node_\d`, out)
			if p.sample {
				sample := regexp.MustCompile(`(?m)^    (redlocktest: .*)\n    (.*)$`)
				lines := sample.FindStringSubmatch(page)
				require.NotNil(t, lines, "the page shows no failure")
				shown := regexp.QuoteMeta(lines[1]) + `\n.*: ` + regexp.QuoteMeta(lines[2]) + `\n`
				assert.Regexp(t, shown, out)
			}
		})
	}
}

// overlay returns the name of a file that makes the go command read some files instead of others.
func overlay(t *testing.T, replace map[string]string) string {
	t.Helper()
	list, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(name, list, 0o600))
	return name
}

// build builds a program and returns its path. The go command keeps what it links for go run, but
// not for go build, which takes 0.7 s each time.
func build(t *testing.T, pkg string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), path.Base(pkg))
	out, err := command("go", "run", "-exec", "cp", pkg, program)
	require.NoError(t, err, "%s", out)
	return program
}

// command runs a program in the root of the module, and returns what it has printed.
func command(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
