package behaviour_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
)

// runbook is what docs/operations.md says about errors: the texts that are its headings, and
// those of its table about nodes with the doctor's codes.
type runbook struct {
	headings []string
	nodes    map[string]string
}

func readRunbook(t *testing.T) runbook {
	t.Helper()
	page, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Runbook\n")
	section, _, _ = strings.Cut(section, "\n## ")
	book := runbook{nodes: map[string]string{}}
	for _, m := range regexp.MustCompile("(?m)^#### `(.*)`$").FindAllStringSubmatch(section, -1) {
		book.headings = append(book.headings, m[1])
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]*)` \\| (?:`([a-z]*)`)? *\\|")
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		book.nodes[m[1]] = m[2]
	}
	require.Greater(t, len(book.headings), 20)
	require.Greater(t, len(book.nodes), 25)
	return book
}

// pattern matches the texts that a text of the runbook stands for, where an ellipsis stands for
// anything.
func pattern(text string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".*")
}

// about returns the headings that an error's text contains, and whether its reason begins with one.
func (b runbook) about(text string) (headings []string, known bool) {
	text = regexp.MustCompile(` \(node [^)]*\)`).ReplaceAllString(text, "")
	for _, h := range b.headings {
		if !regexp.MustCompile("(^|[: ])" + pattern(h) + "($|[:;])").MatchString(text) {
			continue
		}
		headings = append(headings, h)
		begins := regexp.MustCompile(`^redlock: "[^"]*" ((not )?[a-z ]+: )?` + pattern(h))
		known = known || begins.MatchString(text)
	}
	return headings, known
}

// moreFailures are errors that are not in failures.
var moreFailures = map[string]func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error{
	"split vote": func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		always(nodes, taken, fine, sim.Fail(sim.ErrRefused))
		return rl.NewMutex("x").TryLock()
	},
	"who leads is not known": func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		always(nodes, sim.Fail(sim.ErrRefused), sim.Fail(sim.ErrRefused), fine)
		_, err := rl.NewElection("x").Leader(context.Background())
		return err
	},
	"taken by somebody else": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		m := locked(t, redlock.New(nodes.Pools("holder")...))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		failed := make(chan error)
		go func() {
			failed <- rl.NewMutex("x",
				redlock.WithRetryDelay(time.Hour)).LockContext(ctx)
		}()
		synctest.Wait()
		for _, n := range nodes {
			n.Next("claim", sim.Slow(10*time.Millisecond))
		}
		mustUnlock(t, m)
		for _, n := range nodes {
			n.Set("x", "another waiter's", 0)
		}
		return <-failed
	},
	"too late under the guard": func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
		once := false
		return rl.NewMutex("x",
			redlock.WithRestartGuard(8*time.Second)).TryLockContext(stopping{t.Context(), func() {
			if !once {
				once = true
				time.Sleep(1200 * time.Millisecond)
			}
		}})
	},
	"not extended in time": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		return causeAfter(t, rl.NewMutex("x"), func() { always(nodes, hangs, hangs, hangs) })
	},
	"lost while held": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		return causeAfter(t, rl.NewMutex("x"), func() { nodes[0].Flush(); nodes[1].Flush() })
	},
	"locked again": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		m := rl.NewMutex("x")
		return causeAfter(t, m, func() {
			for _, n := range nodes {
				n.Flush()
			}
			require.NoError(t, m.TryLock())
		})
	},
	"held for too long": func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
		return causeAfter(t, rl.NewMutex("x", redlock.WithMaxHold(time.Minute)), func() {})
	},
	"released by Close": func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
		return rl.Do(t.Context(), "x", func(context.Context) error { return rl.Close() })
	},
	"Close": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		mustHold(t, rl.NewMutex("x"))
		always(nodes, fails, fails, fails)
		err := rl.Close()
		always(nodes, fine, fine, fine)
		require.NoError(t, rl.Close())
		return err
	},
	"the counter is at its end": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		for _, n := range nodes {
			n.Set(fenceOf("x"), "9007199254740991", 0)
		}
		return rl.NewMutex("x", redlock.WithFencing()).TryLock()
	},
	"no lock": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		for _, n := range nodes {
			n.Next("set", taken)
			n.Next("release", sim.Fail(errors.New("WRONGTYPE Operation against a key holding the "+
				"wrong kind of value")))
		}
		return rl.NewMutex("x").TryLock()
	},
	"frozen nodes": func(_ *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		always(nodes, hangs, hangs, hangs)
		var all sync.WaitGroup
		for i := range 65 {
			all.Go(func() { _ = rl.NewMutex(fmt.Sprint(i)).TryLock() })
		}
		time.Sleep(200 * time.Millisecond)
		errs := make([]error, 10) // one of them asks whether the nodes are back
		for i := range errs {
			all.Go(func() { errs[i] = rl.NewMutex(fmt.Sprint("x", i)).TryLock() })
		}
		all.Wait()
		return errs[slices.IndexFunc(errs, func(err error) bool {
			return strings.Contains(err.Error(), "not "+
				"sent")
		})]
	},
	"held by this process": func(t *testing.T, _ sim.Nodes, rl *redlock.Redlock) error {
		m := rl.NewMutex("x")
		mustHold(t, m)
		defer mustUnlock(t, m)
		return rl.NewMutex("x", redlock.WithTries(2)).Lock()
	},
	"a node that was not reached": func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) error {
		nodes[2].Next("set", sim.Fail(pool.ErrNotSent))
		m := locked(t, rl)
		nodes[0].Always(fails)
		return end(m.Unlock())
	},
}

