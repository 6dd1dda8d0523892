package redlock_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/embedded"
	"github.com/redlock-go/redlock/internal/test/redistest"

	"github.com/redlock-go/redlock/pool/goredis"
)

// Each script is told of, once, and has all that an operator wants to know. Some files are parts
// that others are made of.
func TestScriptsAreAll(t *testing.T) {
	var names, want []string
	for _, s := range redlock.Scripts() {
		names = append(names, s.Name)
		assert.NotEmpty(t, s.Summary, s.Name)
		assert.NotEmpty(t, s.Commands, s.Name)
	}
	files, err := filepath.Glob("internal/scripts/*.lua")
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		if !slices.Contains([]string{"hears", "handon", "seats"}, name) {
			want = append(want, name)
		}
	}
	assert.ElementsMatch(t, want, names)
	redlock.Scripts()[0].Commands[0] = "changed"
	assert.NotEqual(t, "changed", redlock.Scripts()[0].Commands[0])
}

// What scripts call, and what clients send beside them, is what the page of rights says.
func TestScriptsNeedTheRightsOfThePage(t *testing.T) {
	page, err := os.ReadFile("docs/rights.md")
	require.NoError(t, err)
	user := regexp.MustCompile(`(?m)^    ACL SETUSER .*$`).Find(page)
	require.NotNil(t, user)
	var stated []string
	for _, right := range regexp.MustCompile(` \+(\S+)`).FindAllSubmatch(user, -1) {
		stated = append(stated, string(right[1]))
	}
	needed := []string{"eval", "evalsha", "set", "subscribe", "unsubscribe", "ping", "config|get",
		"scan"} // of redlock top
	for _, s := range redlock.Scripts() {
		for _, c := range s.Commands {
			needed = append(needed, strings.ToLower(c))
		}
	}
	slices.Sort(needed)
	assert.ElementsMatch(t, slices.Compact(needed), stated)
}

// A lock finds scripts that were loaded in advance, by the IDs that are told.
func TestScriptsCanBeLoadedInAdvance(t *testing.T) {
	redistest.Require(t)
	s := redistest.Start(t, 1)[0]
	for _, script := range redlock.Scripts() {
		assert.Equal(t, script.ID, s.Must("SCRIPT", "LOAD", script.Source), script.Name)
	}
	s.Must("CONFIG", "RESETSTAT")
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	m := redlock.New(goredis.NewPool(client)).NewMutex("x")
	require.NoError(t, m.Lock())
	_, err := m.Unlock()
	require.NoError(t, err)
	assert.Zero(t, s.Commands()["eval"], "the source was sent")
	assert.Positive(t, s.Commands()["evalsha"])
}

// An operator may load all scripts in advance, and allow a user what they call.
func ExampleScripts() {
	servers, _ := embedded.Start(1)
	defer servers.Close()
	node := redis.NewClient(&redis.Options{Addr: servers.Addrs()[0]})
	defer node.Close()

	allowed := []string{"+@connection", "+set", "+evalsha", "+eval"}
	for _, s := range redlock.Scripts() {
		if err := node.ScriptLoad(context.Background(), s.Source).Err(); err != nil {
			fmt.Println(s.Name, err)
		}
		for _, c := range s.Commands {
			allowed = append(allowed, "+"+strings.ToLower(c))
		}
	}
	slices.Sort(allowed)
	fmt.Println("ACL SETUSER app on >secret ~app:* &*")
	for rights := range slices.Chunk(slices.Compact(allowed), 9) {
		fmt.Println(strings.Join(rights, " "))
	}
	// Output:
	// ACL SETUSER app on >secret ~app:* &*
	// +@connection +del +eval +evalsha +exists +get +info +mget +pexpire
	// +pexpireat +pttl +publish +set +time +zadd +zpopmin +zrange +zrangebyscore
	// +zrank +zrem +zremrangebyscore +zrevrange +zscore
}
