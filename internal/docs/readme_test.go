// Package docs tests that what the pages say is so.
package docs

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/embedded"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

const root = "../.."

// The lines at the top of the README are in its whole program, which the gate compiles.
func TestReadmeBeginsWithItsProgram(t *testing.T) {
	both := blocks(t, "README.md", "go")
	require.Len(t, both, 2)
	program := map[string]bool{}
	for line := range strings.Lines(both[1]) {
		program[strings.TrimSpace(line)] = true
	}
	for line := range strings.Lines(both[0]) {
		line = strings.TrimSpace(line)
		assert.True(t, program[line] || line == "}", "the program lacks the line %q", line)
	}
}

// lesson L84: the README's client gets the error that docs/options.md shows: one node of three is
// taken, and another one is down.
func TestThePageShowsARealError(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, "docs/options.md"), "\n    redlock: ")
	require.True(t, ok, "no error on the page")
	line, _, _ := strings.Cut(rest, "\n")
	require.Contains(t, read(t, "README.md"), "redis.Options{Addr: addr, DialerRetries: 1}",
		"the client of the README's program")

	nodes, err := embedded.Start(3)
	require.NoError(t, err)
	defer nodes.Close()
	var pools []pool.Pool
	var names []string
	for i, addr := range nodes.Addrs() {
		client := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
		defer client.Close()
		pools = append(pools, goredis.NewPool(client))
		names = append(names, addr, fmt.Sprintf("10.0.0.%d:6379", i+1))
	}
	require.NoError(t, redlock.New(pools[0]).NewMutex("invoice:42",
		redlock.WithExpiry(time.Minute)).Lock())
	nodes.Stop(2)
	m := redlock.New(pools...).NewMutex("invoice:42")
	var text string
	for range 10 { // the client's error and the node timeout may come in either order
		text = strings.NewReplacer(names...).Replace(m.TryLock().Error())
		if text == "redlock: "+line {
			break
		}
	}
	assert.Equal(t, "redlock: "+line, text)
}

// The page has every event, and every line of the log.
func TestThePageOfTheEvents(t *testing.T) {
	page := read(t, "docs/observability.md")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[redlock.Events]()) {
		assert.Regexp(t, "(?m)^\\| .*`"+f.Name+"`.* \\|", page)
	}
	source := read(t, "events.go")
	warning := `e\.(?:warn\(|LogAttrs\(ctx, slog\.LevelWarn, )"(?:redlock: )?([a-z ]+)"`
	lines := regexp.MustCompile(warning).FindAllStringSubmatch(source, -1)
	require.Greater(t, len(lines), 5)
	for _, l := range lines {
		assert.Contains(t, page, "`redlock: "+l[1]+"`")
	}
}
