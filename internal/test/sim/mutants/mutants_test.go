// Package mutants plants bugs in redlock, one at a time, and lets the simulation find them. A bug
// names a function, and a text in it that it replaces. It is laid over the sources while a test is
// built; the code that is shipped knows nothing of it.
//
//	go test ./internal/test/sim/mutants -kill -v -timeout 30m          // some minutes
//	go test ./internal/test/sim/mutants -kill -update -timeout 30m     // writes docs/mutants.md
//	go test ./internal/test/sim/mutants -kill -update -only M1,M2      // the rows of these
package mutants

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	kill = flag.Bool("kill", false, "build every mutant and run the simulation against it")
	only = flag.String("only", "", "the names of the mutants that -kill is about, as M1,M2; "+
		"all if empty")
	update = flag.Bool("update", false, "write the result to docs/mutants.md; with -only, "+
		"the rows of these")
)

const root = "../../../.."

// mutant is a bug.
type mutant struct {
	name      string
	bug       string
	edits     []edit
	test      string   // that finds it
	schedules int      // it has for that; 0 if it draws none
	breaks    []string // one of which the test says: invariants, where it draws schedules
}

// edit replaces the one text in a place that reads old.
type edit struct {
	in       place
	old, new string
}

const (
	campaign    = "TestSchedules"
	edge        = "TestSchedulesAtTheEdge"
	outOfModel  = "TestSchedulesOutOfTheModel"
	cancels     = "TestCancelAtEveryEvent"
	adapters    = "TestSchedulesThroughTheAdapters"
	contention  = "TestContentionBesideAHungNode"
	looks       = "TestCancelAtEveryLookAtTheClock"
	hiccup      = "TestAHiccupFailsNobody"
	stall       = "TestAStallLeavesNoKey"
	jobs        = "TestSchedulesOfJobs"
	operations  = "TestOperationsEqualScriptsOnMiniredis"
	order       = "TestNobodyIsOvertaken"
	regressions = "TestRegressions"
	deaths      = "TestTheDeadCostNobodyATurn"
	handOvers   = "TestSchedulesOfHandOvers"
	grants      = "TestSchedulesOfGrantsWhateverTheClocks"
	bids        = "TestSchedulesOfBids"
	liveness    = "TestEverybodyGetsATurn"
	sharing     = "TestSchedulesOfReaders"
	turns       = "TestNoReaderAndNoWriterIsOvertaken"
	deadWriter  = "TestADeadWriterFreesReaders"

	// Of internal/test/behaviour:
	resent  = "TestAFreeLockIsNotTakenBecauseOfAResentSet"
	leading = "TestLeadingDoesNotTrustTimers"
	observe = "TestObserve"
	rests   = "TestRunCampaignsAgain"
	joins   = "TestWithSharedDoJoinsForAMoment"
)

// anyTicket lets a waiter agree with fewer nodes than a quorum, without a panic.
var anyTicket = edit{
	"internal/queue.agreed", "	ticket = tickets[len(said)-q]\n",
	"	if len(tickets) <= len(said)-q {\n		return 1, q\n	}\n	ticket = " +
		"tickets[len(said)-q]\n",
}

