package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// Commands returns how often each command was called since the server started or
// CONFIG RESETSTAT, by its lower-case name: "set", "evalsha". Commands called by scripts count
// too; what this package sends to watch the server ("info", "echo") does not.
func (s *Server) Commands() map[string]int64 {
	s.t.Helper()
	text, _ := s.Must("INFO", "commandstats").(string)
	calls := map[string]int64{}
	for line := range strings.SplitSeq(text, "\r\n") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok || name == "info" || name == "echo" {
			continue
		}
		n, _, _ := strings.Cut(rest, ",")
		calls[name], _ = strconv.ParseInt(n, 10, 64)
	}
	return calls
}

// CommandsProcessed returns the sum of Commands. Tests use the difference of two calls.
func (s *Server) CommandsProcessed() int64 {
	s.t.Helper()
	var sum int64
	for _, n := range s.Commands() {
		sum += n
	}
	return sum
}

// Monitor is a record of the commands that a server executes.
type Monitor struct {
	s     *Server
	conn  *Conn
	lines []string
}

// Monitor starts recording, until the test ends or the server does. It has seen
// every command executed after it returned.
func (s *Server) Monitor() *Monitor {
	s.t.Helper()
	m := &Monitor{s: s, conn: s.Dial()}
	s.t.Cleanup(func() { _ = m.conn.Close() })
	if s.password != "" {
		if _, err := m.conn.Do("AUTH", s.password); err != nil {
			s.t.Fatalf("redistest: %v", err)
		}
	}
	if _, err := m.conn.Do("MONITOR"); err != nil {
		s.t.Fatalf("redistest: MONITOR on %s: %v", s.addr, err)
	}
	return m
}

var marks atomic.Int64

// Lines returns what was executed before this call, one command a line as MONITOR
// writes it: `1700000000.123456 [0 127.0.0.1:40000] "SET" "k" "v"`. It reads up to a
// mark that it sends itself, so it neither waits nor misses anything. Call it
// before the server's output buffer for monitors (unlimited by default) matters.
func (m *Monitor) Lines() []string {
	m.s.t.Helper()
	mark := fmt.Sprintf("redistest-mark-%d", marks.Add(1))
	m.s.Must("ECHO", mark)
	for {
		v, err := m.conn.Receive()
		if err != nil {
			m.s.t.Fatalf("redistest: monitor of %s: %v", m.s.addr, err)
		}
		line, _ := v.(string)
		if strings.Contains(line, mark) {
			return append([]string(nil), m.lines...)
		}
		m.lines = append(m.lines, line)
	}
}
