package main

import (
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

// lockView is what the nodes together say about a lock.
type lockView struct {
	name    string
	verdict redlock.Verdict
	value   string // that most nodes have
	votes   int
	ends    time.Time // when fewer than a quorum have the value, or never
	token   uint64    // 0: not known
	waiting int       // so many as a quorum of nodes has
	first   time.Time // since when the first of them waits
	since   time.Time // when it was granted, or seen first; zero: not known
	longer  bool      // it was held before since
}

// answer is what a node has under the key of a lock.
type answer = quorum.Answer[wire.Stored]

// holder is who has the lock, for people.
func (l *lockView) holder() string {
	switch owner := wire.OwnerOf(l.value); {
	case l.verdict == redlock.VerdictShared:
		return "readers"
	case l.verdict != redlock.VerdictHeld:
		return string(l.verdict)
	case owner != "":
		return owner
	}
	return wire.Brief(l.value)
}

// merge says of all locks that somebody has, or that are in between, what nodes say. It is sorted
// by name.
func merge(nodes []nodeView, prefix string) (all []lockView) {
	keys := map[string]bool{}
	for _, n := range nodes {
		for key := range n.locks {
			keys[key] = true
		}
	}
	for key := range keys {
		l := together(nodes, key)
		if l.name = strings.TrimPrefix(key, prefix); l.verdict != redlock.VerdictFree {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b lockView) int { return strings.Compare(a.name, b.name) })
	return all
}

// together is what nodes say about the lock with a key.
func together(nodes []nodeView, key string) lockView {
	said, majority := make([]answer, len(nodes)), quorum.Majority(len(nodes))
	var first []time.Time
	var waiting []int
	for i, n := range nodes {
		h, found := n.locks[key]
		said[i] = answer{Err: n.err, Value: wire.Stored{Found: found, Value: h.value,
			Reserved: strings.HasPrefix(h.value, wire.Reservation)}}
		if found {
			waiting = append(waiting, h.waiting)
		}
		if h.waiting > 0 {
			first = append(first, h.first)
		}
	}
	c := wire.Count(said)
	l := lockView{verdict: redlock.Verdict(c.Verdict(majority)), value: c.Value, votes: c.Votes}
	var ends []time.Time
	for _, n := range nodes {
		if h, found := n.locks[key]; found && h.value == l.value {
			ends = append(ends, h.ends)
			l.token = max(l.token, h.token)
		}
	}
	if l.votes >= majority {
		slices.SortFunc(ends, time.Time.Compare)
		l.ends = ends[len(ends)-majority]
	}
	if len(first) >= majority {
		slices.Sort(waiting)
		slices.SortFunc(first, time.Time.Compare)
		l.waiting, l.first = waiting[len(waiting)-majority], first[len(first)-majority]
	}
	// A token is the time of the grant, unless the counter is ahead of that.
	if at := time.UnixMicro(int64(l.token)); l.token > 0 && at.Before(time.Now()) {
		l.since = at
	}
	return l
}