var mutants = []mutant{
	{"M1", "validity counted from the end of the attempt", []edit{
		{"internal/lease.Lease.take", "		d.late = l.tooLate()\n",
			"		l.Began = l.lock.now()\n		d.late = l.tooLate()\n"},
		{"internal/lease.acquirer.adopt", "	a.won = l\n",
			"	a.won, l.Until = l, l.deadline()\n"},
	}, campaign, 100, []string{"I2 validity"}},
	{"M2", "no drift", []edit{{
		"internal/wire.Terms.Drift",
		"return clock.Add(clock.Part(t.Expiry, t.DriftFactor), driftFloor)",
		"return 0",
	}}, campaign, 100, []string{"I2 validity"}},
	{"M3", "no drift in an extension", []edit{{
		"internal/lease.Lease.Extend", "until := start.Add(k.Validity())",
		"until := start.Add(k.Expiry)",
	}}, edge, 100, []string{"I2 validity"}},
	{"M4", "an extension counted from its end", []edit{{
		"internal/lease.Lease.Extend", "until := start.Add(k.Validity())",
		"_, until := start, k.now().Add(k.Validity())",
	}}, campaign, 300, []string{"I2 validity", "I6 continuity"}},
	{"M5", "a simulated node deletes a key whose value is not its own", []edit{
		{"internal/test/sim.Node.release", "	if held == 1 || c.member != \"\" && " +
			"n.get(c.key).value == reserved(c.member) {\n", "	if held != 0 {\n"},
		{"internal/test/sim.Node.release", "		if held == 1 {\n" +
			"			return integer(reply), " +
			"Deleted\n", "		if held != 0 {\n			return integer(reply), Deleted\n"},
	}, campaign, 100, []string{"I5 ownership"}},
	{"M6", "half of the nodes are a quorum", []edit{
		{"internal/quorum.Majority", "return n/2 + 1", "return max(n/2, 1)"},
		anyTicket,
	}, campaign, 100, []string{"I15 quorum"}},
	{"M7", "an attempt that failed is not released", []edit{{
		"internal/lease.FailedAttempt.release", "	return l.Release(ctx, s)\n",
		"	s.Skip = func(int) bool { return true }\n	return l.Release(ctx, s)\n",
	}}, campaign, 200, []string{"I8 no leaks"}},
	{"M8", "commands end with the caller's context", []edit{
		{"internal/quorum.detach", "return context.WithoutCancel(ctx)", "return ctx"},
		{"internal/quorum.call.start", "Start(r, ", "Start(r.Context, "},
	}, cancels, 1, []string{"I8 no leaks"}},
	{"M9", "extended though it has ended", []edit{{
		"internal/lease.Standing.past", "!s.Until.IsZero() && left <= 0:",
		"!s.Until.IsZero() && left <= -time.Hour:",
	}}, campaign, 300, []string{"I6 continuity"}},
	{"M10", "what waits for a node is sent after Unlock", []edit{
		{"internal/quorum.Pipeline.begin", "w.over || ", ""},
		{"internal/quorum.Pipeline.submit", "		unsent = p.withdraw(c.write)\n", ""},
	}, campaign, 100, []string{"I11 silence"}},
	{"M11", "renewal goes on after Unlock", []edit{
		{"internal/lease.Lease.Unlock", "	after := l.releasing(EndReleased)\n",
			"	after := Effects{}\n"},
		{"internal/quorum.Pipeline.begin", "w.over || ", ""},
	}, campaign, 100, []string{"I11 silence"}},
	{"M12", "the holder learns of the loss a little late", []edit{
		{"hold.tick", "case clock.Remaining(now, l.Until) <= 0:",
			"case clock.Remaining(now, l.Until) <= -m.cfg.Expiry/20:"},
		{"hold.deadline", "h.l.Until.Add(-h.m.cfg.margin)",
			"h.l.Until.Add(h.m.cfg.Expiry/20 - h.m.cfg.margin)"},
	}, campaign, 300, []string{"I2 validity", "I7 loss signal"}},
	{"M13", "the holder does not learn at once what its own question has proven", []edit{
		{"internal/lease.Lease.confirm", "	after.Run()\n",
			"	time.AfterFunc(l.lock.Expiry/20, after.Run)\n"},
		{"notifier.end", "		l.EndHold(lease.EndReason(reason), cause)", ""},
	}, outOfModel, 200, []string{"I7 loss signal"}},
	{"M14", "one value for all attempts of a mutex", []edit{
		{"internal/lease.Lock.try", "	l := k.open(value)\n",
			"	value = fmt.Sprintf(\"%p\", k)\n	l := k.open(value)\n"},
	}, campaign, 100, []string{"I11 silence", "I14 one value an attempt"}},
	{"M15", "a round waits for all nodes", []edit{{
		"internal/quorum.Round.settle",
		"if r.won() || r.tally.Yes+r.tally.Pending < r.spec.Need {", "if r.tally.Pending == 0 {",
	}}, contention, 0, []string{"is not less than"}},
	{"M16", "an attempt waits for a hung node while others need its votes", []edit{{
		"internal/lease.Lease.attempt", "Spec{Hasty: !how.Final}", "Spec{Hasty: false}",
	}}, contention, 0, []string{"is not less than"}},
	{"M17", "Extend counts the nodes that it is about to heal", []edit{{
		"internal/lease.Lease.confirm", "	if has {\n		return r, nil\n	}\n",
		"	for _, o := range r.Outcomes() {\n		if o.No() {\n			" +
			"has = true\n		}\n	}\n	if has {\n		return r, nil\n	}\n",
	}}, campaign, 500, []string{"I6 continuity"}},
	{"M18", "an error is a vote", []edit{
		{"internal/quorum.Round.settle", "r.tally.Failed++\n	case yes",
			"r.tally.Yes++\n	case yes"},
		anyTicket,
	}, campaign, 100, []string{"I2 validity", "I6 continuity", "I8 no leaks",
		"I15 quorum"}},
	{"M19", "no raise round", []edit{{
		"internal/lease.Lease.fence",
		"if outcomes.Count(agrees) >= quorum.Majority(len(outcomes)) {",
		"if outcomes.Count(agrees) > 0 {",
	}}, grants, 0, []string{"I3 token order"}},
	{"M20", "tokens by INCR alone", []edit{
		{"internal/lease.Lease.fence",
			"if outcomes.Count(agrees) >= quorum.Majority(len(outcomes)) {",
			"if outcomes.Count(agrees) > 0 {"},
		{"internal/wire.Tokens.proposal",
			"return max(t.last.Load()+1, uint64(max(t.Now().UnixMicro(), 1)))",
			"return 1"},
	}, campaign, 300, []string{"I3 token order"}},
	{"M21", "no pipelines: a release overtakes its SET", []edit{{
		"internal/quorum.Pipeline.submit", "	case p.running == nil || ", "	case true || ",
	}}, campaign, 1000, []string{"I8 no leaks", "I11 silence"}},
	{"M22", "the node timeout is left to the client", []edit{{
		"internal/quorum.Round.begin", ", r.expire)\n", ", func() {})\n",
	}}, campaign, 100, []string{"I12 bounded", "I6 continuity"}},
	{"M23", "Unlock takes a missing key for a deleted one", []edit{{
		"internal/lease.Lease.Release", "	return l.WriteSet.Release(ctx, s)\n",
		"	if s.Vote == nil {\n		s.Vote = " +
			"func(_ int, reply quorum.Reply) bool { return reply.Means != quorum.Foreign }\n" +
			"	}\n	return l.WriteSet.Release(ctx, s)\n",
	}}, campaign, 300, []string{"I8 no leaks"}},
	{"M24", "the restart guard is not asked for", []edit{{
		"internal/wire.Lock.acquireBy", "	keys, args :=",
		"	if script != scripts.Heal {\n		guard = 0\n	}\n	keys, args :=",
	}}, campaign, 1000, []string{"I2 quorum", "I1 mutual exclusion", "I3 token order"}},
	{"M25", "Lock does not look at its context while it waits for nodes", []edit{{
		"internal/quorum.Round.Wait", "for !r.decided && ctx.Err() == nil {", "for !r.decided {",
	}}, cancels, 1, []string{"I17 promptness"}},
	{"M26", "a key of its own is taken for somebody else's", []edit{{
		"internal/lease.FailedAttempt.settle", "d.own = d.refusedItself(ctx)",
		"d.own = d.refusedItself(ctx) && false",
	}}, resent, 0, []string{`not acquired: taken on`}},
	{"M27", "the Lua of release deletes a key whose value is not its own", []edit{{
		"internal/scripts/release.lua", "local mine = v == ARGV[1]\n", "local mine = v\n",
	}}, operations, 0, []string{"release ["}},
	{"M28", "the Lua of extend asks only whether there is a key", []edit{{
		"internal/scripts/extend.lua", "if v == ARGV[1] then\n", "if v then\n",
	}}, operations, 0, []string{"extend ["}},
	{"M29", "the Lua of acquire writes tokens with 14 digits", []edit{{
		"internal/scripts/acquire.lua", "token = string.format('%.0f'",
		"token = string.format('%.14g'",
	}}, operations, 0, []string{"acquire [", "claim [", "heal [", "share ["}},
	{"M30", "a node that cannot be reached has granted the lock, through the adapters", []edit{
		{"internal/quorum.Round.settle", "r.tally.Failed++\n	case yes",
			"r.tally.Yes++\n	case yes"},
		anyTicket,
	}, adapters, 20, []string{"I15 quorum"}},
	{"M31", "Lock gives up a lock that it was granted while its context ended, and leaves it",
		[]edit{{
			"internal/lease.acquirer.attempt", "	if d == nil {\n",
			"	if d == nil && a.ctx.Err() != nil {\n" +
				"		return nil, Interrupted(a.ctx, nil)\n	}\n" +
				"	if d == nil {\n",
		}}, looks, 0, []string{`expected: []string{"", "", ""}`}},
	{"M32", "a release that a node has not answered is forgotten", []edit{{
		"internal/quorum.Pipeline.released", "			retries.failed(c.pending(), c)\n", "",
	}}, stall, 0, []string{"Should be empty"}},
	{"M33", "a command fails at once if the node is silent and others wait on it", []edit{{
		"internal/quorum.Pipeline.begin",
		"	case !p.node.breaker.pass(c):\n		return nil\n",
		"	case !p.node.breaker.pass(c):\n		p.node.breaker.drop(c)\n" +
			"		c.unsent = p.node.unresponsive(r.spec.Budget)\n",
	}}, hiccup, 0, []string{"TryLocks of"}},
	{"M46", "the end of a Lock that its context ended is not told", []edit{{
		"Mutex.acquire", "	defer func() { m.tell",
		"	defer func() {\n		if ctx.Err() != nil {\n			return\n		}\n" +
			"		m.tell",
	}}, campaign, 100, []string{"I18 events"}},
	{"M47", "a lock that was lost ends again when it is unlocked", []edit{{
		"internal/lease.Lease.Change", "	if !from.relied() || to.relied() {\n",
		"	if !from.relied() && from != StateLost || to.relied() {\n",
	}}, campaign, 100, []string{"I18 events"}},
	{"M34", "Unlock within the minimum hold deletes the key", []edit{{
		"internal/lease.Lease.linger", "return l.lock.Linger(l.Value, left).Command",
		"return c.Command",
	}}, jobs, 10, []string{"I19 one run"}},
	{"M35", "Leading does not look at the clock", []edit{{
		"hold.isOver", "clock.Remaining(now, h.deadline()) <= 0",
		"clock.Remaining(now, h.deadline()) <= -time.Hour",
	}}, leading, 0, []string{"Should be false"}},
	{"M36", "Observe does not tell that nobody leads", []edit{{
		"sight.update", "value != s.value ||", "value != s.value && value != \"\" ||",
	}}, observe, 0, []string{"Not equal"}},
	{"M37", "Run campaigns again at once", []edit{{
		"Election.Run", "		e.m.core.Pause(ctx, max(e.m.cfg.Delay(1), 0))\n", "",
	}}, rests, 0, []string{"a rest"}},
	{"M38", "no refusal at the node: a release frees the key although others queue", []edit{{
		"internal/test/sim.Node.handOn", "	n.put(c.key, reserved(first), c.window)\n",
		"	delete(n.keys, c.key)\n",
	}}, order, 100, []string{"I20 order"}},
	{"M39", "the tickets of a node exceed only those in its queue", []edit{{
		"internal/test/sim.Node.stand",
		"	last, _ := strconv.ParseInt(n.get(c.fence).value, 10, 64)\n",
		"	last := int64(0)\n	if q := n.waiting(c.queue); q != nil {\n		last = " +
			"q.all[len(q.all)-1].ticket\n	}\n",
	}}, order, 1000, []string{"I20 order"}},
	{"M40", "a waiter takes the least ticket that a node gave it", []edit{{
		"internal/queue.agreed", "	ticket = tickets[len(said)-q]\n", "	ticket = tickets[0]\n",
	}}, order, 1000, []string{"I20 order"}},
	{"M41", "a waiter that asks again goes to the end of the queue", []edit{{
		"internal/wire.Lock.Stand", "	if member.Agreed {\n		args[3] = 1\n",
		"	if false {\n		args[3] = 1\n",
	}}, order, 1000, []string{"I20 order"}},
	{"M42", "what is given back goes to those only who listen", []edit{{
		"internal/test/sim.Node.handOn", " || c.stands() && n.get(c.key).value == " +
			"reserved(c.member) {", " {",
	}}, regressions, 0, []string{"I9 liveness"}},
	{"M43", "a dead waiter never leaves: it is waited for like the living", []edit{{
		"internal/test/sim.Node.handOn",
		"heard = n.publish(to[:channelLength], to[channelLength:]) > 0",
		"heard = n.publish(to[:channelLength], to[channelLength:]) >= 0",
	}}, deaths, 0, []string{"is not less than"}},
	{"M44", "node-local order: each node keeps the ticket that it gave", []edit{
		{"internal/wire.Lock.Stand", "	if member.Agreed {\n		args[3] = 1\n",
			"	if false {\n		args[3] = 1\n"},
		{"internal/test/sim.Node.stand",
			"	if !c.final {\n		ticket = max(ticket, last+1)\n",
			"	if !c.final {\n		ticket = max(ticket, last+1)\n		if q := " +
				"n.waiting(c.queue); q != nil {\n			for _, s := range q.all {\n" +
				"				if s.member == c.member {\n" +
				"					ticket = s.ticket\n" +
				"				}\n			}\n		}\n"},
	}, order, 100, []string{"I9 liveness"}},
	{"M45", "a lost message is never made good: a waiter asks only when it is told", []edit{{
		"internal/queue.queuedWait.pause", "	return s.await(next, known)\n",
		"	return s.await(time.Hour, known)\n",
	}}, order, 100, []string{"I9 liveness"}},
	{"M52", "a key that is reserved counts as a bid that was taken up", []edit{{
		"internal/queue.listener.hear", "case said == n.number:",
		"case said == n.number && n.bidding == nil:",
	}, {
		"internal/queue.listener.hear", "case said == n.bidding[node]:",
		"case said == n.number || said == n.bidding[node]:",
	}}, bids, 100, []string{"I15 quorum"}},
	{"M53", "a waiter asks for its place again without taking its bid back", []edit{{
		"internal/queue.queuedWait.wait",
		"		s.withdraw(true)\n		next,", "		next,",
	}}, liveness, 400, []string{"I9 liveness"}},
	{"M54", "a bid is forgotten, and not taken back", []edit{{
		"internal/lease.acquirer.Withdraw", "		a.bid.withdraw(a.ctx, stays)\n", "",
	}}, bids, 400, []string{"I8 no leaks", "I11 silence"}},
	{"M55", "the validity of a bid counts from when it was taken up", []edit{{
		"internal/lease.acquirer.Claim", "	a.adopt(bid)\n",
		"	bid.Until = bid.deadline()\n	a.adopt(bid)\n",
	}}, bids, 100, []string{"I2 validity"}},
	{"M56", "the Lua of release takes up the bid of somebody else", []edit{{
		"internal/scripts/handon.lua", "sold = to == who and",
		"sold = who and to ~= member and",
	}}, operations, 0, []string{"release ["}},
	{"M57", "two locks share the keys of their queues", []edit{{
		"internal/wire.beside", "		return key + tagged + name\n",
		"		return key + plain + name\n",
	}}, bids, 100, []string{"I22 one lock"}},
	{"M58", "a simulated node takes up a bid for another lock", []edit{{
		"internal/test/sim.Node.bidding",
		"	text, ok := strings.CutPrefix(bids, bidStart(c))\n",
		"	length, text, ok := strings.Cut(bids, \" \")\n" +
			"	if end, _ := strconv.Atoi(length); ok {\n		text = text[end+1:]\n	}\n",
	}}, bids, 100, []string{"I22 one lock"}},
	{"M59", "what a node says of a bid counts whichever lock it says it of", []edit{{
		"internal/queue.listener.hear", "	n := l.notes[said]\n",
		"	n := l.notes[said]\n	if at := strings.LastIndexByte(said, ' '); at >= 0 {\n" +
			"		for bid, other := range l.notes {\n" +
			"			if strings.HasSuffix(bid, said[at:]) {\n" +
			"				said, n = bid, other\n			}\n		}\n	}\n",
	}}, bids, 100, []string{"I15 quorum"}},
	{"M60", "a simulated node keeps the place of a waiter that releases the lock", []edit{{
		"internal/test/sim.Node.release", "	if c.member != \"\" && c.ticket == 0 {\n",
		"	if c.member != \"\" && c.ticket == 0 && held != 1 {\n",
	}}, bids, 400, []string{"I8 no leaks"}},
	{"M48", "a simulated node hands over a key that is somebody else's", []edit{{
		"internal/test/sim.Node.execute", "		c.free = n.get(c.key).value == c.old\n",
		"		c.free = n.get(c.key).value != \"\"\n",
	}}, handOvers, 150, []string{"I5 ownership"}},
	{"M49", "Handoff goes on with the renewals", []edit{{
		"internal/lease.Lease.HandOff",
		"	after := l.releasing(EndHandedOff)\n	l.endUnlock(false)\n",
		"	after := Effects{}\n",
	}}, handOvers, 150, []string{"I21 succession", "I11 silence"}},
	{"M50", "Adopt counts the nodes that have lost the lock", []edit{{
		"internal/lease.Lock.Adopt", "quorum.Spec{Command: k.Swap(l.Value, oldValue)}",
		"quorum.Spec{Command: k.Swap(l.Value, oldValue),\n" +
			"		Vote: func(int, quorum.Reply) bool { return true }}",
	}}, handOvers, 150, []string{"I15 quorum"}},
	{"M51", "the Lua of swap asks only whether there is a key", []edit{{
		"internal/scripts/swap.lua", "ARGV.free = v == old\n", "ARGV.free = v\n",
	}}, operations, 0, []string{"swap ["}},
	{"M61", "a simulated node lets a reader in beside a writer", []edit{{
		"internal/test/sim.Node.share", "	if exists && !reads && held.value",
		"	if exists && !reads && c.member != \"\" && held.value",
	}}, sharing, 100, []string{"I5 ownership", "I1 mutual exclusion"}},
	{"M62", "the Lua of share keeps the seats of readers who had the key before", []edit{{
		"internal/scripts/share.lua", "	call('DEL', seats)\n", "	call('EXISTS', seats)\n",
	}}, operations, 0, []string{":seats after share [", "after share ["}},
	{"M63", "a simulated node ends a reader's seat without asking whether readers have the key",
		[]edit{
			{"internal/test/sim.Node.unshare", "	reads := n.reads(c)\n	mine := reads &&",
				"	reads := n.get(c.key).value != \"\"\n	mine := reads &&"},
			{"internal/test/sim.Node.unshare", "last.value = wire.Marker",
				"last.value = n.get(c.key).value"},
			{"internal/test/sim.Node.unshare", "	if reads && !mine {\n",
				"	if false && !mine {\n"},
		}, sharing, 100, []string{"I5 ownership"}},
	{"M64", "a simulated node ends the seats of all with that of one", []edit{{
		"internal/test/sim.Node.unshare", "	if reads && n.keepSeats(c) {\n",
		"	if reads && n.keepSeats(c) && !mine {\n",
	}}, sharing, 100, []string{"I1 mutual exclusion", "I2 quorum", "I7 loss signal",
		"I12 bounded"}},
	{"M65", "a simulated node lets the key of readers end with the first of them", []edit{{
		"internal/test/sim.Node.keepSeats",
		"	q.expires = time.Duration(q.all[len(q.all)-1].ticket)",
		"	q.expires = time.Duration(q.all[0].ticket)",
	}}, sharing, 100, []string{"I23 seats"}},
	{"M66", "a simulated node extends a seat that has ended", []edit{{
		"internal/test/sim.Node.seat", " || !n.sits(c, c.value) {", " {",
	}}, sharing, 200, []string{"I5 ownership"}},
	{"M67", "the Lua of share takes another reader's marker for a grant", []edit{{
		"internal/scripts/share.lua", "if KEYS[2] and (c ==", "if false and (c ==",
	}}, operations, 0, []string{"share ["}},
	{"M68", "a reader that comes passes a writer that waits", []edit{{
		"internal/test/sim.Node.share", "		if n.waiting(c.queue) != nil {\n",
		"		if false {\n",
	}}, turns, 100, []string{"I20 order"}},
	{"M69", "readers in the queue pass a writer that waits", []edit{{
		"internal/test/sim.Node.admit", "		to := q.all[0].member\n",
		"		to := q.all[0].member\n		for _, s := range q.all {\n			" +
			"if strings.HasSuffix(s.member, wire.Shares) {\n				to = s.member\n" +
			"			}\n		}\n",
	}}, turns, 100, []string{"I20 order"}},
	{"M70", "the Lua of lift takes the marker for that of any reader", []edit{{
		"internal/scripts/lift.lua", " and sits(ARGV[1]) then", " then",
	}}, operations, 0, []string{"lift ["}},
	{"M71", "a waiting writer whose machine is gone keeps readers out for ever", []edit{{
		"internal/test/sim.Node.callWriters", "		case due <= now:\n",
		"		case due <= now-1000:\n",
	}}, deadWriter, 0, []string{"not less than or equal", "not acquired"}},
	{"M72", "a reader extends whatever the nodes say of its seat", []edit{{
		"internal/wire.Lock.held", "		script, keys = scripts.Seat, l.seated(keys)\n",
		"		script, keys, args = scripts.Seat, l.seated(keys), args[:1]\n",
	}}, sharing, 100, []string{"I6 continuity", "I2 validity", "I2 quorum"}},
	{"M73", "readers of a process join a lock however long ago it was granted", []edit{{
		"reads.join", "(time.Since(rd.since) > joinable || rd.hold.isOver())",
		"rd.hold.isOver()",
	}}, joins, 0, []string{"Received unexpected error", "not less than or equal"}},
}

