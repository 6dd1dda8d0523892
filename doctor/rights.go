package doctor

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// right is something that an ACL has to allow for locks.
type right struct {
	rule string // in the words of ACL SETUSER: "+get"; "" if the right is there only to be tried
	try  []any  // a command that does no harm, and is denied without the right; nil: there is none
	on   string // the rule for the key or channel in that command
}

// noScript is the ID of a script that no node knows, for EVALSHA.
var noScript = strings.Repeat("0", 40)

// lockRights are the rights that locks need. The page docs/rights.md has them as a table.
func (p *plan) lockRights() []right {
	key, keys := p.key.example, p.key.pattern("~")
	rights := []right{
		{"+set", []any{"SET", key, "v", "XX", "PX", 1}, keys}, // XX: it is not there
		{"+get", []any{"GET", key}, keys},
		{"+mget", []any{"MGET", key}, keys},
		{"+del", []any{"DEL", key}, keys},
		{"+pexpire", []any{"PEXPIRE", key, 1}, keys},
		{"+pttl", []any{"PTTL", key}, keys},
		{"+eval", []any{"EVAL", "return 0", 0}, ""},
		{"+evalsha", []any{"EVALSHA", noScript, 1, key, ""}, keys},
		{keys, nil, ""},
	}
	if p.counter != (name{}) {
		counters := p.counter.pattern("~")
		rights = append(rights,
			right{"", []any{"GET", p.counter.example}, counters},
			right{counters, nil, ""})
	}
	rights = append(rights, p.sharedRights()...)
	if p.Terms.Guard > 0 {
		rights = append(rights, right{"+info", []any{"INFO", "server"}, ""})
	}
	return rights
}

// sharedRights are the rights that readers need, beyond those of other locks.
func (p *plan) sharedRights() []right {
	if !p.Terms.Shared {
		return nil
	}
	key, keys := p.key.example, p.key.pattern("~")
	return []right{
		{"+pexpireat", []any{"PEXPIREAT", key, 1}, keys},
		{"+exists", []any{"EXISTS", key}, keys},
		{"+time", []any{"TIME"}, ""},
		{"+zadd", []any{"ZADD", key, "XX", 1, "v"}, keys},
		{"+zrange", []any{"ZRANGE", key, 0, 0}, keys},
		{"+zrem", []any{"ZREM", key, "v"}, keys},
		{"+zremrangebyscore", []any{"ZREMRANGEBYSCORE", key, 1, 1}, keys},
		{"+zrevrange", []any{"ZREVRANGE", key, 0, 0}, keys},
		{"+zscore", []any{"ZSCORE", key, "v"}, keys},
	}
}

// electionRights are the rights that elections need, beyond those of locks with shared counters.
func (p *plan) electionRights() []right {
	if p.term == (name{}) {
		return nil
	}
	counters := p.term.pattern("~")
	return []right{{"", []any{"GET", p.term.example}, counters}, {counters, nil, ""}}
}

// announcementRights are the rights that waiting in the queue needs, beyond those of locks.
func (p *plan) announcementRights() []right {
	if p.channel == (name{}) {
		return nil
	}
	key, keys, channels := p.key.example, p.key.pattern("~"), p.channel.pattern("&")
	return []right{
		{"+publish", []any{"PUBLISH", p.channel.example, ""}, channels},
		{"+subscribe", nil, channels},
		{"+unsubscribe", nil, channels},
		{"+ping", []any{"PING"}, ""},
		{"+zadd", []any{"ZADD", key, "XX", 1, "v"}, keys},
		{"+zpopmin", []any{"ZPOPMIN", key}, keys},
		{"+zrank", []any{"ZRANK", key, "v"}, keys},
		{"+zrem", []any{"ZREM", key, "v"}, keys},
		{"+exists", []any{"EXISTS", key}, keys},
		{"+zrangebyscore", []any{"ZRANGEBYSCORE", key, 1, 1}, keys},
		{"+time", []any{"TIME"}, ""},
		{channels, nil, ""},
	}
}

// joinRights are those without which many releases do not go together.
func (p *plan) joinRights() []right {
	return slices.DeleteFunc(append(p.lockRights(), p.announcementRights()...),
		func(r right) bool { return r.rule != "+mget" && r.rule != "+exists" })
}

