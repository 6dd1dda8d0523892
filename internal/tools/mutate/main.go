// Mutate plants random bugs in the core, one at a time, and runs the tests: does one of them fail?
//
//	go run ./mutate -root ../.. -n 300 -seed 48
//
// A mutant negates a condition or lets it never hold, changes an operator, an integer or a boolean,
// or removes a statement. Mutants that do not compile do not count. The tests are those of the
// mutant's package, then those of behaviour and of the packages below it, then the simulation. An
// index draws the same mutant of the same commit again: -only "3 17".
//
// A mutant that survives is either no bug, or a gap in the tests.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	root = flag.String("root", ".", "the checkout")
	n    = flag.Int("n", 300, "how many mutants that compile")
	seed = flag.Uint64("seed", 1, "which ones")
	only = flag.String("only", "", "these indices, separated by spaces")
)

// core are the directories of the code that is mutated.
var core = regexp.MustCompile(`^(\.|pool(/(batch|pubsub|goredis|redigo))?|internal/` +
	`(clock|errtext|lease|nodeurl|queue|quorum|scripts|wire))$`)

// behaviour is what tests the core from outside.
var behaviour = []string{"./internal/test/behaviour", ".", "./internal/lease", "./internal/queue",
	"./internal/quorum"}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run() error {
	all, err := draw()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	wanted := strings.Fields(*only)
	done, killed := 0, 0
	for i := 0; i < len(all) && done < *n; i++ {
		m := all[i]
		if len(wanted) > 0 && !slices.Contains(wanted, fmt.Sprint(i)) {
			continue
		}
		by, compiles, err := m.try(dir)
		if err != nil {
			return err
		}
		if !compiles {
			continue
		}
		done++
		if by != "" {
			killed++
		}
		fmt.Printf("%d\t%s:%d\t%s\t%s\n", i, m.file, m.line, m.what, cmp.Or(by, "SURVIVES"))
	}
	fmt.Printf("%d of %d killed\n", killed, done)
	return nil
}

// draw returns all mutants of the core, in the order of the seed.
func draw() (all []mutant, err error) {
	list := exec.Command("git", "ls-files", "*.go")
	list.Dir = *root
	files, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for _, f := range strings.Fields(string(files)) {
		if strings.HasSuffix(f, "_test.go") || !core.MatchString(path.Dir(f)) {
			continue
		}
		ms, err := pointsOf(*root, f)
		if err != nil {
			return nil, err
		}
		all = append(all, ms...)
	}
	r := rand.New(rand.NewPCG(*seed, 47))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// try runs the tests on the mutant. It returns what noticed it, "" if nothing did.
func (m mutant) try(dir string) (by string, compiles bool, err error) {
	file, err := filepath.Abs(filepath.Join(*root, m.file))
	if err != nil {
		return "", false, err
	}
	src, err := os.ReadFile(file)
	if err != nil {
		return "", false, err
	}
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	mutated := string(src[:m.from]) + m.text + string(src[m.to:])
	with, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err := cmp.Or(err, os.WriteFile(changed, []byte(mutated), 0o600),
		os.WriteFile(overlay, with, 0o600)); err != nil {
		return "", false, err
	}
	own := "./" + path.Dir(m.file)
	if _, ok := command("build", "-overlay", overlay, own); !ok {
		return "", false, nil
	}
	for _, packages := range [][]string{{own}, behaviour, {"./internal/test/sim"}} {
		args := append([]string{"test", "-overlay", overlay, "-vet=off", "-failfast",
			"-timeout", "5m"}, packages...)
		if out, ok := command(args...); !ok {
			return reason(out), true, nil
		}
	}
	return "", true, nil
}

// reason is the line of a test's output that says what has failed.
func reason(out string) string {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		for _, start := range []string{"--- FAIL", "panic:", "fatal error"} {
			if strings.HasPrefix(line, start) {
				return line
			}
		}
	}
	return "failed"
}

// command runs the go command in the checkout.
func command(args ...string) (out string, ok bool) {
	c := exec.Command("go", args...)
	c.Dir = *root
	text, err := c.CombinedOutput()
	return string(text), err == nil
}
