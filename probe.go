package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/pool"
)

// NodeReport is what [Redlock.Check] learned about one node. What a node did not tell is listed in Unknown.
type NodeReport struct {
	// Node is the index of the node's pool in the call of New.
	Node int
	// Addr is the node's address, or "" if its pool does not tell, see [pool.Addressed].
	Addr string
	// Err says why the node cannot take part in a lock: it does not answer, or refuses something that a lock needs. It is
	// a [*GuardError] if only the restart guard still keeps it out.
	Err error
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
	// ClockOffset is by how much the node's clock is ahead of this machine's, give or take ClockError.
	ClockOffset time.Duration
	// ClockError is half the round trip.
	ClockError time.Duration
	// Unheard says why the announcement of a release does not arrive, so that the node wakes no waiters. It is nil if
	// it does, or if it is not wanted.
	Unheard error
	// Denied lists what an ACL denies, in the words of ACL SETUSER: "+pexpire", "~app:*". It is not complete
	// where the pool is no [pool.Doer].
	Denied []string
	// Unknown lists what could not be found out.
	Unknown []Gap

	user string // as the server calls it, if something is denied
}

// Gap is something about a node that could not be found out.
type Gap struct {
	// What is "server", "run id", "mode", "role", "replicas", "uptime", "memory", "persistence" or "clock".
	What string
	// Why is the client's error, or says that the node did not tell.
	Why error
}

// keptOut returns how the restart guard keeps the node out, or nil if it does not.
func (n *NodeReport) keptOut() *GuardError {
	guard, _ := n.Err.(*GuardError)
	return guard
}

func (n *NodeReport) sentinel() bool { return n.Mode == "sentinel" }

func (n *NodeReport) replica() bool { return n.Role == "slave" }

// knows reports whether the node told about something.
func (n *NodeReport) knows(what string) bool {
	for _, u := range n.Unknown {
		if u.What == what {
			return false
		}
	}
	return true
}

func (n *NodeReport) unknown(why error, what ...string) {
	for _, w := range what {
		n.Unknown = append(n.Unknown, Gap{w, why})
	}
}

// probeCommands is how many node timeouts a probe takes at most: INFO, CONFIG, TIME, PING, two for all rights together, and
// ACL WHOAMI.
const probeCommands = 7

var (
	errNoDoer  = errors.New("the pool is no pool.Doer and cannot ask")
	errNotTold = errors.New("the node does not tell")
)

// probe asks a node about itself, and about the rights that it denies to locks like m. Each command has the given time. The
// node's Err says whether it has been found out of order before.
func (n *NodeReport) probe(ctx context.Context, p pool.Pool, m *Mutex) {
	doer, ok := p.(pool.Doer)
	if !ok {
		n.silent(errNoDoer)
		return
	}
	timeout := m.cfg.nodeTimeout
	do := func(args ...any) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		reply, err := doer.Do(ctx, args...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", args[0], err)
		}
		return reply, nil
	}
	err := n.readInfo(do)
	if n.Err != nil && err != nil && !isDenied(err) {
		n.unknown(err, "clock")
		return // it does not answer anything
	}
	n.readClock(do)
	n.readRights(do, m)
}

// readRights finds out what an ACL denies.
func (n *NodeReport) readRights(do doFunc, m *Mutex) {
	var denied denials
	end := time.Now().Add(m.cfg.nodeTimeout)
	try := func(rights ...right) (why error) {
		for _, r := range rights {
			if r.try == nil || time.Now().After(end) {
				continue
			}
			if _, err := do(r.try...); isDenied(err) {
				denied.of(err, r)
				why = err
			}
		}
		return why
	}
	lock, announcements := m.rights()
	// The trial needs EVAL only where the node does not know a script, and PING only if nothing happens for seconds.
	if err := try(rightOf(lock, "+eval")); err != nil && n.Err == nil {
		n.Err = err
	}
	if isDenied(n.Err) {
		try(lock...)
	}
	if m.cfg.announce {
		denied.of(n.Unheard, rightOf(announcements, "+subscribe"))
		if err := try(rightOf(announcements, "+ping")); err != nil && n.Unheard == nil {
			n.Unheard = err
		}
		if n.Unheard == errUnheard || isDenied(n.Unheard) {
			try(announcements...)
		}
	}
	for _, u := range n.Unknown {
		if command, _, _ := strings.Cut(u.Why.Error(), ":"); isDenied(u.Why) {
			denied.add(map[string]string{"INFO": "+info", "TIME": "+time", "CONFIG": "+config|get"}[command])
		}
	}
	n.Denied = denied
	if len(denied) > 0 {
		reply, err := do("ACL", "WHOAMI")
		if n.user, _ = reply.(string); err != nil {
			n.user = userOf(err)
		}
	}
}

