package wire

import "time"

const (
	// QueueTTL is how long a queue outlives the last who came, or renewed it.
	QueueTTL = time.Minute
	// RollGrace is how long those in the queue have to ask again when somebody has died. Nodes cut
	// their clocks off to seconds: it may be a second less.
	RollGrace = 5 * time.Second
)

// Member is a waiter in the queue on the nodes.
type Member struct {
	ID     string // the channel of the process, and a number
	Ticket int64
	Agreed bool   // a quorum of nodes has the ticket
	Value  string // of the attempt that was refused before, or ""
	Renews bool   // the time for which nodes keep the queue begins anew
}
