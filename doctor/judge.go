package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
)

// judge draws the conclusions from what the nodes told.
type judge struct {
	plan   *plan
	nodes  []NodeReport
	owner  []int // see meet
	report *Report
}

// judge fills in the findings. A cause comes before what it causes.
func (p *plan) judge(r *Report, owner []int) {
	j := judge{p, r.Nodes, owner, r}
	j.number()
	j.identity()
	j.role()
	j.reach()
	j.joins()
	j.elections()
	j.announcements()
	j.memory()
	j.restart()
	j.clocks()
	j.version()
	j.unknown()
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(b.Severity, a.Severity)
	})
}

// find adds a finding.
func (j *judge) find(s Severity, code string, nodes []int, problem, advice string) {
	j.report.Findings = append(j.report.Findings, Finding{
		Severity: s, Code: code, Nodes: nodes, Problem: problem, Advice: advice,
	})
}

// findEach adds a finding for each group of nodes of which the same is said, in node order. No
// problem leaves a node out.
func (j *judge) findEach(
	s Severity, code string, say func(n *NodeReport) (problem, advice string),
) {
	type words struct{ problem, advice string }
	var order []words
	nodes := map[words][]int{}
	for i := range j.nodes {
		problem, advice := say(&j.nodes[i])
		if problem == "" {
			continue
		}
		w := words{problem, advice}
		if nodes[w] == nil {
			order = append(order, w)
		}
		nodes[w] = append(nodes[w], i)
	}
	for _, w := range order {
		j.find(s, code, nodes[w], w.problem, w.advice)
	}
}

// findIf is findEach with one advice, and a problem that is a format for what tell returns. No text
// leaves a node out.
func (j *judge) findIf(
	s Severity, code, problem, advice string, tell func(n *NodeReport) string,
) {
	j.findEach(s, code, func(n *NodeReport) (string, string) {
		text := tell(n)
		if text == "" {
			return "", ""
		}
		return fmt.Sprintf(problem, text), advice
	})
}

