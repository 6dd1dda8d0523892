package wire

import (
	"encoding/base64"
	"strings"
	"time"
)

const (
	// QueueTTL is how long a queue outlives the last who came, or renewed it.
	QueueTTL = time.Minute
	// RollGrace is how long those in the queue have to ask again when somebody has died. Nodes cut
	// their clocks off to seconds: it may be a second less.
	RollGrace = 5 * time.Second
)

// Member is a waiter in the queue on the nodes.
type Member struct {
	ID     string // the channel of the process, a number, and its ending
	Ticket int64
	Agreed bool   // a quorum of nodes has the ticket
	Value  string // of the attempt that was refused before, or ""
	Renews bool   // the time for which nodes keep the queue begins anew
}

// Ending is what follows the number of a member: who it is, for people, and whether it shares the
// lock. Scripts have no spaces in a member, and add "+" to it.
func Ending(owner string, shares bool) (ending string) {
	if owner != "" {
		ending = ":" + base64.RawURLEncoding.EncodeToString([]byte(owner))
	}
	if shares {
		ending += Shares
	}
	return ending
}

// Owner returns who the member is, or "".
func (m *Member) Owner() string {
	_, ending, _ := strings.Cut(m.ID[min(ChannelLength, len(m.ID)):], ":")
	owner, err := base64.RawURLEncoding.DecodeString(strings.TrimSuffix(ending, Shares))
	if err != nil {
		return ""
	}
	return string(owner)
}
