package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// This file names what redlock has on a node: the keys beside that of a lock, and what they hold.
// In a cluster, a script may use keys of one hash slot only: of one hash tag, see
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags.
//
// No two locks share a key of their queues, or the release of one could grant the other. Nor is a
// key beside a lock ever that of a lock: see [IsOwnKey].

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
//
// The locks x and {x} share a counter, which is harmless. It grows for either, so the tokens of
// both do. It lives for as long as the lock that used it last wants it to, as with two users of one
// lock. With another key, the tokens of locks of older versions would begin anew.
func OwnCounter(key string) string {
	if strings.Contains(key, "}") {
		return key + ":fence"
	}
	return "{" + key + "}:fence"
}

// The names of the keys beside a lock's.
const (
	queue  = "queue"
	ticket = "ticket"
	roll   = "roll"
	bid    = "bid"
	seats  = "seats"
)

// QueueKey is the key of the queue of those who wait for a lock, or "" if the lock has none.
func QueueKey(key string) string { return beside(key, queue) }

// TicketKey is the key of the greatest ticket of that queue.
func TicketKey(key string) string { return beside(key, ticket) }

// RollKey is the key of those in that queue who have not asked again since the roll was called.
func RollKey(key string) string { return beside(key, roll) }

// BidKey is the key of what the first in that queue says in advance. Scripts make it of the
// queue's.
func BidKey(key string) string { return beside(key, bid) }

// SeatsKey is the key of who the readers of a lock are.
func SeatsKey(key string) string { return beside(key, seats) }

// beside returns the key of something that a script uses together with the lock's key, in the same
// hash slot. It begins with the lock's key where that can be, as rights often do. It is "" if no
// other key lies in that slot for certain: the key has a closing brace, and no hash tag.
//
// It is beside no other lock. If it ends with tagged and the name, the lock's key comes before,
// and has a hash tag. If it begins with a brace otherwise, the lock's key is the hash tag, and has
// an opening brace alone. Else the lock's key is the hash tag, and has no brace.
func beside(key, name string) string {
	open := strings.IndexByte(key, '{')
	switch end := strings.IndexByte(key, '}'); {
	case end < 0 && open < 0:
		return key + ":{" + key + "}" + plain + name
	case end < 0:
		return "{" + key + "}" + plain + name
	case open >= 0 && strings.IndexByte(key[open:], '}') > 1:
		return key + tagged + name
	}
	return ""
}

// What stands between a lock's key, or its hash tag, and the name of a key beside it.
const (
	plain  = ":redlock:"
	tagged = ":redlock:tag:" // the lock's key has a hash tag
)

// IsOwnKey tells whether a key is one that redlock may keep for a lock, and so the key of no lock:
// that of a fence counter, or of a queue.
func IsOwnKey(key string) bool {
	digits, shared := strings.CutPrefix(key, SharedCounters)
	if shared && len(digits) == 4 && strings.Trim(digits, "0123456789abcdef") == "" {
		return true
	}
	at := strings.LastIndexByte(key, ':') + 1
	switch start := key[:at]; key[at:] {
	case "fence":
		return strings.Contains(start, "}")
	case queue, ticket, roll, bid, seats:
		return strings.Contains(start, "}") &&
			(strings.HasSuffix(start, plain) || strings.HasSuffix(start, tagged))
	}
	return false
}

// TurnChannel begins the name of the channel on which a process hears of its turns. With the 26
// letters and digits that follow it has 39 bytes; scripts rely on that.
const (
	TurnChannel   = "redlock:turn:"
	ChannelLength = 39
)

// What a key holds that is no value of a lock begins with NoValue. Reservation begins what it holds
// while it is reserved for somebody in the queue, Marker is what it holds while readers have it.
const (
	NoValue     = "~redlock:"
	Reservation = "~" + TurnChannel
	Marker      = NoValue + "shared"
)

// Shares ends the number of a member of the queue that wants to share the lock.
const Shares = "*"
