package redlock

import (
	"slices"
	"strings"
)

// trouble is a way in which a node takes no part in locks, known by the words of the server or the client.
type trouble struct {
	code            string
	said            []string // one of these words is in the error's text
	problem, advice string
}

// troubles are looked through in this order: what is more exact comes first.
var troubles = []trouble{
	{"noperm", []string{"NOPERM", "can't run this command or subcommand", "ACL failure in script"}, "Lacks rights that a lock needs", ""},
	{"noauth", []string{"NOAUTH"}, "Asks for a password", "Give the client the password, and the user if it is not the default one."},
	{"wrongpass", []string{"WRONGPASS", "invalid password", "invalid username-password"}, "Does not accept the user or the password",
		"Give the client the user and the password that the server knows: ACL LIST on the server shows the users."},
	{"crossslot", []string{"CROSSSLOT"}, "Is part of a cluster, where a lock cannot use a counter that names share",
		"Use WithFencePerName in all users of a name, or independent servers, with cluster-enabled no."},
	{"moved", []string{"MOVED", "ASK"}, "Is part of a cluster, and sends the client to another server",
		"Use independent servers, with cluster-enabled no."},
	{"clusterdown", []string{"CLUSTERDOWN"}, "Is part of a cluster that does not serve all slots", "Use independent servers, with cluster-enabled no."},
	{"loading", []string{"LOADING"}, "Is loading its data after a start", "Wait until it has. A server that is for locks alone has little to load."},
	{"readonly", []string{"READONLY", "MASTERDOWN"}, "Is a replica and refuses writes",
		"Redlock needs independent masters: make it one (REPLICAOF NO ONE), or use another server."},
	{"oom", []string{"OOM"}, "Is out of memory", "Raise maxmemory or delete data; or use a server that is for locks alone."},
	{"misconf", []string{"MISCONF"}, "Refuses writes because it cannot store its data",
		"Look into its log: the disk may be full, or dir may not be writable."},
	{"noreplicas", []string{"NOREPLICAS"}, "Refuses writes because too few replicas are connected", "Set min-replicas-to-write 0: locks need no replicas."},
	{"busy", []string{"BUSY"}, "Is busy with somebody's script", "End that with SCRIPT KILL, and keep long scripts away from the servers for locks."},
	{"maxclients", []string{"max number of clients"}, "Has as many clients as it may", "Raise maxclients, or look for clients that do not close their connections."},
	{"tls", []string{"tls", "x509", "certificate"}, "Does not agree with the client about TLS",
		"A TLS port needs a client with a TLS configuration, another port one without. The certificate must be valid now, for this name, and from an authority that the client trusts."},
	{"name", []string{"no such host", "server misbehaving", "Temporary failure in name resolution"}, "Has a name that cannot be resolved",
		"Correct the address, or the name service."},
	{"refused", []string{"connection refused", "actively refused"}, "Refuses the connection", "Start the server, or correct the address: nothing listens there."},
	{"timeout", []string{"no answer within", "answered nothing", "i/o timeout", "deadline exceeded", "timed out"}, "Does not answer in time",
		"See whether the server is up, frozen or overloaded, and whether a firewall drops what is sent to it, or the client speaks TLS to a port without. If it is only far away, raise WithNodeTimeout."},
	{"closed", []string{"EOF", "connection reset", "broken pipe"}, "Closes the connection",
		"See whether this is a TLS port, a proxy without a server behind it, or a server with too many clients; its log may tell."},
}

// unreachable is the trouble that is none of the others.
var unreachable = trouble{"unreachable", nil, "Cannot take part in a lock", "Fix what it says, and see its log."}

// troubleOf tells which trouble an error speaks of.
func troubleOf(err error) trouble {
	text := err.Error()
	for _, t := range troubles {
		if slices.ContainsFunc(t.said, func(word string) bool { return hasWord(text, word) }) {
			return t
		}
	}
	return unreachable
}

// hasWord reports whether a text contains a word that is not the end or the beginning of another.
func hasWord(text, word string) bool {
	letter := func(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		begin, end := from+i, from+i+len(word)
		if (begin == 0 || !letter(text[begin-1])) && (end == len(text) || !letter(text[end])) {
			return true
		}
		from = end
	}
}

// isDenied reports whether an ACL forbids what was asked.
func isDenied(err error) bool { return err != nil && troubleOf(err).code == "noperm" }

// right is something that an ACL has to allow for locks with some options.
type right struct {
	rule string // in the words of ACL SETUSER: "+get"; "" for one that is there only for what it tries
	try  []any  // a command that does no harm, and is denied without the right; nil if there is none
	on   string // the rule for the key or channel in that command
}

// rights are those that locks with the options need, and their announcements. The commands to try are about m's keys. The page
// docs/rights.md has them as a table.
func (m *Mutex) rights() (lock, announcements []right) {
	c := m.cfg
	keys := "~" + glob(c.prefix) + "*"
	lock = []right{
		{"+set", []any{"SET", m.key, "v", "XX", "PX", 1}, keys}, // XX: it is not there
		{"+get", []any{"GET", m.key}, keys},
		{"+del", []any{"DEL", m.key}, keys},
		{"+pexpire", []any{"PEXPIRE", m.key, 1}, keys},
		{"+pttl", []any{"PTTL", m.key}, keys},
		{"+eval", []any{"EVAL", "return 0", 0}, ""},
		{"+evalsha", []any{"EVALSHA", validScript.ID, 1, m.key, ""}, keys},
		{keys, nil, ""},
	}
	if c.fencing {
		counters := "~" + sharedCounters + "*"
		if c.fencePerName {
			counters = "~" + relatives(c.prefix)
		}
		lock = append(lock, right{"", []any{"GET", m.keys[1]}, counters}, right{counters, nil, ""})
	}
	if c.guarded {
		lock = append(lock, right{"+info", []any{"INFO", "server"}, ""})
	}
	if c.announce {
		channels := "&" + relatives(c.prefix)
		announcements = []right{
			{"+publish", []any{"PUBLISH", m.channel, ""}, channels},
			{"+subscribe", nil, channels},
			{"+unsubscribe", nil, channels},
			{"+ping", []any{"PING"}, ""},
			{channels, nil, ""},
		}
	}
	return lock, announcements
}

// relatives is the pattern of the names that related makes of keys with the prefix, unless only the rest of a key has a brace.
func relatives(prefix string) string {
	switch {
	case prefix == "":
		return "*"
	case strings.Contains(prefix, "}"):
		return glob(prefix) + "*"
	}
	return "{" + glob(prefix) + "*"
}

// glob escapes what has a meaning in the patterns of an ACL.
func glob(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(prefix)
}

// denials lists the rules that a user lacks, without repetition.
type denials []string

func (d *denials) add(rule string) {
	if rule != "" && !slices.Contains(*d, rule) {
		*d = append(*d, rule)
	}
}

// of adds the rule that a denial speaks of: for the key, the channel or the command.
func (d *denials) of(err error, r right) {
	if !isDenied(err) {
		return
	}
	if text := err.Error(); strings.Contains(text, " a key") || strings.Contains(text, " the keys") ||
		strings.Contains(text, " a channel") || strings.Contains(text, " the channels") {
		d.add(r.on)
		return
	}
	d.add(r.rule)
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
