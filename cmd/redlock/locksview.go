package main

import (
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
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
	silent, quorum := 0, len(nodes)/2+1
	for _, n := range nodes {
		if n.err != nil {
			silent++
		}
		for key := range n.locks {
			keys[key] = true
		}
	}
	for key := range keys {
		var at []held
		for _, n := range nodes {
			if h, ok := n.locks[key]; ok {
				at = append(at, h)
			}
		}
		l := together(at, len(nodes)-silent, silent, quorum)
		if l.name = strings.TrimPrefix(key, prefix); l.verdict != redlock.VerdictFree {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b lockView) int { return strings.Compare(a.name, b.name) })
	return all
}

// together is what nodes that have a lock's key say, of so many that answered.
func together(at []held, answered, silent, quorum int) (l lockView) {
	votes, reserved := map[string]int{}, 0
	for _, h := range at {
		if strings.HasPrefix(h.value, wire.Reservation) {
			reserved++
			continue
		}
		if votes[h.value]++; votes[h.value] > l.votes {
			l.value, l.votes = h.value, votes[h.value]
		}
	}
	free := answered - len(at)
	switch {
	case l.votes >= quorum && l.value == wire.Marker:
		l.verdict = redlock.VerdictShared
	case l.votes >= quorum:
		l.verdict = redlock.VerdictHeld
	case free >= quorum:
		l.verdict = redlock.VerdictFree
	case reserved > 0 && free+reserved >= quorum:
		l.verdict = redlock.VerdictHandedOn
	case max(l.votes, free, reserved)+silent >= quorum:
		l.verdict = redlock.VerdictUnknown
	default:
		l.verdict = redlock.VerdictSplit
	}
	var ends, first []time.Time
	var waiting []int
	for _, h := range at {
		if h.value == l.value {
			ends = append(ends, h.ends)
			l.token = max(l.token, h.token)
		}
		waiting = append(waiting, h.waiting)
		if h.waiting > 0 {
			first = append(first, h.first)
		}
	}
	if l.votes >= quorum {
		slices.SortFunc(ends, time.Time.Compare)
		l.ends = ends[len(ends)-quorum]
	}
	if len(first) >= quorum {
		slices.Sort(waiting)
		slices.SortFunc(first, time.Time.Compare)
		l.waiting, l.first = waiting[len(waiting)-quorum], first[len(first)-quorum]
	}
	// A token is the time of the grant, unless the counter is ahead of that.
	if at := time.UnixMicro(int64(l.token)); l.token > 0 && at.Before(time.Now()) {
		l.since = at
	}
	return l
}
