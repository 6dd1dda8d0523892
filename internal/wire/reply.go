package wire

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// GuardError is the outcome of a node that has not been up long enough.
type GuardError struct {
	Wait time.Duration // until the node votes, rounded up to whole seconds
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("restarted too recently, takes part again in %v", e.Wait)
}

// ReplyError is the outcome of a node that answered a script with something else than that
// returns.
type ReplyError struct {
	Script string // the script's name
	Reply  any    // what came instead
}

func (e *ReplyError) Error() string {
	reply := errtext.Cut(fmt.Sprintf("%#v", e.Reply))
	return fmt.Sprintf("%s script: unexpected reply %s of type %T", e.Script, reply, e.Reply)
}

func readSetNX(_ *pool.Command, reply any, err error) (quorum.Reply, error) {
	switch {
	case err != nil:
		return quorum.Reply{}, err
	case reply == true:
		return quorum.Reply{Means: quorum.Done, Number: 1}, nil
	}
	return quorum.Reply{Means: quorum.Foreign}, nil
}

// integer reads the reply of a script that is an integer, of which means tells the meaning.
func integer(
	means func(i int64) (quorum.Reply, error),
) func(*pool.Command, any, error) (quorum.Reply, error) {
	return func(c *pool.Command, reply any, err error) (quorum.Reply, error) {
		if err != nil {
			return quorum.Reply{}, err
		}
		if i, ok := reply.(int64); ok {
			return means(i)
		}
		return quorum.Reply{}, &ReplyError{Script: c.Script().Name, Reply: reply}
	}
}

var readAcquired = integer(func(i int64) (quorum.Reply, error) {
	switch {
	case i < 0:
		return quorum.Reply{}, &GuardError{Wait: clock.Times(time.Second, -max(i, -math.MaxInt64))}
	case i == 0:
		return quorum.Reply{Means: quorum.Foreign}, nil
	}
	return quorum.Reply{Means: quorum.Done, Number: i}, nil
})

// readAcquiredInOneSlot is readAcquired for a command on a shared counter. A node of a cluster
// refuses two keys that lie in different slots.
func readAcquiredInOneSlot(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	if err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT") {
		return quorum.Reply{}, fmt.Errorf("%w: this node is part of a cluster, where fencing "+
			"needs WithFencePerName", err)
	}
	return readAcquired(c, reply, err)
}

var readHeld = integer(func(i int64) (quorum.Reply, error) {
	switch {
	case i < 0:
		return quorum.Reply{Means: quorum.Foreign}, nil
	case i == 0:
		return quorum.Reply{Means: quorum.Gone}, nil
	}
	return quorum.Reply{Means: quorum.Done}, nil
})

var readReleased = integer(func(i int64) (quorum.Reply, error) {
	switch {
	case i == -1:
		return quorum.Reply{Means: quorum.Foreign, Left: quorum.Forever}, nil
	case i < 0:
		return quorum.Reply{Means: quorum.Foreign, Left: clock.Milliseconds(-2 - i)}, nil
	case i == 0:
		return quorum.Reply{Means: quorum.Gone}, nil
	case i == 1:
		return quorum.Reply{Means: quorum.Done}, nil
	case i == 3:
		return quorum.Reply{Means: quorum.Shared}, nil
	}
	return quorum.Reply{Means: quorum.HandedOn}, nil
})

func readTakenBack(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	if err != nil && strings.Contains(err.Error(), "WRONGTYPE ") {
		return quorum.Reply{Means: quorum.NoLock}, nil
	}
	return readReleased(c, reply, err)
}

// readStood reads a ticket, how many are before it, and when the key expires.
func readStood(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	if err != nil {
		return quorum.Reply{}, err
	}
	fields, _ := reply.([]any)
	n := make([]int64, 0, 3)
	for _, f := range fields {
		if i, ok := f.(int64); ok {
			n = append(n, i)
		}
	}
	if len(n) != 3 || len(fields) != 3 {
		return quorum.Reply{}, &ReplyError{Script: c.Script().Name, Reply: reply}
	}
	said := quorum.Reply{Means: quorum.Standing, Number: n[0], Left: quorum.Forever,
		Before: int32(min(n[1], math.MaxInt32))}
	if n[1] < 0 {
		return quorum.Reply{Means: quorum.Turn, Number: n[0], Left: quorum.Forever}, nil
	}
	if n[2] >= 0 {
		said.Left = clock.Milliseconds(n[2])
	}
	return said, nil
}

// Stored is what a node has under the key of a lock.
type Stored struct {
	Found    bool
	Value    string
	Reserved bool          // for a process whose turn it is: Value is not that of a lock
	TTL      time.Duration // of the key, or [quorum.Forever]
	Counter  string        // of the lock, if it was asked for and the key was found
}

// Look asks a node what it has under the key of a lock, and under its counter's if that is given
// too.
func Look(ctx context.Context, p pool.Pool, of []string) (Stored, error) {
	reply, err := p.Eval(ctx, scripts.Inspect, of)
	if err != nil {
		return Stored{}, err
	}
	fields, ok := reply.([]any)
	if ok && len(fields) == 0 {
		return Stored{}, nil
	}
	k := Stored{Found: true, TTL: quorum.Forever}
	if len(of) == 2 && len(fields) == 3 {
		if k.Counter, ok = fields[2].(string); ok {
			fields = fields[:2]
		}
	}
	if len(fields) == 2 {
		value, isText := fields[0].(string)
		ms, isNumber := fields[1].(int64)
		if isText && isNumber {
			k.Value = value
			if ms >= 0 {
				k.TTL, k.Reserved = clock.Milliseconds(ms),
					strings.HasPrefix(value, Reservation)
			}
			return k, nil
		}
	}
	// It may have the value of a lock.
	return Stored{}, fmt.Errorf("inspect script: unexpected reply of type %T", reply)
}
