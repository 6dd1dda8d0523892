// Package keys names what redlock has on a node: the keys beside that of a lock, and what they
// hold. In a cluster, a script may use keys of one hash slot only.
package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// SharedCounters is what the keys of the fence counters that names share begin with. There are 2^16
// of them, redlock:fence:0000 to redlock:fence:ffff.
const SharedCounters = "redlock:fence:"

// SharedCounter is the key of the fence counter that a lock shares with other names: redlock:fence:
// and the first four hexadecimal digits of the SHA-256 of the lock's key. It follows from the whole
// key, never from prefix and name separately: all users of a key need the same counter.
func SharedCounter(key string) string {
	var room [128]byte // a conversion of more than 32 bytes would be an allocation
	sum := sha256.Sum256(append(room[:0], key...))
	return SharedCounters + hex.EncodeToString(sum[:2])
}

// OwnCounter is the key of the fence counter of a lock that shares none. It lies in the same hash
// slot as the lock's key, and one script may use both in a cluster. A key with a closing brace and
// no hash tag has no such neighbour: it works on nodes that are no cluster.
func OwnCounter(key string) string { return related(key, "fence") }

// IsSharedCounter tells whether a key is that of a fence counter that names share.
func IsSharedCounter(key string) bool {
	digits, ok := strings.CutPrefix(key, SharedCounters)
	return ok && len(digits) == 4 && strings.Trim(digits, "0123456789abcdef") == ""
}

// IsOwnCounter tells whether a key is that of the fence counter of some lock that shares none.
func IsOwnCounter(key string) bool {
	return strings.HasSuffix(key, ":fence") && strings.Contains(key, "}")
}

// Queue is the key of the queue of those who wait for a lock, or "" if the lock has none.
func Queue(key string) string { return beside(key, "redlock:queue") }

// Ticket is the key of the greatest ticket of that queue.
func Ticket(key string) string { return beside(key, "redlock:ticket") }

// Roll is the key of those in that queue who have not asked again since the roll was called.
func Roll(key string) string { return beside(key, "redlock:roll") }

// Bid is the key of what the first in that queue says in advance. Scripts make it of the queue's.
func Bid(key string) string { return beside(key, "redlock:bid") }

// beside returns the key of something that a script uses together with the lock's key, in the same
// hash slot. It begins with the lock's key where that can be, as rights often do. It is "" if no
// other key lies in that slot for certain: the key has a closing brace, and no hash tag.
func beside(key, suffix string) string {
	open := strings.IndexByte(key, '{')
	switch end := strings.IndexByte(key, '}'); {
	case end < 0 && open < 0:
		return key + ":{" + key + "}:" + suffix
	case end < 0:
		return related(key, suffix)
	case open >= 0 && strings.IndexByte(key[open:], '}') > 1:
		return key + ":" + suffix
	}
	return ""
}

// TurnChannel begins the name of the channel on which a process hears of its turns. With the 26
// letters and digits that follow it has 39 bytes; scripts rely on that.
const (
	TurnChannel   = "redlock:turn:"
	ChannelLength = 39
)

// Reservation begins what a key holds that is reserved for somebody in the queue. No value of a
// lock begins like that.
const Reservation = "~" + TurnChannel

// related returns "{key}:suffix", or "key:suffix" if the key has a hash tag of its own, see
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags.
func related(key, suffix string) string {
	if strings.Contains(key, "}") {
		return key + ":" + suffix
	}
	return "{" + key + "}:" + suffix
}

// RelatedStart is the beginning of the names that related makes of keys with the prefix. A key
// whose closing brace comes after the prefix is an exception.
func RelatedStart(prefix string) string {
	if prefix == "" || strings.Contains(prefix, "}") {
		return prefix
	}
	return "{" + prefix
}
