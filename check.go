package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/oneline"
	"github.com/redlock-go/redlock/internal/quorum"
)

// Check tries on every node whether locks with r's options can live there, asks it about itself, by INFO, TIME and CONFIG GET,
// and tells what in the deployment makes locks unsafe or unavailable. It disturbs no lock, and can be used in
// production: in a start-up log, a health page or a command such as examples/doctor, but not for every lock.
//
// On each node it acquires a key of its own, extends it, sees that it is not released with another
// value, and releases it, by the commands of a lock. It subscribes to the announcement of that release
// and waits for it, unless there is [WithoutAnnouncements] or the pool is no [pool.Subscriber]. The key
// is redlock:check: and 26 random letters, after the prefix of [WithKeyPrefix]. With [WithFencing] it
// raises the shared counter redlock:fence:330d, which stays; with [WithFencePerName] it has a counter
// beside it. Nothing else is written, and the key and its own counter are gone when Check returns.
// Where a node did not answer, or denies the deletion, they expire by themselves after eight node
// timeouts, or after a second if that is longer.
//
// Where an ACL denies something, Check tries one by one the rights that locks with r's options need, which docs/rights.md lists,
// and says which are missing.
//
// Check blocks until all nodes have answered, at most for fifteen node timeouts and for one where a node answers nothing, or until
// ctx is done. What a node denies to tell of itself, or a pool that is no [pool.Doer] cannot ask, is reported as unknown. The
// error is an [*OptionError], or the context's; then the result is nil.
//
// The codes of its findings:
//   - same-server: several pools reach the same server, so its vote counts several times
//   - sentinel, replica: a node is no master
//   - replicas: a node has replicas, and a failover to one of them forgets locks
//   - cluster: a node is part of a cluster, which does the same
//   - refused, name, tls, timeout, closed: a node cannot be reached, or does not answer
//   - noauth, wrongpass: a node wants a password, or another one
//   - noperm: an ACL denies what a lock needs
//   - crossslot: a node of a cluster refuses the counter that names share; see [WithFencePerName]
//   - moved, clusterdown, loading, readonly, oom, misconf, noreplicas, busy, maxclients: a node refuses locks with that error
//   - unreachable: a node cannot take part in locks for another reason
//   - announcements: a node does not wake waiters
//   - eviction: a node may drop locks when its memory is full
//   - restart: a node forgets locks when it restarts, and there is no [WithRestartGuard]
//   - guard: a node is still kept out by the restart guard
//   - clock: the clocks differ by more than a second
//   - version: a server is too old
//   - even, single: the number of nodes
//   - unknown: something could not be found out
func (r *Redlock) Check(ctx context.Context) (*Report, error) {
	r.mustBeMade()
	needContext(ctx)
	if r.err != nil {
		return nil, r.err
	}
	timeout := r.cfg.nodeTimeout
	// What a lock asks of a node comes first: it tells who is there at all.
	tried := quorum.Survey(ctx, r.core.nodes, trialCommands*timeout, func(ctx context.Context, n *quorum.Node) (error, error) {
		return r.newTrial().try(ctx, n)
	})
	answers := quorum.Survey(ctx, r.core.nodes, probeCommands*timeout, func(ctx context.Context, n *quorum.Node) (NodeReport, error) {
		report := NodeReport{Err: tried[n.Index].Err, Unheard: tried[n.Index].Value}
		if errors.Is(report.Err, ErrNodeTimeout) {
			return report, report.Err
		}
		report.probe(ctx, n.Pool, r.newTrial())
		return report, nil
	})
	if ctx.Err() != nil {
		text, causes := why(ctx)
		return nil, oneline.Error("redlock: not checked: "+text, causes...)
	}
	report := &Report{Quorum: r.core.quorum}
	for i, a := range answers {
		n := a.Value
		if a.Err != nil {
			n = NodeReport{Err: a.Err}
			n.silent(a.Err)
		}
		n.Node, n.Addr = i, r.core.addr(i)
		report.Nodes = append(report.Nodes, n)
	}
	report.judge(r.newTrial())
	return report, nil
}

// judge fills in the findings. What causes others comes before them.
func (r *Report) judge(m *Mutex) {
	c := m.cfg
	r.judgeNumber()
	r.judgeIdentity()
	r.judgeRole()
	r.judgeReach(m)
	r.judgeAnnouncements(m)
	r.judgeMemory()
	r.judgeRestart(c)
	r.judgeClocks()
	r.judgeVersion(c)
	r.judgeUnknown()
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
}

func (r *Report) find(s Severity, code string, nodes []int, problem, advice string) {
	r.Findings = append(r.Findings, Finding{s, code, nodes, problem, advice})
}

// findSame adds a finding for each group of nodes of which the same is to be said, in node order. No problem leaves a node out.
func (r *Report) findSame(s Severity, code string, say func(n *NodeReport) (problem, advice string)) {
	type words struct{ problem, advice string }
	var order []words
	nodes := map[words][]int{}
	for i := range r.Nodes {
		problem, advice := say(&r.Nodes[i])
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
		r.find(s, code, nodes[w], w.problem, w.advice)
	}
}

