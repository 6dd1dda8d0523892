package wire

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Release makes the key of the bid of that of the queue.
func TestABidLiesBesideItsQueue(t *testing.T) {
	for _, key := range []string{"x", "app:{42}:x", "{x}", "x{y", "a:b"} {
		start, ok := strings.CutSuffix(QueueKey(key), "queue")
		assert.True(t, ok, key)
		assert.Equal(t, start+"bid", BidKey(key), key)
	}
	assert.Empty(t, QueueKey("a}b"))
	assert.Empty(t, BidKey("a}b"))
}

// A queue outlives a change of the version: its keys do not change.
func TestKeysOfQueuesStay(t *testing.T) {
	for key, want := range map[string]string{
		"x": "x:{x}:redlock:queue", "x{y": "{x{y}:redlock:queue", "{x}": "{x}:redlock:tag:queue",
	} {
		assert.Equal(t, want, QueueKey(key))
	}
}

// besides returns the keys beside a lock's that no other lock has.
func besides(key string) []string {
	return []string{QueueKey(key), TicketKey(key), RollKey(key), BidKey(key)}
}

// claims notes for whom keys are, and complains of keys that are for two.
type claims map[string]string

func (c claims) add(t *testing.T, key string) {
	if IsOwnKey(key) {
		return // the key of no lock
	}
	mine := besides(key)
	for _, k := range append(mine, OwnCounter(key), SharedCounter(key)) {
		if k != "" && !IsOwnKey(k) {
			t.Fatalf("%q of %q may be the key of a lock", k, key)
		}
	}
	for _, k := range append(mine, key) {
		if other, taken := c[k]; k != "" && taken && other != key {
			t.Fatalf("%q is for %q and for %q", k, key, other)
		}
		c[k] = key
	}
}

// grown returns keys that come of a key: what contains it, what it begins, and the keys beside it.
func grown(key string) []string {
	all := append(besides(key), OwnCounter(key), SharedCounter(key),
		"{"+key+"}", "{"+key, key+"}", key+"{", "}"+key, key+"{}", "{}"+key, key+":{"+key+"}",
		key+":"+key, key+":", ":"+key, key+"x", key+"\x00", " "+key)
	for _, name := range []string{queue, ticket, roll, bid, "fence"} {
		all = append(all, key+":"+name, key+plain+name, key+tagged+name)
	}
	return append(all, key+plain, key+tagged, key+":redlock", "{"+key+"}:redlock:tag",
		key+":{"+key+"}:redlock", "{"+key+"}"+plain)
}

// lesson L101: no key beside a lock is beside another, or a lock, however the names are related.
// Some 100,000 that come of a few are compared, each with all others.
func TestKeysAreThoseOfOneLock(t *testing.T) {
	all, begun := claims{}, []string{"", "x", "{", "}", "{}", "a{b}c", "app:", "redlock:", ":"}
	for range 3 {
		var next []string
		for _, key := range begun {
			all.add(t, key)
			next = append(next, grown(key)...)
		}
		begun = next
	}
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"{", "}", ":", "x", "y", "redlock", "tag", queue, bid, plain, tagged, "{x}"}
	for range 30_000 {
		key := ""
		for range 1 + r.IntN(9) {
			key += parts[r.IntN(len(parts))]
		}
		all.add(t, key)
	}
	t.Logf("%d keys", len(all))
}

// Two names, each with a prefix, are one lock or have no key in common. Nor have those that come of
// them.
func FuzzTwoLocks(f *testing.F) {
	for _, key := range []string{"x", "x:{x}", "{x}", "x{y", "{x{y}", "x:{x}:redlock:bid", "a}b"} {
		f.Add("", key, "", "x")
		f.Add("app:", key, "app", ":x")
	}
	f.Fuzz(func(t *testing.T, prefix, name, otherPrefix, other string) {
		all := claims{}
		for _, key := range []string{prefix + name, otherPrefix + other} {
			all.add(t, key)
			for _, related := range grown(key) {
				all.add(t, related)
			}
		}
	})
}

// lesson L102
func TestIsOwn(t *testing.T) {
	for key, want := range map[string]bool{
		"redlock:fence:0000": true, "redlock:fence:00g0": false, "{x}:fence": true,
		"redlock:fence:{x}:fence": true, "x:fence": false, "fence": false, "}fence": false,
		"x:{x}:redlock:queue": true, "{x{y}:redlock:roll": true, "{x}:redlock:tag:bid": true,
		"{x}:redlock:bid": true, "x:redlock:bid": false, "x:{x}:redlock:bids": false,
		"x:{x}:bid": false, "{x}redlock:bid": false, "": false, ":": false,
	} {
		assert.Equal(t, want, IsOwnKey(key), fmt.Sprintf("%q", key))
	}
}