// silent notes that nothing is known of a node.
func (n *NodeReport) silent(why error) {
	n.unknown(why, infoTells...)
	n.unknown(why, "clock")
}

// infoTells is what is unknown of a node that denies INFO.
var infoTells = []string{"server", "run id", "mode", "role", "replicas", "uptime", "memory", "persistence"}

type doFunc func(args ...any) (any, error)

// readInfo returns the error of INFO itself; what is missing in its reply is noted as unknown.
func (n *NodeReport) readInfo(do doFunc) error {
	reply, err := do("INFO")
	if err != nil {
		n.unknown(err, infoTells...)
		return err
	}
	info := parseInfo(reply)
	text := func(what, field string) string {
		v := info[field]
		if v == "" {
			n.unknown(errNotTold, what)
		}
		return v
	}
	number := func(what, field string) int64 {
		v, err := strconv.ParseInt(text(what, field), 10, 64)
		if err != nil && n.knows(what) {
			n.unknown(fmt.Errorf("INFO: %s: %w", field, err), what)
		}
		return v
	}
	kind := kindOf(info)
	if v := text("server", kind.version); v != "" {
		n.Server = kind.name + " " + v
	}
	n.RunID = text("run id", "run_id")
	n.Mode = text("mode", kind.mode)
	n.Role = text("role", "role")
	n.Replicas = int(number("replicas", "connected_slaves"))
	n.Uptime = clock.Times(time.Second, max(number("uptime", "uptime_in_seconds"), 0))
	n.MaxMemory = number("memory", "maxmemory")
	if n.knows("memory") {
		n.Eviction = text("memory", "maxmemory_policy")
	}
	n.readPersistence(do, info["aof_enabled"])
	return nil
}

// kind is a kind of server, and the fields of INFO by which it tells its version and its mode.
type kind struct{ name, version, mode string }

// kinds are the servers that have fields of their own; all of them also say which version of Redis they are like.
var kinds = []kind{
	{"Valkey", "valkey_version", "server_mode"},
	{"Redict", "redict_version", "redict_mode"},
	{"Redis", "redis_version", "redis_mode"},
}

// kindOf returns the kind of server that gave the reply to INFO.
func kindOf(info map[string]string) kind {
	for _, k := range kinds {
		if info[k.version] != "" {
			if info[k.mode] == "" {
				k.mode = "redis_mode" // as Valkey's option extended-redis-compatibility has it
			}
			return k
		}
	}
	return kinds[len(kinds)-1]
}

func (n *NodeReport) readPersistence(do doFunc, aof string) {
	parameter := "save"
	switch aof {
	case "0":
	case "1":
		parameter = "appendfsync"
	default:
		n.unknown(errNotTold, "persistence")
		return
	}
	reply, err := do("CONFIG", "GET", parameter)
	value, ok := parseConfig(reply, parameter)
	switch {
	case err != nil:
		n.unknown(err, "persistence")
	case !ok:
		n.unknown(errNotTold, "persistence")
	case aof == "1":
		n.Persistence = "AOF " + value
	case value == "":
		n.Persistence = "none"
	default:
		n.Persistence = "RDB"
	}
}

func (n *NodeReport) readClock(do doFunc) {
	sent := time.Now()
	reply, err := do("TIME")
	trip := time.Since(sent)
	if err != nil {
		n.unknown(err, "clock")
		return
	}
	var parts [2]int64
	fields, _ := reply.([]any)
	ok := len(fields) == len(parts)
	for i := range parts {
		if ok {
			parts[i], err = strconv.ParseInt(fmt.Sprint(fields[i]), 10, 64)
			ok = err == nil
		}
	}
	if !ok {
		n.unknown(fmt.Errorf("TIME: reply %#v", reply), "clock")
		return
	}
	n.ClockOffset = time.Unix(parts[0], 0).Add(clock.Times(time.Microsecond, parts[1])).Sub(sent.Add(trip / 2).Round(0))
	n.ClockError = trip / 2
}

// parseInfo reads the lines "field:value" of an INFO reply.
func parseInfo(reply any) map[string]string {
	text, _ := reply.(string)
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[field] = value
		}
	}
	return info
}

// parseConfig finds a parameter in a CONFIG GET reply, which RESP3 makes a map, of a type that depends on the client.
func parseConfig(reply any, parameter string) (string, bool) {
	switch r := reply.(type) {
	case map[any]any:
		value, ok := r[parameter].(string)
		return value, ok
	case map[string]any:
		value, ok := r[parameter].(string)
		return value, ok
	case map[string]string:
		value, ok := r[parameter]
		return value, ok
	case []any:
		if len(r) == 2 && r[0] == parameter {
			value, ok := r[1].(string)
			return value, ok
		}
	}
	return "", false
}
