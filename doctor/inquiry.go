package doctor

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

// inquiryCommands is how many node timeouts an inquiry takes at most: INFO, CONFIG, TIME, PING, two
// for all rights together, and ACL WHOAMI.
const inquiryCommands = 7

var (
	errNoDoer  = errors.New("the pool is no pool.Doer and cannot ask")
	errNotTold = errors.New("the node does not tell")
)

// inquiry asks a node about itself. The report's Err and Unheard are those of the trial.
type inquiry struct {
	plan   *plan
	report NodeReport
	do     func(args ...any) (any, error)
}

// run asks everything. Each command has a node timeout.
func (q *inquiry) run(ctx context.Context, p pool.Pool) {
	doer, ok := p.(pool.Doer)
	if !ok {
		q.unknown(errNoDoer, everything...)
		return
	}
	q.do = func(args ...any) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, q.plan.Terms.NodeTimeout)
		defer cancel()
		reply, err := doer.Do(ctx, args...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", args[0], err)
		}
		return reply, nil
	}
	err := q.readInfo()
	if q.report.Err != nil && err != nil && !isDenied(err) {
		q.unknown(err, "clock")
		return // it does not answer anything
	}
	q.readClock()
	q.readRights()
}

func (q *inquiry) unknown(why error, what ...string) {
	for _, w := range what {
		q.report.Unknown = append(q.report.Unknown, Gap{What: w, Why: why})
	}
}

// silent is the report of a node that has told nothing.
func silent(why error) NodeReport {
	q := inquiry{report: NodeReport{Err: why}}
	q.unknown(why, everything...)
	return q.report
}

// everything is what is unknown of a node that tells nothing.
var everything = append(infoTells, "clock")

// infoTells is what is unknown of a node that denies INFO.
var infoTells = []string{
	"server", "run id", "mode", "role", "replicas", "uptime", "memory", "persistence",
}

// readInfo returns the error of INFO itself; what is missing in its reply is noted as unknown.
func (q *inquiry) readInfo() error {
	reply, err := q.do("INFO")
	if err != nil {
		q.unknown(err, infoTells...)
		return err
	}
	n, info := &q.report, parseInfo(reply)
	text := func(what, field string) string {
		v := info[field]
		if v == "" {
			q.unknown(errNotTold, what)
		}
		return v
	}
	number := func(what, field string) int64 {
		v, err := strconv.ParseInt(text(what, field), 10, 64)
		if err != nil && n.Knows(what) {
			q.unknown(fmt.Errorf("INFO: %s: %w", field, err), what)
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
	if n.Knows("memory") {
		n.Eviction = text("memory", "maxmemory_policy")
	}
	q.readPersistence(info["aof_enabled"])
	return nil
}

// kind is a kind of server, and the fields of INFO by which it tells its version and its mode.
type kind struct{ name, version, mode string }

// kinds are the servers that have fields of their own. All of them also say which version of Redis
// they are like.
var kinds = []kind{
	{"Valkey", "valkey_version", "server_mode"},
	{"Redict", "redict_version", "redict_mode"},
	{"Redis", "redis_version", "redis_mode"},
}

// kindOf returns the kind of server that made the reply to INFO.
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

// readPersistence finds out how a node stores its data. The argument is INFO's aof_enabled.
func (q *inquiry) readPersistence(aof string) {
	parameter := "save"
	switch aof {
	case "0":
	case "1":
		parameter = "appendfsync"
	default:
		q.unknown(errNotTold, "persistence")
		return
	}
	reply, err := q.do("CONFIG", "GET", parameter)
	value, ok := parseConfig(reply, parameter)
	switch {
	case err != nil:
		q.unknown(err, "persistence")
	case !ok:
		q.unknown(errNotTold, "persistence")
	case aof == "1":
		q.report.Persistence = "AOF " + value
	case value == "":
		q.report.Persistence = "none"
	default:
		q.report.Persistence = "RDB"
	}
}

// readClock compares the node's clock with this machine's. The node read it at some moment of the
// round trip. The middle of that is wrong by half of it at most.
func (q *inquiry) readClock() {
	sent := time.Now()
	reply, err := q.do("TIME")
	trip := time.Since(sent)
	if err != nil {
		q.unknown(err, "clock")
		return
	}
	now, ok := parseTime(reply)
	if !ok {
		q.unknown(fmt.Errorf("TIME: reply %#v", reply), "clock")
		return
	}
	q.report.ClockOffset = now.Sub(sent.Add(trip / 2).Round(0))
	q.report.ClockUncertainty = trip / 2
}

// parseTime reads a TIME reply: seconds and microseconds.
func parseTime(reply any) (time.Time, bool) {
	var parts [2]int64
	fields, _ := reply.([]any)
	if len(fields) != len(parts) {
		return time.Time{}, false
	}
	for i, f := range fields {
		var err error
		if parts[i], err = strconv.ParseInt(fmt.Sprint(f), 10, 64); err != nil {
			return time.Time{}, false
		}
	}
	return time.Unix(parts[0], 0).Add(clock.Times(time.Microsecond, parts[1])), true
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

// parseConfig finds a parameter in a CONFIG GET reply. RESP3 makes that a map, whose type depends
// on the client.
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