// when returns text if the condition holds, and otherwise leaves the node out.
func when(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

// outvoted is the severity of nodes that take no part in locks. With too many of them, nothing can
// be locked.
func (j *judge) outvoted(otherwise Severity) Severity {
	out := 0
	for _, n := range j.nodes {
		if n.Err != nil {
			out++
		}
	}
	if out > len(j.nodes)-j.report.Quorum {
		return Critical
	}
	return otherwise
}

// fails reports whether a node takes no part in locks for a reason other than the restart guard.
func fails(n *NodeReport) bool { return n.Err != nil && n.Guarded == 0 }

func isSentinel(n *NodeReport) bool { return n.Mode == "sentinel" }

func isReplica(n *NodeReport) bool { return n.Role == "slave" }

// sentence is the text of an error for the end of a sentence.
func sentence(err error) string { return strings.TrimRight(errtext.Said(err.Error()), ". ") }

func (j *judge) number() {
	n := len(j.nodes)
	switch {
	case n == 1:
		j.find(Warning, "single", nil,
			"The only node is a single point of failure: when it is down, nothing can be locked.",
			"Use three or five independent nodes, or a simpler lock on one Redis.")
	case n == 2:
		j.find(Warning, "even", nil,
			"Both nodes are needed: when either is down, nothing can be locked.",
			"Use three nodes.")
	case n%2 == 0:
		j.find(Warning, "even", nil,
			fmt.Sprintf("%d nodes survive the loss of %d, as %d nodes do, "+
				"and split votes more easily.", n, n-j.report.Quorum, n-1),
			fmt.Sprintf("Use %d nodes or %d.", n-1, n+1))
	}
}

func (j *judge) identity() {
	var servers [][]int
	for i, n := range j.nodes {
		at := slices.IndexFunc(servers, func(nodes []int) bool {
			first := nodes[0]
			return n.RunID != "" && n.RunID == j.nodes[first].RunID || j.owner[i] == j.owner[first]
		})
		if at < 0 {
			servers = append(servers, []int{i})
		} else {
			servers[at] = append(servers[at], i)
		}
	}
	for _, nodes := range servers {
		if len(nodes) == 1 {
			continue
		}
		what := "a key that one has set is there for the others"
		if id := j.nodes[nodes[0]].RunID; id != "" {
			what = fmt.Sprintf("run id %.8s…", id)
		}
		j.find(Critical, "same-server", nodes,
			fmt.Sprintf("These pools reach the same server (%s), whose vote counts %d times.",
				what, len(nodes)),
			"Give every pool a server of its own, on a machine of its own.")
	}
}

func (j *judge) role() {
	j.findIf(Critical, "sentinel",
		"A %s keeps no keys.",
		"Give the pool the address of a master.",
		func(n *NodeReport) string { return when(isSentinel(n), "Sentinel") })
	j.findIf(Critical, "replica",
		"A %s refuses writes, or its master overwrites them.", noReplica,
		func(n *NodeReport) string { return when(isReplica(n), "replica") })
	j.findIf(Warning, "replicas",
		"A failover to a replica (%s) forgets the locks that it has not received.",
		"Remove the replicas. "+
			"Otherwise promote one only after its master has been down for the longest expiry.",
		func(n *NodeReport) string {
			return when(n.Replicas > 0, fmt.Sprintf("%d connected", n.Replicas))
		})
	cluster := Warning
	if slices.ContainsFunc(j.nodes, func(n NodeReport) bool {
		return n.Mode == "cluster" && n.Err != nil
	}) {
		cluster = j.outvoted(Warning) // it is the cause of what reach finds
	}
	j.findIf(cluster, "cluster",
		"A server in %s mode refuses names in slots that it does not serve, "+
			"and its failover forgets locks.", noCluster,
		func(n *NodeReport) string { return when(n.Mode == "cluster", n.Mode) })
}

func (j *judge) reach() {
	needed := j.plan.lockRights()
	for _, t := range append(slices.Clone(troubles), unreachable) {
		j.findEach(j.outvoted(Warning), t.code, func(n *NodeReport) (string, string) {
			if !fails(n) || isSentinel(n) || isReplica(n) || troubleOf(n.Err).code != t.code {
				return "", ""
			}
			advice := t.advice
			if t.code == "noperm" {
				advice = allow(n, needed)
			}
			return t.problem + " (" + sentence(n.Err) + ").", advice
		})
	}
}

func (j *judge) joins() {
	j.lacks(j.plan.joinRights(), "Lacks rights without which many releases go one by one.")
}

func (j *judge) elections() {
	j.lacks(j.plan.electionRights(), "Lacks the right on the counters of WithFencePerName, "+
		"without which nobody is elected.")
}

// lacks finds nodes that deny some of the rights, and do what locks need even so.
func (j *judge) lacks(needed []right, problem string) {
	j.findEach(Note, "noperm", func(n *NodeReport) (string, string) {
		if !deniesSome(n, needed) || fails(n) {
			return "", ""
		}
		return problem, allow(n, needed)
	})
}

// deniesSome reports whether an ACL denies one of the rights.
func deniesSome(n *NodeReport, needed []right) bool {
	return slices.ContainsFunc(needed, func(r right) bool {
		return slices.Contains(n.Denied, r.rule)
	})
}

func (j *judge) announcements() {
	needed := j.plan.announcementRights()
	j.findEach(Warning, "announcements", func(n *NodeReport) (string, string) {
		if n.Unheard == nil || fails(n) {
			return "", ""
		}
		advice := "Find out what keeps Pub/Sub from working there. " +
			"If it cannot work, WithPolling saves the attempts."
		if deniesSome(n, needed) || isDenied(n.Unheard) {
			advice = allow(n, needed)
		}
		return "Does not wake the waiters when a lock is released (" + sentence(n.Unheard) + "). " +
			"They wait for their retry delay.", advice
	})
}

func (j *judge) memory() {
	evicts := func(n *NodeReport) bool {
		return n.Knows("memory") && n.Eviction != "noeviction"
	}
	j.findIf(Critical, "eviction",
		"A node whose memory is full drops keys (maxmemory-policy %s), held locks among them.",
		"Set maxmemory-policy noeviction, or use a server for locks alone.",
		func(n *NodeReport) string {
			return when(evicts(n) && n.MaxMemory > 0, n.Eviction)
		})
	j.findIf(Note, "eviction",
		"A node could drop held locks if maxmemory were set (maxmemory-policy %s).",
		"Set maxmemory-policy noeviction before somebody sets maxmemory.",
		func(n *NodeReport) string {
			return when(evicts(n) && n.MaxMemory == 0, n.Eviction)
		})
}

func (j *judge) restart() {
	if j.plan.Terms.Guard > 0 {
		j.findIf(j.outvoted(Note), "guard",
			"Has restarted. The restart guard keeps it out for another %s.",
			fmt.Sprintf("Wait until it has been up for longer than %v.", j.plan.Terms.Guard),
			func(n *NodeReport) string { return when(n.Guarded > 0, n.Guarded.String()) })
		return
	}
	j.findIf(Warning, "restart",
		"A restart forgets locks (persistence: %s), and the node could grant them again.",
		"Use WithRestartGuard with the longest expiry in use, "+
			"or keep a restarted node away for that long. "+
			"Or set appendonly yes and appendfsync always.",
		func(n *NodeReport) string {
			return when(n.Persistence != "AOF always", n.Persistence)
		})
}

// clockLimit is a difference between clocks that cannot be overlooked: machines whose time anything
// corrects stay far below it.
const clockLimit = time.Second

func (j *judge) clocks() {
	var known []*NodeReport
	for i := range j.nodes {
		if j.nodes[i].Knows("clock") {
			known = append(known, &j.nodes[i])
		}
	}
	if len(known) == 0 {
		return
	}
	slices.SortStableFunc(known, func(a, b *NodeReport) int {
		return cmp.Compare(a.ClockOffset, b.ClockOffset)
	})
	// The clock in the middle is right, if any is.
	middle := known[len(known)/2]
	var wrong []int
	var most time.Duration
	for _, n := range known {
		d := clock.Sub(n.ClockOffset, middle.ClockOffset).Abs() -
			n.ClockUncertainty - middle.ClockUncertainty
		if d > clockLimit {
			wrong = append(wrong, n.Node)
			most = max(most, d)
		}
	}
	slices.Sort(wrong)
	const advice = "Let chrony or ntpd keep the time, by slewing."
	if len(wrong) > 0 {
		j.find(Warning, "clock", wrong,
			fmt.Sprintf("The clock differs from the others' by %v or more. "+
				"Locks do not need equal clocks, "+
				"but a jump that corrects this one makes them expire early or late.",
				most.Round(time.Millisecond)), advice)
	}
	if d := middle.ClockOffset.Abs() - middle.ClockUncertainty; d > clockLimit {
		j.find(Warning, "clock", nil,
			fmt.Sprintf("This machine's clock differs from the nodes' by %v or more. "+
				"If nodes lose their data, the order of fencing tokens depends on clients' clocks.",
				d.Round(time.Millisecond)), advice)
	}
}

func (j *judge) version() {
	older := func(major, minor int) func(n *NodeReport) string {
		return func(n *NodeReport) string {
			var a, b int
			_, err := fmt.Sscanf(n.Server, "Redis %d.%d", &a, &b)
			return when(err == nil && (a < major || a == major && b < minor), n.Server)
		}
	}
	if j.plan.Terms.Guard > 0 {
		// Older servers replicate a script's text, and then refuse writes after INFO.
		j.findIf(Critical, "version",
			"%s is too old for WithRestartGuard, which needs Redis 5.0.",
			"Upgrade the server.", older(5, 0))
	}
	j.findIf(Warning, "version",
		"%s is no longer maintained.", "Upgrade to Redis 7 or newer, or to Valkey.", older(6, 2))
}

func (j *judge) unknown() {
	j.findEach(Note, "unknown", func(n *NodeReport) (string, string) {
		if len(n.Unknown) == 0 || fails(n) {
			return "", "" // there is a finding of its own
		}
		var what []string
		reasons := map[string]bool{}
		advice := "Ask the server by redis-cli, or use a client that can ask (pool.Doer)."
		for _, u := range n.Unknown {
			what = append(what, u.What)
			reasons[u.Why.Error()] = true
			if isDenied(u.Why) {
				advice = allow(n, reportRights) + " -- or ask the server by redis-cli."
			}
		}
		text := strings.Join(what, ", ")
		if len(reasons) == 1 {
			text += " (" + sentence(n.Unknown[0].Why) + ")"
		}
		return "Unknown: " + text + ".", advice
	})
}