// findEach is findSame with one advice, and a problem that is a format for what tell returns; "" leaves a node out.
func (r *Report) findEach(s Severity, code, problem, advice string, tell func(n *NodeReport) string) {
	r.findSame(s, code, func(n *NodeReport) (string, string) {
		text := tell(n)
		if text == "" {
			return "", ""
		}
		return fmt.Sprintf(problem, text), advice
	})
}

func (r *Report) judgeNumber() {
	n := len(r.Nodes)
	switch {
	case n == 1:
		r.find(Warning, "single", nil, "There is only one node: when it is down, nothing can be locked.",
			"Use three or five independent nodes, or a simpler lock on one Redis.")
	case n == 2:
		r.find(Warning, "even", nil, "Of two nodes both are needed: when either is down, nothing can be locked.", "Use three nodes.")
	case n%2 == 0:
		r.find(Warning, "even", nil,
			fmt.Sprintf("%d nodes survive the loss of %d, as %d would, and votes are split more easily.", n, n-r.Quorum, n-1),
			fmt.Sprintf("Use %d nodes or %d.", n-1, n+1))
	}
}

// outvoted is the severity of nodes that take no part in locks: with too many of them, nothing can be locked.
func (r *Report) outvoted(otherwise Severity) Severity {
	out := 0
	for _, n := range r.Nodes {
		if n.Err != nil {
			out++
		}
	}
	if out > len(r.Nodes)-r.Quorum {
		return Critical
	}
	return otherwise
}

func (r *Report) judgeReach(m *Mutex) {
	needed, _ := m.rights()
	for _, t := range append(slices.Clone(troubles), unreachable) {
		r.findSame(r.outvoted(Warning), t.code, func(n *NodeReport) (string, string) {
			if n.Err == nil || n.keptOut() != nil || n.sentinel() || n.replica() || troubleOf(n.Err).code != t.code {
				return "", ""
			}
			advice := t.advice
			if t.code == "noperm" {
				advice = n.allow(needed)
			}
			return t.problem + " (" + sentence(n.Err) + ").", advice
		})
	}
}

func (r *Report) judgeAnnouncements(m *Mutex) {
	_, needed := m.rights()
	r.findSame(Warning, "announcements", func(n *NodeReport) (string, string) {
		if n.Unheard == nil || n.Err != nil && n.keptOut() == nil {
			return "", ""
		}
		advice := "See what keeps Pub/Sub from working there. If it cannot, WithoutAnnouncements saves the attempts."
		if len(n.Denied) > 0 || isDenied(n.Unheard) {
			advice = n.allow(needed)
		}
		return "Does not wake those who wait for a lock when it is released; they wait for their retry delay (" + sentence(n.Unheard) + ").", advice
	})
}

// sentence is the text of an error for the end of a sentence.
func sentence(err error) string { return strings.TrimRight(oneline.Text(err.Error()), ". ") }

// allow is the advice to give the user the rights that are missing: those that were found to be, or all that are needed.
func (n *NodeReport) allow(needed []right) string {
	var missing, all []string
	for _, right := range needed {
		if right.rule == "" {
			continue
		}
		all = append(all, right.rule)
		if slices.Contains(n.Denied, right.rule) {
			missing = append(missing, right.rule)
		}
	}
	if len(missing) == 0 {
		missing = all
	}
	return "Allow it: ACL SETUSER " + cmp.Or(n.user, "<user>") + " " + strings.Join(missing, " ")
}

func (r *Report) judgeIdentity() {
	servers := map[string][]int{}
	for i, n := range r.Nodes {
		servers[n.RunID] = append(servers[n.RunID], i)
	}
	for i, n := range r.Nodes {
		if nodes := servers[n.RunID]; n.RunID != "" && len(nodes) > 1 && nodes[0] == i {
			r.find(Critical, "same-server", nodes,
				fmt.Sprintf("These pools reach one and the same server (run id %.8s…), whose vote counts %d times.", n.RunID, len(nodes)),
				"Give every pool a server of its own, on a machine of its own.")
		}
	}
}

func (r *Report) judgeRole() {
	r.findEach(Critical, "sentinel", "A %s keeps no keys.", "Give the pool the address of a master.",
		func(n *NodeReport) string { return when(n.sentinel(), "Sentinel") })
	r.findEach(Critical, "replica", "A %s refuses writes, or its master overwrites them.",
		"Redlock needs independent masters: make it one (REPLICAOF NO ONE), or use another server.",
		func(n *NodeReport) string { return when(n.replica(), "replica") })
	r.findEach(Warning, "replicas", "A failover to a replica (%s) forgets the locks that it had not received.",
		"Take the replicas away, or make sure that none is promoted sooner than the longest expiry after the end of its master.",
		func(n *NodeReport) string { return when(n.Replicas > 0, fmt.Sprintf("%d connected", n.Replicas)) })
	cluster := Warning
	if slices.ContainsFunc(r.Nodes, func(n NodeReport) bool { return n.Mode == "cluster" && n.Err != nil }) {
		cluster = r.outvoted(Warning) // it is the cause of what judgeReach finds
	}
	r.findEach(cluster, "cluster", "A server in %s mode refuses names in slots that it does not serve, and its failover forgets locks.",
		"Use independent servers, with cluster-enabled no.",
		func(n *NodeReport) string { return when(n.Mode == "cluster", n.Mode) })
}

