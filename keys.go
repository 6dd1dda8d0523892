package redlock

import "strings"

// fenceKey is the key of a lock's fence counter. It lies in the same hash slot as the lock's key, so that
// one script may use both in a cluster; except for a key with a closing brace and no hash tag, for which
// there is no such name: that one works on nodes that are no cluster.
func fenceKey(key string) string { return related(key, "fence") }

// announceChannel is the channel on which a lock's releases are announced.
func announceChannel(key string) string { return related(key, "released") }

// related returns "{key}:suffix", or "key:suffix" if the key has a hash tag of its own, see
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags.
func related(key, suffix string) string {
	if strings.Contains(key, "}") {
		return key + ":" + suffix
	}
	return "{" + key + "}:" + suffix
}