// overlay writes the mutated files to dir and returns the name of the overlay.
func (m mutant) overlay(t *testing.T, dir string) string {
	replace := make(map[string]string)
	for i, e := range m.edits {
		path, err := filepath.Abs(e.in.file(t))
		require.NoError(t, err)
		from := path
		if replace[path] != "" {
			from = replace[path]
		}
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		start, end, ok := e.in.within(t, string(text))
		require.True(t, ok, "%s: %s", m.name, e.in)
		part := string(text[start:end])
		require.Equal(t, 1, strings.Count(part, e.old), "%s: %s must contain once:\n%s",
			m.name, e.in, e.old)
		replace[path] = filepath.Join(dir, fmt.Sprintf("%s-%d%s", m.name, i, filepath.Ext(path)))
		edited := string(text[:start]) + strings.Replace(part, e.old, e.new, 1) + string(text[end:])
		require.NoError(t, os.WriteFile(replace[path], []byte(edited), 0o600))
	}
	name := filepath.Join(dir, m.name+".json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, text, 0o600))
	return name
}

// Every planted bug still fits the code.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) { m.overlay(t, t.TempDir()) })
	}
}

var (
	schedulesRun = regexp.MustCompile(`(\d+) schedules in`)
	broken       = regexp.MustCompile(`(?m)^\s+(I\d+ [a-z ]+):`)
	invariant    = regexp.MustCompile(`^I\d+ `)
)

