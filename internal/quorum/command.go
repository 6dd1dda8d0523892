package quorum

import "github.com/redlock-go/redlock/pool"

// Command is what a round sends to its nodes: one command for all of them, one for each, or one
// that is decided for each when its turn comes.
type Command struct {
	*pool.Command
	// Each, if it is not nil, has the command of each node instead, by the node's index.
	Each []*pool.Command
	// Read reads the client's reply to the command.
	Read func(c *pool.Command, reply any, err error) (Reply, error)
	// Decide, if it is not nil, is asked what to send to a node when the command would be sent. It
	// may be nothing.
	Decide func(node int) (c Command, send bool)
}

// When returns the command with a condition, which is looked at for each node when its turn comes.
func (c Command) When(holds func(node int) bool) Command {
	return Command{Decide: func(node int) (Command, bool) { return c, holds(node) }}
}

// to returns what is sent to a node; nil if that is decided when its turn comes.
func (c *Command) to(n *Node) *pool.Command {
	if c.Each != nil {
		return c.Each[n.Index]
	}
	return c.Command
}
