package batch

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// The releases of a batch go together, as one command, where one server has all keys. Half of what
// a release costs a server is the start of its script and its reply. On five nodes the locks of 64
// callers took 0.87 of the time that way, and their servers 0.8 of the processor time.
//
// The command deletes the keys that hold their owners' values and that nobody queues for. Every
// other key it leaves as it is. The release of such a key then goes alone, in a later batch. So do
// all of them if the server refuses the command, for instance because the user may not touch one
// of the keys.

// joins reports whether a call may go together with others. It is a release then that has as many
// arguments as keys. One with more is of an owner who was in a queue.
func (c *Call[T]) joins() bool {
	if c.alone || c.command.Script() != scripts.Release || c.ctx.Err() != nil {
		return false
	}
	n := len(c.command.Args())
	return n == 3+1+1 || n == 3+2+2 // after EVALSHA, the script, and how many keys there are
}

// join returns the calls that are sent for the batch. One call stands for all releases that have
// as many keys as the first of them, at its place.
func (w *worker[T]) join(ctx context.Context) []*Call[T] {
	b := w.batcher
	if !b.OneServer || b.apart.Load() {
		return w.calls
	}
	var joined []*Call[T]
	place, size, bySource := 0, 0, false
	sent := make([]*Call[T], 0, len(w.calls))
	for _, c := range w.calls {
		switch {
		case !c.joins() || size > 0 && size != len(c.command.Args()):
			sent = append(sent, c)
			continue
		case size == 0:
			place, size = len(sent), len(c.command.Args())
			sent = append(sent, c)
		}
		joined, bySource = append(joined, c), bySource || c.bySource
	}
	if len(joined) < 2 {
		return w.calls
	}
	keys := (size - 3) / 2 // of each
	line := make([]any, 3, 3+len(joined)*(keys+1))
	line[0], line[1], line[2] = "EVALSHA", scripts.Releases.ID, strconv.Itoa(len(joined)*keys)
	if bySource {
		line[0], line[1] = "EVAL", scripts.Releases.Source
	}
	for _, c := range joined {
		line = append(line, c.command.Args()[3:3+keys]...)
	}
	for _, c := range joined {
		line = append(line, c.command.Args()[3+keys]) // the value
	}
	sent[place] = &Call[T]{ctx: ctx, joined: joined, line: line}
	return sent
}

// part answers the releases that went together, or lets them go again.
func (w *worker[T]) part() {
	i := slices.IndexFunc(w.sent, func(c *Call[T]) bool { return c.joined != nil })
	if i < 0 || !w.sent[i].answered {
		return
	}
	together := w.sent[i]
	replies, _ := together.reply.([]any)
	for i, c := range together.joined {
		switch {
		case pool.IsNoScript(together.err):
			c.again, c.alone, c.bySource = true, c.bySource, true // together once more
		case together.err != nil && !isReply(together.err):
			c.Answer(nil, together.err)
		case len(replies) == len(together.joined) && replies[i] != nil:
			c.Answer(replies[i], nil)
		default:
			c.again, c.alone = true, true
		}
	}
	// Servers say so behind CROSSSLOT, and some proxies behind ERR.
	if err := together.err; err != nil && strings.Contains(err.Error(), "same slot") {
		w.batcher.apart.Store(true)
	}
}

// isReply reports whether an error is what the node has replied. That begins with a word in
// capitals. Rueidis and valkey-go cut the word ERR off, but have a type for replies.
func isReply(err error) bool {
	if errors.Is(err, pool.ErrNotSent) { // the node may have refused the connection
		return false
	}
	if typed := (interface{ IsNoScript() bool })(nil); errors.As(err, &typed) {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) { // a hook may have wrapped it
		word, _, found := strings.Cut(err.Error(), " ")
		if found && word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			return true
		}
	}
	return false
}