// simulate runs one test of the simulation, over an overlay if there is one, and returns what it
// printed and whether it passed.
func simulate(overlay, test string, schedules int) (text string, passed bool) {
	pkg := "./internal/test/sim"
	if slices.Contains([]string{resent, leading, observe, rests, joins}, test) {
		pkg = "./internal/test/behaviour"
	}
	args := []string{"test", "-vet=off", "-count=1", "-timeout=10m", "-ldflags=-s -w", "-overlay",
		overlay, pkg, "-run", "^" + test + "$", "-v"}
	if schedules > 0 {
		args = append(args, fmt.Sprintf("-schedules=%d", schedules), "-shrink=false")
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	text = string(out)
	return text, err == nil && strings.Contains(text, "--- PASS: "+test+" ")
}

// found returns which of what the mutant must break the failed test has named, or "".
func (m mutant) found(text string) string {
	if m.schedules > 0 {
		// The test may have failed for another reason as well, or instead: because a state has
		// not been reached, for instance.
		_, list, _ := strings.Cut(text, "violations in")
		for _, f := range broken.FindAllStringSubmatch(list, -1) {
			if slices.Contains(m.breaks, f[1]) {
				return f[1]
			}
		}
		return ""
	}
	if !strings.Contains(text, "--- FAIL: "+m.test) {
		return ""
	}
	for _, what := range m.breaks {
		switch {
		case !strings.Contains(text, what):
		case invariant.MatchString(what):
			return what
		default:
			return "bounds"
		}
	}
	return ""
}

// Every planted bug is found, by what it breaks; and where none is planted, none is found.
func TestMutantsDie(t *testing.T) {
	if !*kill {
		t.Skip("needs -kill; it takes some minutes")
	}
	rows := make(map[string]string) // by the names of mutants
	selected := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool {
		return *only != "" && !slices.Contains(strings.Split(*only, ","), m.name)
	})
	require.NotEmpty(t, selected)
	longest := make(map[string]int)
	for _, m := range mutants {
		longest[m.test] = max(longest[m.test], m.schedules)
	}
	for _, test := range slices.Sorted(maps.Keys(longest)) {
		if !slices.ContainsFunc(selected, func(m mutant) bool { return m.test == test }) {
			continue
		}
		begun := time.Now()
		text, passed := simulate("", test, longest[test])
		if !passed {
			t.Errorf("%s fails without a planted bug:\n%s", test, text)
		}
		t.Logf("%s, no bug, %d schedules, %.1f s", test, longest[test], time.Since(begun).Seconds())
	}
	for _, m := range selected {
		t.Run(m.name, func(t *testing.T) {
			begun := time.Now()
			text, _ := simulate(m.overlay(t, t.TempDir()), m.test, m.schedules)
			what, by, after := m.found(text), "`"+m.test+"`", "–"
			if f := schedulesRun.FindStringSubmatch(text); f != nil && m.schedules > 0 {
				after = f[1]
			}
			switch {
			case strings.Contains(text, "[build failed]"):
				t.Errorf("%s does not compile:\n%s", m.name, text)
			case what == "":
				t.Errorf("%s survives: %s; %s does not say any of %q\n%s", m.name, m.bug, m.test,
					m.breaks, text)
			}
			what, _, _ = strings.Cut(what, " ") // the number of the invariant
			rows[m.name] = fmt.Sprintf("- %s: %s (%s, %s)", m.name, m.bug, by, what)
			t.Logf("%s after %s of %d schedules, %.1f s", rows[m.name], after, m.schedules,
				time.Since(begun).Seconds())
		})
	}
	if *update {
		require.False(t, t.Failed(), "docs/mutants.md stays as it is")
		write(t, rows)
	}
}

