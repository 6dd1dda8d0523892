package wire

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// Census is what the nodes have under the key of a lock.
type Census struct {
	Nodes    []quorum.Answer[Stored] // in the order in which the nodes were given
	Value    string                  // that most nodes have; "" if none has one
	Votes    int                     // nodes with that value
	Free     int                     // nodes without a key
	Reserved int                     // nodes that keep the key for somebody whose turn it is
	Silent   int                     // nodes of which nothing is known
}

// TakeCensus asks every node for a key, and for the counter if that is given too. It blocks for
// the budget at most, or until ctx is done.
func TakeCensus(ctx context.Context, nodes []*quorum.Node, budget time.Duration,
	keys ...string) Census {
	return Count(quorum.Survey(ctx, nodes, budget,
		func(ctx context.Context, n *quorum.Node) (Stored, error) {
			return Look(ctx, n.Pool, keys)
		}))
}

// Count is the census of what the nodes have answered.
func Count(nodes []quorum.Answer[Stored]) Census {
	c := Census{Nodes: nodes}
	votes := map[string]int{}
	for _, n := range c.Nodes {
		switch has := n.Value; {
		case n.Err != nil:
			c.Silent++
		case !has.Found:
			c.Free++
		case has.Reserved:
			c.Reserved++
		default:
			votes[has.Value]++
			if v := votes[has.Value]; v > c.Votes {
				c.Value, c.Votes = has.Value, v
			}
		}
	}
	return c
}

// Verdict is what follows if so many nodes make a holder: the text of a redlock.Verdict.
func (c *Census) Verdict(nodes int) string {
	switch {
	case c.Votes >= nodes && c.Value == Marker:
		return "shared"
	case c.Votes >= nodes:
		return "held"
	case c.Free >= nodes:
		return "free"
	case c.Reserved > 0 && c.Free+c.Reserved >= nodes:
		return "reserved"
	case max(c.Votes, c.Free, c.Reserved)+c.Silent >= nodes:
		return "unknown"
	}
	return "split"
}

// TTL is the time after which fewer nodes than so many have the value, or [quorum.Forever].
func (c *Census) TTL(nodes int) time.Duration {
	var ttls []time.Duration
	for _, n := range c.Nodes {
		if n.Err == nil && n.Value.Found && n.Value.Value == c.Value {
			ttls = append(ttls, n.Value.TTL)
		}
	}
	// As unsigned numbers, no expiry is the longest.
	slices.SortFunc(ttls, func(a, b time.Duration) int { return cmp.Compare(uint64(b), uint64(a)) })
	return ttls[nodes-1]
}

// Reader is one who shares a lock, as one node has it.
type Reader struct {
	Value string
	TTL   time.Duration // of its seat
}

// Readers asks a node who shares the lock of a key.
func Readers(ctx context.Context, p pool.Pool, key string) ([]Reader, error) {
	reply, err := p.Eval(ctx, scripts.Readers, []string{key, SeatsKey(key)})
	if err != nil {
		return nil, err
	}
	fields, _ := reply.([]any)
	var all []Reader
	for pair := range slices.Chunk(fields, 2) {
		value, isText := pair[0].(string)
		ms, isNumber := pair[len(pair)-1].(int64)
		if !isText || !isNumber {
			return nil, fmt.Errorf("readers script: unexpected reply of type %T", reply)
		}
		all = append(all, Reader{value, clock.Milliseconds(ms)})
	}
	return all, nil
}

// Waiters asks a node for the members of a lock's queue and their tickets, in the order of these.
// Their values are not told.
func Waiters(ctx context.Context, p pool.Pool, key string) ([]Member, error) {
	queue := QueueKey(key)
	if queue == "" {
		return nil, nil
	}
	reply, err := p.Eval(ctx, scripts.Queue, []string{key, queue})
	if err != nil {
		return nil, err
	}
	fields, ok := reply.([]any)
	var all []Member
	for pair := range slices.Chunk(fields, 2) {
		id, isID := pair[0].(string)
		score, _ := pair[len(pair)-1].(string)
		ticket, wrong := strconv.ParseFloat(score, 64)
		ok = ok && isID && wrong == nil
		all = append(all, Member{ID: id, Ticket: int64(ticket)})
	}
	if !ok {
		return nil, &ReplyError{Script: scripts.Queue.Name, Reply: reply}
	}
	return all, nil
}