// when returns text if the condition holds, and otherwise leaves the node out.
func when(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

func (r *Report) judgeMemory() {
	evicts := func(n *NodeReport) bool { return n.knows("memory") && n.Eviction != "noeviction" }
	r.findEach(Critical, "eviction", "When its memory is full, a node drops keys (maxmemory-policy %s), held locks among them.",
		"Set maxmemory-policy noeviction, or use a server that is for locks alone.",
		func(n *NodeReport) string { return when(evicts(n) && n.MaxMemory > 0, n.Eviction) })
	r.findEach(Note, "eviction", "If maxmemory were set, held locks could be dropped (maxmemory-policy %s).",
		"Set maxmemory-policy noeviction before somebody sets maxmemory.",
		func(n *NodeReport) string { return when(evicts(n) && n.MaxMemory == 0, n.Eviction) })
}

func (r *Report) judgeRestart(c *config) {
	if c.guarded {
		r.findEach(r.outvoted(Note), "guard", "Has restarted, and is kept out by the restart guard for another %s.",
			fmt.Sprintf("Wait until it has been up for longer than %v.", c.guard),
			func(n *NodeReport) string {
				if guard := n.keptOut(); guard != nil {
					return guard.Wait.String()
				}
				return ""
			})
		return
	}
	r.findEach(Warning, "restart", "A restart forgets locks (persistence: %s), and one of them could be granted again.",
		"Use WithRestartGuard with the longest expiry in use; or keep a restarted node away for that long; or set appendonly yes and appendfsync always.",
		func(n *NodeReport) string { return when(n.Persistence != "AOF always", n.Persistence) })
}

// clockLimit is a difference between clocks that cannot be overlooked: machines that are kept in time by anything
// are far below it.
const clockLimit = time.Second

func (r *Report) judgeClocks() {
	var known []*NodeReport
	for i := range r.Nodes {
		if r.Nodes[i].knows("clock") {
			known = append(known, &r.Nodes[i])
		}
	}
	if len(known) == 0 {
		return
	}
	slices.SortStableFunc(known, func(a, b *NodeReport) int { return cmp.Compare(a.ClockOffset, b.ClockOffset) })
	// The clock in the middle is right, if any is.
	middle := known[len(known)/2]
	var wrong []int
	var most time.Duration
	for _, n := range known {
		d := (n.ClockOffset - middle.ClockOffset).Abs() - n.ClockError - middle.ClockError
		if d > clockLimit {
			wrong = append(wrong, n.Node)
			most = max(most, d)
		}
	}
	slices.Sort(wrong)
	if len(wrong) > 0 {
		r.find(Warning, "clock", wrong,
			fmt.Sprintf("The clock differs from the others' by %v or more. Locks do not need clocks that agree, but when it is put right by a jump they expire early or late.", most.Round(time.Millisecond)),
			"Let chrony or ntpd keep the time, by slewing.")
	}
	if d := middle.ClockOffset.Abs() - middle.ClockError; d > clockLimit {
		r.find(Warning, "clock", nil,
			fmt.Sprintf("This machine's clock differs from the nodes' by %v or more. If nodes lose their data, fencing tokens rest on the clients' clocks.", d.Round(time.Millisecond)),
			"Let chrony or ntpd keep the time, by slewing.")
	}
}

func (r *Report) judgeVersion(c *config) {
	old := func(major, minor int) func(n *NodeReport) string {
		return func(n *NodeReport) string {
			var a, b int
			if _, err := fmt.Sscanf(n.Server, "Redis %d.%d", &a, &b); err != nil || a > major || a == major && b >= minor {
				return ""
			}
			return n.Server
		}
	}
	if c.guarded {
		// Older servers replicate a script's text, and then refuse writes after INFO.
		r.findEach(Critical, "version", "%s is too old for WithRestartGuard, which needs Redis 5.0.", "Upgrade the server.", old(5, 0))
	}
	r.findEach(Warning, "version", "%s is no longer maintained.", "Upgrade to Redis 7 or Valkey.", old(6, 2))
}

func (r *Report) judgeUnknown() {
	needed := []right{{rule: "+info"}, {rule: "+time"}, {rule: "+config|get"}}
	r.findSame(Note, "unknown", func(n *NodeReport) (string, string) {
		if len(n.Unknown) == 0 || n.Err != nil && n.keptOut() == nil {
			return "", "" // there is a finding of its own
		}
		var what []string
		reasons := map[error]bool{}
		advice := "Look for yourself, or use a client that can ask (pool.Doer)."
		for _, u := range n.Unknown {
			what = append(what, u.What)
			reasons[u.Why] = true
			if isDenied(u.Why) {
				advice = n.allow(needed) + " -- or look for yourself."
			}
		}
		text := strings.Join(what, ", ")
		if len(reasons) == 1 {
			text += " (" + sentence(n.Unknown[0].Why) + ")"
		}
		return "Unknown: " + text + ".", advice
	})
}
