package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/internal/test/redistest"
)

// ledger is what the commands of one server, as MONITOR tells them, have made of a key, and which
// of them changed what was not theirs. Whose a command is says the value that its script was
// given, or the member of the queue for which a key is reserved. MONITOR tells of the commands
// inside a script after it, and only of those that were executed.
type ledger struct {
	key string

	known   bool          // whether value is what the server has
	value   string        // "": none
	expires time.Duration // by the server's clock
	began   time.Duration // when the script did whose commands are being told
	owner   string        // of that script
	member  string        // of the queue, that the script is about, or ""
	last    string        // argument of the script: what a lock that is handed over held
	mark    string        // the last ECHO
	// Takes in a SET NX of which it is not known yet whether it was refused, or nil.
	set func()

	changes int      // of the key
	blind   int      // of these, where it was not known what the key held before
	expired int      // values that nobody has deleted
	wrong   []string // changes by others than the owner

	told []string // the last lines of MONITOR, which the first wrong change is reported with
}

// forget is for a gap in what is told.
func (l *ledger) forget() { l.known, l.set = false, nil }

// evidence is how many lines of MONITOR are kept.
const evidence = 60

// accuse notes a wrong change.
func (l *ledger) accuse(why string) {
	if len(l.wrong) == 0 {
		why += "; MONITOR has told before:\n" + strings.Join(l.told, "\n")
	}
	l.wrong = append(l.wrong, why)
}

// line takes in one line of MONITOR.
func (l *ledger) line(text string) {
	defer func() { l.told = append(l.told[max(0, len(l.told)+1-evidence):], text) }()
	at, script, args, err := parseMonitor(text)
	if err != nil {
		l.accuse(err.Error())
		return
	}
	name := strings.ToUpper(args[0])
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	if l.set != nil {
		// A script that was refused looks at once whose the key is.
		if !script || name != "GET" || arg(1) != l.key {
			l.set()
		}
		l.set = nil
	}
	switch {
	case script && arg(1) == l.key && name == "SET" && arg(5) == "NX":
		l.set = func() { l.change(at, "SET NX", arg(2), arg(4), text) }
	case script && name == "DEL":
		if slices.Contains(args[1:], l.key) { // one of many releases
			l.change(at, name, "", "", text)
		}
	case script:
		if arg(1) == l.key {
			if name == "SET" && arg(5) == "XX" {
				name = "SET XX"
			}
			l.change(at, name, arg(2), arg(4), text)
		}
	case arg(1) == scripts.Releases.ID || arg(1) == scripts.Releases.Source:
		l.began, l.owner, l.member, l.last = at, l.valueIn(args), "", ""
	case name == "EVAL" || name == "EVALSHA":
		keys, _ := strconv.Atoi(arg(2))
		l.began, l.owner, l.member, l.last = at, arg(3+keys), "", arg(len(args)-1)
		for i := 3 + keys; i < len(args); i++ {
			if strings.HasPrefix(args[i], turns) {
				l.member = args[i]
				break
			}
		}
		if keys == standKeys {
			l.owner = arg(3 + keys + standValue)
		}
	case name == "FLUSHALL":
		l.known, l.value = true, ""
	case name == "ECHO":
		l.mark = arg(1)
	case arg(1) == l.key:
		l.accuse("not in a script: " + text)
	}
}

// valueIn returns the value by which releases of many locks release the key, or "". Of several
// values it returns the one that the key has, if any.
func (l *ledger) valueIn(args []string) (value string) {
	keys, _ := strconv.Atoi(args[2])
	for i, v := range args[3+keys:] {
		if args[3+i] == l.key && (value == "" || v == l.value) {
			value = v
		}
	}
	return value
}

// turns begins the members of a queue, and standKeys is how many keys the script has that stands
// there; the value of an attempt before that is its last argument.
const (
	turns      = "redlock:turn:"
	standKeys  = 4
	standValue = 7
)

// reserved tells whether a key that holds the value is kept for somebody in the queue.
func reserved(value string) bool { return strings.HasPrefix(value, "~"+turns) }

// mine tells whether the script may change what the key holds by that command.
func (l *ledger) mine(name string) bool {
	switch {
	case !reserved(l.value):
		return l.value == l.owner || name == "SET XX" && l.value == l.last
	case l.member != "":
		return l.value == "~"+l.member
	default:
		return name == "SET XX" // a holder heals the node
	}
}

// clockSlack is how long a busy server may take from looking at its clock to telling of a command.
const clockSlack = 100 * time.Millisecond

// change takes in a command on the key inside a script: SET key value PX ms, the same with XX, or
// with NX if it was not refused, PEXPIRE, DEL. A server looks at its clock as a script begins, and
// may be kept from the processor before it tells of the command.
func (l *ledger) change(at time.Duration, name, value, ms, text string) {
	accuse := func(why string) { l.accuse(why + ": " + text) }
	switch name {
	case "GET", "MGET", "PTTL":
		return
	case "SET", "SET NX", "SET XX", "PEXPIRE", "DEL":
	default:
		accuse("unknown")
		return
	}
	l.changes++
	if !l.known {
		l.blind++
	}
	foreign := l.known && !l.mine(name)
	switch name {
	case "SET", "SET NX", "SET XX":
		if value != l.owner && !reserved(value) {
			accuse("of another value than the script was given, " + l.owner)
		}
		if foreign && l.value != "" {
			// With NX the server sees to that itself, and by the clock that counts: between its
			// look at the clock and its telling of a command, the clock may have jumped.
			if left := l.expires - at; left > clockSlack && name != "SET NX" {
				accuse(fmt.Sprintf("while the key was %s's for another %v", l.value, left))
			}
			l.expired++
		}
		l.known, l.value, l.expires = true, value, l.began+millis(ms)
	case "PEXPIRE":
		if foreign {
			accuse(fmt.Sprintf("by %s, of what was %q's", l.owner, l.value))
		}
		l.known, l.value, l.expires = true, l.owner, l.began+millis(value)
	case "DEL":
		if foreign {
			accuse(fmt.Sprintf("by %s, of what was %q's", l.owner, l.value))
		}
		l.known, l.value = true, ""
	}
}

