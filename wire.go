package redlock

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/keys"
	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// wire is all that is said to a node about one lock. The commands are in scripts.go; what the
// replies mean is here.
type wire struct {
	cfg    *config
	tokens *tokens

	// What scripts are given, made once.
	keys  [2]string // the lock's, and with fencing its counter's
	queue [2]string // the lock's, and that of those who wait for it, "" if there is none
}

func newWire(cfg *config, key string, t *tokens) wire {
	w := wire{cfg: cfg, tokens: t, keys: [2]string{key}, queue: [2]string{key, keys.Queue(key)}}
	switch {
	case cfg.fencing && cfg.fencePerName:
		w.keys[1] = keys.OwnCounter(key)
	case cfg.fencing:
		w.keys[1] = keys.SharedCounter(key)
	}
	return w
}

// lockKey is the key of scripts that have no business with the counter. Pools may append to it.
func (w *wire) lockKey() []string { return w.keys[:1:1] }

func readSetNX(_ *pool.Command, reply any, err error) (quorum.Reply, error) {
	switch {
	case err != nil:
		return quorum.Reply{}, err
	case reply == true:
		return quorum.Reply{Means: quorum.Done, Number: 1}, nil
	}
	return quorum.Reply{Means: quorum.Foreign}, nil
}

// number returns the reply of a script that is an integer.
func number(c *pool.Command, reply any, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	if i, ok := reply.(int64); ok {
		return i, nil
	}
	return 0, &ReplyError{Script: c.Script().Name, Reply: reply}
}

func readAcquired(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	switch i, err := number(c, reply, err); {
	case err != nil:
		return quorum.Reply{}, err
	case i < 0:
		return quorum.Reply{}, &GuardError{Wait: clock.Times(time.Second, -max(i, -math.MaxInt64))}
	case i == 0:
		return quorum.Reply{Means: quorum.Foreign}, nil
	default:
		return quorum.Reply{Means: quorum.Done, Number: i}, nil
	}
}

// readAcquiredInOneSlot is readAcquired for a command on a shared counter. A node of a cluster
// refuses two keys that lie in different slots.
func readAcquiredInOneSlot(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	if err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT") {
		return quorum.Reply{}, fmt.Errorf("%w: this node is part of a cluster, where fencing "+
			"needs WithFencePerName", err)
	}
	return readAcquired(c, reply, err)
}

func readHeld(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	switch i, err := number(c, reply, err); {
	case err != nil:
		return quorum.Reply{}, err
	case i < 0:
		return quorum.Reply{Means: quorum.Foreign}, nil
	case i == 0:
		return quorum.Reply{Means: quorum.Gone}, nil
	default:
		return quorum.Reply{Means: quorum.Done}, nil
	}
}

func readReleased(c *pool.Command, reply any, err error) (quorum.Reply, error) {
	switch i, err := number(c, reply, err); {
	case err != nil:
		return quorum.Reply{}, err
	case i == -1:
		return quorum.Reply{Means: quorum.Foreign, Left: quorum.Forever}, nil
	case i < 0:
		return quorum.Reply{Means: quorum.Foreign, Left: clock.Milliseconds(-2 - i)}, nil
	case i == 0:
		return quorum.Reply{Means: quorum.Gone}, nil
	case i == 1:
		return quorum.Reply{Means: quorum.Done}, nil
	default:
		return quorum.Reply{Means: quorum.HandedOn}, nil
	}
}

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
	fields, ok := reply.([]any)
	var n [3]int64
	ok = ok && len(fields) == len(n)
	for i := range n {
		if ok {
			n[i], ok = fields[i].(int64)
		}
	}
	if !ok {
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

// inspect asks a node what it has under the key of a lock, and under its counter's if that is given
// too.
func inspect(ctx context.Context, p pool.Pool, of []string) (NodeKey, error) {
	reply, err := p.Eval(ctx, scripts.Inspect, of)
	if err != nil {
		return NodeKey{}, err
	}
	fields, ok := reply.([]any)
	if ok && len(fields) == 0 {
		return NodeKey{}, nil
	}
	k := NodeKey{Found: true, TTL: NoExpiry}
	if len(of) == 2 && len(fields) == 3 {
		if k.counter, ok = fields[2].(string); ok {
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
					strings.HasPrefix(value, keys.Reservation)
			}
			return k, nil
		}
	}
	const wrong = "inspect script: reply %#v of type %T instead of a value and milliseconds"
	return NodeKey{}, fmt.Errorf(wrong, reply, reply)
}