// causeAfter holds a lock, lets something happen, and returns how the hold ended.
func causeAfter(t *testing.T, m *redlock.Mutex, happen func()) error {
	held, err := m.Hold(t.Context())
	require.NoError(t, err)
	synctest.Wait()
	happen()
	<-held.Done()
	landed() // a hold that is held for too long is released after its context has ended
	return context.Cause(held)
}

// The runbook of docs/operations.md has a heading for each error, and no heading for a text that
// the code does not produce. TestEveryFailureSaysWhatFailedAndWhy shows that it produces those of
// failures.
func TestTheRunbookKnowsEveryError(t *testing.T) {
	book := readRunbook(t)
	var texts []string
	for _, f := range failures {
		texts = append(texts, f.text)
	}
	for name, do := range moreFailures {
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			err := do(t, nodes, rl)
			require.Error(t, err, name)
			texts = append(texts, err.Error())
		})
	}
	met := map[string]bool{}
	for _, text := range texts {
		headings, known := book.about(text)
		assert.True(t, known, "no heading of the runbook is about: %s", text)
		for _, h := range headings {
			met[h] = true
		}
	}
	for _, h := range book.headings {
		assert.True(t, met[h], "no error has the text of the heading %q", h)
	}

	all := strings.Join(texts, "\n")
	for text, code := range book.nodes {
		if code == "" || strings.Contains(text, "…") { // the library's own words
			said := regexp.MustCompile(`node \d: [^;]*` + pattern(text)).MatchString(all)
			assert.True(t, said, "nothing says %q of a node", text)
		}
	}
	for _, text := range texts {
		_, nodes, _ := strings.Cut(text, " (node ")
		for said := range strings.SplitSeq(nodes, "; node ") {
			_, said, _ = strings.Cut(strings.TrimSuffix(said, ")"), ": ")
			known := said == "" || strings.HasSuffix(said, "oops") ||
				strings.Contains(said, "context canceled")
			for text := range book.nodes {
				known = known || regexp.MustCompile(pattern(text)).MatchString(said)
			}
			assert.True(t, known, "the table about nodes does not know: %s", said)
		}
	}
}

// The codes in the table about nodes are those that Check finds for a node with that error.
func TestTheRunbookHasTheCodesOfCheck(t *testing.T) {
	book := readRunbook(t)
	for text, code := range book.nodes {
		if code == "" || strings.Contains(text, "…") {
			continue
		}
		bubble(t, 3, func(t *testing.T, nodes sim.Nodes, rl *redlock.Redlock) {
			nodes[1].Always(sim.Fail(errors.New(text)))
			report, err := doctor.Check(t.Context(), rl)
			require.NoError(t, err)
			var codes []string
			for _, f := range report.Findings {
				if len(f.Nodes) == 1 && f.Nodes[0] == 1 {
					codes = append(codes, f.Code)
				}
			}
			assert.Contains(t, codes, code, text)
		})
	}
}