func millis(text string) time.Duration {
	n, _ := strconv.Atoi(text)
	return time.Duration(n) * time.Millisecond
}

// parseMonitor takes apart a line like
//
//	1700000000.123456 [0 127.0.0.1:40000] "EVAL" "return 1" "0"
//	1700000000.123456 [0 lua] "DEL" "k"
func parseMonitor(text string) (at time.Duration, script bool, args []string, err error) {
	head, rest, ok := strings.Cut(text, "] ")
	stamp, from, ok2 := strings.Cut(head, " [")
	sec, usec, ok3 := strings.Cut(stamp, ".")
	s, err1 := strconv.Atoi(sec)
	us, err2 := strconv.Atoi(usec)
	if !ok || !ok2 || !ok3 || err1 != nil || err2 != nil {
		return 0, false, nil, fmt.Errorf("chaos: no line of MONITOR: %q", text)
	}
	if args, err = arguments(rest); err != nil {
		return 0, false, nil, fmt.Errorf("chaos: line of MONITOR %q: %w", text, err)
	}
	if len(args) == 0 {
		return 0, false, nil, fmt.Errorf("chaos: no command in the line of MONITOR %q", text)
	}
	at = time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond
	return at, strings.HasSuffix(from, " lua"), args, nil
}

// auditor keeps a ledger of every server while a round lasts. What it misses while a server is
// down, or has hung up, it does not judge.
type auditor struct {
	t       testing.TB
	servers []*redistest.Server
	readers sync.WaitGroup

	mu      sync.Mutex
	ledgers []*ledger
	conns   []*redistest.Conn
	stopped bool
}

func newAuditor(t testing.TB, servers []*redistest.Server, key string) *auditor {
	a := &auditor{t: t, servers: servers, conns: make([]*redistest.Conn, len(servers))}
	for range servers {
		a.ledgers = append(a.ledgers, &ledger{key: key, known: true}) // nothing is there yet
	}
	t.Cleanup(a.stop)
	for i := range servers {
		c, err := a.open(i)
		if err != nil {
			t.Fatal(err)
		}
		a.readers.Go(func() { a.follow(i, c) })
	}
	return a
}

// open begins to listen to server i.
func (a *auditor) open(i int) (*redistest.Conn, error) {
	c, err := redistest.Dial(a.servers[i].Addr())
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	stopped := a.stopped
	a.conns[i] = c
	a.mu.Unlock()
	if stopped {
		err = errors.New("stopped")
	} else {
		_, err = c.Do("MONITOR")
	}
	if err != nil {
		_ = c.Close()
	}
	return c, err
}

// follow reads what server i tells on c, and on new connections, until stop.
func (a *auditor) follow(i int, c *redistest.Conn) {
	for {
		for {
			v, err := c.Receive()
			if err != nil {
				break
			}
			text, _ := v.(string)
			a.mu.Lock()
			a.ledgers[i].line(text)
			a.mu.Unlock()
		}
		_ = c.Close()
		var err error
		for c, err = a.open(i); err != nil; c, err = a.open(i) {
			a.mu.Lock()
			stopped := a.stopped
			a.mu.Unlock()
			if stopped {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		a.mu.Lock()
		a.ledgers[i].forget()
		a.mu.Unlock()
	}
}

func (a *auditor) stop() {
	a.mu.Lock()
	a.stopped = true
	for _, c := range a.conns {
		if c != nil {
			_ = c.Close()
		}
	}
	a.mu.Unlock()
	a.readers.Wait()
}

// close returns the ledgers when they are complete. The servers must be up.
func (a *auditor) close() []*ledger {
	a.t.Helper()
	const mark = "end of the round"
	for i, s := range a.servers {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			s.Must("ECHO", mark) // again, if it came while the auditor was not listening
			a.mu.Lock()
			complete := a.ledgers[i].mark == mark
			a.mu.Unlock()
			if complete {
				break
			}
			if time.Now().After(end) {
				a.t.Errorf("chaos: MONITOR of server %d does not arrive", i)
				break
			}
		}
	}
	a.stop()
	return a.ledgers
}

// arguments takes apart a list of quoted strings. Valkey 8 does not escape the quotes in them,
// Redis does.
func arguments(list string) (args []string, err error) {
	for rest := list; rest != ""; {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return unescaped(list)
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
		var next bool
		if rest, next = strings.CutPrefix(rest[len(quoted):], " "); !next && rest != "" {
			return unescaped(list)
		}
	}
	return args, nil
}

// unescaped takes apart a list in which a quote ends a string only if a space and a quote follow,
// or nothing.
func unescaped(list string) (args []string, err error) {
	inner, begins := strings.CutPrefix(list, `"`)
	inner, ends := strings.CutSuffix(inner, `"`)
	if !begins || !ends {
		return nil, strconv.ErrSyntax
	}
	for text := range strings.SplitSeq(inner, `" "`) {
		arg, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	return args, nil
}
