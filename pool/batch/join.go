package batch

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// Releases of one batch go together, as one command, where one server has all keys. Half of what a
// release costs a server is the start of its script and its reply. On five nodes the locks of 64
// callers took 0.87 of the time that way, and their servers 0.8 of the processor time.
//
// The command does what is done often: it deletes keys for which nobody queues. It leaves all else
// to the release alone, in a later batch: a key that is not the owner's, one that others wait for,
// one that the user may not touch, or that another server has.

// joins reports whether a call may go together with others: as the release of an owner who has not
// come from a queue. Such a release has as many arguments as keys.
func (c *Call[T]) joins() bool {
	if c.alone || c.bySource || c.command.Script() != scripts.Release || c.ctx.Err() != nil {
		return false
	}
	n := len(c.command.Args())
	return n == 3+1+1 || n == 3+2+2 // after EVALSHA, the script, and how many keys there are
}

// join returns the calls of the batch as they are sent: releases together, at the place of the
// first. Those with another number of keys than that go alone.
func (w *worker[T]) join(ctx context.Context) []*Call[T] {
	b := w.batcher
	if !b.OneServer || b.apart.Load() {
		return w.calls
	}
	var joined []*Call[T]
	place, size := 0, 0
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
		joined = append(joined, c)
	}
	if len(joined) < 2 {
		return w.calls
	}
	keys := (size - 3) / 2 // of each
	line := make([]any, 3, 3+len(joined)*2*keys+1)
	line[0], line[1], line[2] = "EVALSHA", scripts.Releases.ID, strconv.Itoa(len(joined)*keys)
	if b.unknown.Swap(false) {
		line[0], line[1] = "EVAL", scripts.Releases.Source
	}
	for _, c := range joined {
		line = append(line, c.command.Args()[3:3+keys]...)
	}
	for _, c := range joined {
		line = append(line, c.command.Args()[3+keys:]...)
	}
	line = append(line, int64(len(joined)))
	sent[place] = &Call[T]{ctx: ctx, joined: joined, line: line}
	return sent
}

// part answers the releases that went together.
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
			c.again = true // together, with the source
		case together.err != nil && !isReply(together.err):
			c.Answer(nil, together.err)
		case len(replies) == len(together.joined) && replies[i] != nil:
			c.Answer(replies[i], nil)
		default:
			c.again, c.alone = true, true
		}
	}
	w.batcher.learn(together.err)
}

// learn notes why releases could not go together.
func (b *Batcher[T]) learn(err error) {
	switch {
	case pool.IsNoScript(err):
		b.unknown.Store(true)
	case err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT "):
		b.apart.Store(true)
	}
}

// isReply reports whether an error is what the node has replied: that begins with a word in
// capitals.
func isReply(err error) bool {
	word, _, found := strings.Cut(err.Error(), " ")
	return found && word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
