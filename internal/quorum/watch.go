package quorum

import (
	"errors"

	"github.com/redlock-go/redlock/pool"
)

// Watch is told of each command of a lane when the client has returned from it. The command is nil
// if it was decided when its turn came. It began at a time, see clock.Ticks. Watch is called
// without any mutex of the package, must not block, and must not panic.
type Watch func(n *Node, c *pool.Command, k Kind, began int64, err error)

// Watched lets w watch lanes that have not been used yet.
func Watched(lanes []Lane, w Watch) {
	for i := range lanes {
		lanes[i].watch = w
	}
}

// watched tells of a command, unless none was sent.
func (l *Lane) watched(w *work, k Kind, began int64, err error) {
	if l.watch != nil && !errors.Is(err, ErrUnsent) {
		l.watch(l.node, w.command.Command, k, began, err)
	}
}

// outOfOrder is how many errors in a row make a node one that is out of order.
const outOfOrder = 3

// Turned notes whether a command on the node has failed. It reports whether the node has gone out
// of order by that, or is up again.
func (n *Node) Turned(err error) (turned, up bool) {
	switch {
	case err != nil:
		return n.errors.Add(1) == outOfOrder, false
	case n.errors.Load() == 0:
		return false, true
	}
	return n.errors.Swap(0) >= outOfOrder, true
}