// reportRights are the rights that a report without gaps needs.
var reportRights = []right{{rule: "+info"}, {rule: "+time"}, {rule: "+config|get"}}

// pattern is the rule that allows all such names.
func (n name) pattern(kind string) string { return kind + escape.Replace(n.start) + "*" }

// escape escapes what has a meaning in the patterns of an ACL.
var escape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// readRights finds out what an ACL denies.
func (q *inquiry) readRights() {
	n := &q.report
	d := denials{end: time.Now().Add(q.plan.Terms.NodeTimeout), do: q.do}
	lock, announcements := q.plan.lockRights(), q.plan.announcementRights()
	// The trial says nothing of some rights. It needs EVAL only where the node does not know a
	// script, PING only if nothing happens for seconds, some only beside other readers, and others
	// only to release many locks.
	err := d.try(append(q.plan.sharedRights(), rightOf(lock, "+eval"))...)
	if err != nil && (n.Err == nil || n.Guarded > 0) {
		n.Err, n.Guarded = err, 0
	}
	if isDenied(n.Err) {
		d.try(lock...)
	}
	d.try(q.plan.joinRights()...)
	d.try(q.plan.electionRights()...)
	if len(announcements) > 0 {
		if !errors.Is(n.Unheard, errUnqueued) {
			d.note(n.Unheard, rightOf(announcements, "+subscribe"))
		}
		// Nor does it say anything of a holder that dies while others queue.
		for _, rule := range []string{"+ping", "+zrangebyscore", "+time"} {
			if err := d.try(rightOf(announcements, rule)); err != nil && n.Unheard == nil {
				n.Unheard = err
			}
		}
		if n.Unheard == errUnheard || isDenied(n.Unheard) {
			d.try(announcements...)
		}
	}
	for _, u := range n.Unknown {
		if command, _, _ := strings.Cut(u.Why.Error(), ":"); isDenied(u.Why) {
			d.add(map[string]string{
				"INFO": "+info", "TIME": "+time", "CONFIG": "+config|get",
			}[command])
		}
	}
	n.Denied = d.rules
	if len(d.rules) > 0 {
		reply, err := q.do("ACL", "WHOAMI")
		if n.User, _ = reply.(string); err != nil {
			n.User = userOf(err)
		}
	}
}

// denials lists the rules that a user lacks, without repetition.
type denials struct {
	rules []string
	do    func(args ...any) (any, error)
	end   time.Time // no command begins later
}

// try tries rights, and returns the last denial.
func (d *denials) try(rights ...right) (why error) {
	for _, r := range rights {
		if r.try == nil || time.Now().After(d.end) {
			continue
		}
		if _, err := d.do(r.try...); isDenied(err) {
			d.note(err, r)
			why = err
		}
	}
	return why
}

// note adds the rule that a denial speaks of: for the key, the channel or the command.
func (d *denials) note(err error, r right) {
	if !isDenied(err) {
		return
	}
	for _, object := range []string{" a key", " the keys", " a channel", " the channels"} {
		if strings.Contains(err.Error(), object) {
			d.add(r.on)
			return
		}
	}
	d.add(r.rule)
}

func (d *denials) add(rule string) {
	if rule != "" && !slices.Contains(d.rules, rule) {
		d.rules = append(d.rules, rule)
	}
}

// rightOf returns the one of the rights with that rule.
func rightOf(rights []right, rule string) right {
	return rights[slices.IndexFunc(rights, func(r right) bool { return r.rule == rule })]
}

// userOf finds the user in a denial, if that names one.
func userOf(err error) string {
	_, rest, _ := strings.Cut(err.Error(), "User ")
	user, _, ok := strings.Cut(rest, " has no permissions")
	if !ok || strings.Contains(user, " ") {
		return ""
	}
	return user
}

// everyKey is the rule for the keys of locks whose names have no prefix.
const everyKey = "~*"

// allow is the advice to grant the rights that were found to be missing, or all that are needed.
func allow(n *NodeReport, needed []right) string {
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
	how := "Allow it: "
	if slices.Contains(missing, everyKey) {
		how = "If the locks have a key prefix, check with that (WithKeyPrefix, or -prefix). " +
			"Otherwise allow it: "
	}
	return how + "ACL SETUSER " + cmp.Or(n.User, "<user>") + " " + strings.Join(missing, " ")
}
