package quorum

import "time"

// Meaning is what the reply to a command says, in a word.
type Meaning uint8

const (
	// Gone is a no: the node has no key, or keeps it for somebody who waits.
	Gone Meaning = iota
	// Foreign is a no: the key is somebody else's.
	Foreign
	// NoLock is a no: the key holds data of another type.
	NoLock

	// Done is a yes: the node has done as it was asked, or has the key that it was asked for.
	Done
	// HandedOn is Done, and the key is reserved for the next in the queue now.
	HandedOn
	// Shared is Done, and others go on sharing the key.
	Shared
	// Standing is a yes: the member has a place in the queue.
	Standing
	// Turn is Standing, and the key is reserved for the member.
	Turn
)

// Reply is what a node has said. It is read from the client's reply once, when that arrives.
type Reply struct {
	Means Meaning
	// Before is how many are in the queue before a member.
	Before int32
	// Number is the token of a key that was set, or the ticket of a member of the queue.
	Number int64
	// Left is how long somebody else's key lives, or [Forever]. A member of the queue is told it
	// only if nobody is before it, and Forever otherwise.
	Left time.Duration
}

// Forever is the Left of a key that never expires.
const Forever time.Duration = -1

// Yes reports whether the reply is one.
func (r Reply) Yes() bool { return r.Means >= Done }

// Outcome is what has become of a command on one node: a reply, or Err, which is [ErrUnanswered]
// as long as there is neither.
type Outcome struct {
	Reply
	Err error
}

// Yes reports whether the node said yes.
func (o Outcome) Yes() bool { return o.Err == nil && o.Reply.Yes() }

// No reports whether the node said no.
func (o Outcome) No() bool { return o.Err == nil && !o.Reply.Yes() }

// Gone reports whether the node said that it does not have the key.
func (o Outcome) Gone() bool { return o.Err == nil && o.Means == Gone }

// Missing reports whether the node had neither answered nor failed.
func (o Outcome) Missing() bool { return o.Err == ErrUnanswered }

// Outcomes are those of all nodes, in the order of the pipelines.
type Outcomes []Outcome

// Count returns of how many nodes something is true: of yes and no, usually.
func (os Outcomes) Count(true func(Outcome) bool) (nodes int) {
	for _, o := range os {
		if true(o) {
			nodes++
		}
	}
	return nodes
}
