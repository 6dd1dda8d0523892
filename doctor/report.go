package doctor

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Severity says how bad a [Finding] is.
type Severity int

const (
	// Note is something to know: no lock is in danger.
	Note Severity = iota + 1
	// Warning is something that makes locks less safe or less available than they could be.
	Warning
	// Critical is something that breaks mutual exclusion, or makes locking impossible.
	Critical
)

// String returns "note", "warning" or "critical".
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Critical:
		return "critical"
	}
	return strconv.Itoa(int(s))
}

// Report is the result of an examination. A Report is not changed after it was made.
type Report struct {
	// Quorum is the number of nodes that make a holder.
	Quorum int
	// Nodes is what each node told, in node order.
	Nodes []NodeReport
	// Findings are the conclusions, the worst first.
	Findings []Finding
}

// Worst returns the severity of the worst finding, 0 if there is none.
func (r *Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return 0
	}
	return r.Findings[0].Severity
}

// Fingerprint is a short text that two programs share if they have the same nodes, in any order:
// the number of the nodes, and the beginning of a hash of their addresses. Log it at the start of
// each program. While the nodes are changed, it tells whether all programs know the same ones.
// Another name of a server makes another fingerprint. It is "" if the pool of a node does not tell
// its address.
func (r *Report) Fingerprint() string {
	var addrs []string
	for _, n := range r.Nodes {
		if n.Addr == "" {
			return ""
		}
		addrs = append(addrs, n.Addr)
	}
	slices.Sort(addrs)
	sum := sha256.Sum256([]byte(strings.Join(addrs, "\n")))
	return fmt.Sprintf("%d-%x", len(addrs), sum[:4])
}

// Finding is something about a deployment that an operator should know.
type Finding struct {
	// Severity says how bad it is.
	Severity Severity
	// Code names the kind of finding, for programs: one of the words that the package's comment
	// lists.
	Code string
	// Nodes are those it is about, or none if it is about the deployment as a whole.
	Nodes []int
	// Problem says what is wrong, in sentences for people. The words may change.
	Problem string
	// Advice says what to do, in the same way.
	Advice string
}

// NodeReport is what an examination found out about one node. Unknown lists what a node did not
// tell.
type NodeReport struct {
	// Node is the index of the node's pool in the call of New.
	Node int
	// Addr is the node's address, or "" if its pool does not tell it.
	Addr string
	// Err says why the node cannot take part in a lock. Either it does not answer, or it refuses
	// something that a lock needs.
	Err error
	// Guarded is how long the restart guard still keeps the node out, if nothing else does. Err is
	// the guard's error then, a [*redlock.GuardError].
	Guarded time.Duration
	// Server is the kind of server and its version, "Redis 7.0.15".
	Server string
	// RunID is the random name that a server gives itself at each start.
	RunID string
	// Mode is "standalone", "cluster" or "sentinel".
	Mode string
	// Role is "master" or "slave".
	Role string
	// Replicas is how many replicas are connected.
	Replicas int
	// Uptime is in whole seconds, cut off.
	Uptime time.Duration
	// MaxMemory is in bytes, 0 for no limit.
	MaxMemory int64
	// Eviction is the policy when MaxMemory is reached: "noeviction".
	Eviction string
	// Persistence is "none", "RDB", or "AOF" with the fsync policy: "AOF always".
	Persistence string
	// ClockOffset is by how much the node's clock is ahead of this machine's, give or take
	// ClockUncertainty.
	ClockOffset time.Duration
	// ClockUncertainty is half the round trip.
	ClockUncertainty time.Duration
	// Unheard says why the announcement of a release does not arrive, and waiters are not woken. It
	// is nil if it arrives, or if the options turn announcements off.
	Unheard error
	// Denied lists what an ACL denies, in the words of ACL SETUSER: "+pexpire", "~app:*". It is not
	// complete where the pool cannot send any command.
	Denied []string
	// User is the ACL user that lacks these rights, or "" if the node does not tell.
	User string
	// Unknown lists what could not be found out.
	Unknown []Gap
}

// Gap is something about a node that could not be found out.
type Gap struct {
	// What is "server", "run id", "mode", "role", "replicas", "uptime", "memory", "persistence" or
	// "clock".
	What string
	// Why is the client's error, or says that the node did not tell.
	Why error
}

// Knows reports whether the node told about something, which is one of the words of [Gap].
func (n *NodeReport) Knows(what string) bool {
	for _, u := range n.Unknown {
		if u.What == what {
			return false
		}
	}
	return true
}