// write writes docs/mutants.md, with the rows of all mutants. Those that are not new stay as they
// are.
func write(t *testing.T, rows map[string]string) {
	const page = root + "/docs/mutants.md"
	old, err := os.ReadFile(page)
	require.NoError(t, err)
	was := make(map[string]string)
	for line := range strings.Lines(string(old)) {
		if name, _, found := strings.Cut(line, ": "); found {
			was[strings.TrimPrefix(name, "- ")] = strings.TrimSuffix(line, "\n")
		}
	}
	text := head
	for _, m := range mutants {
		row := rows[m.name]
		if row == "" {
			row = was[m.name]
		}
		require.NotEmpty(t, row, "%s has no row yet", m.name)
		text += row + "\n"
	}
	require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
}

const head = `# Planted bugs

` + "`go test ./internal/test/sim/mutants -kill -update -timeout 30m`" + ` writes this page. Each
bug replaces a part of the sources while the simulation is built. The test in parentheses must find
it, within the number of schedules that mutants_test.go gives it, by what the bug breaks: an
[invariant](testing.md#what-is-checked), or bounds of its own. The same tests run for as long over
the unchanged code, and find nothing.

M5, M48, M58, M60 and some of M61 to M71 are bugs of the simulation's nodes: they show that it
checks their log. Bugs "of the Lua" are found by running the scripts beside the simulated nodes.

`
