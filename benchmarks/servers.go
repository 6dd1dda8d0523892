package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

// scope lets a program use the launcher of the tests: it is the part of a test that owns
// servers and directories. A failure panics with the message.
type scope struct {
	testing.TB // nil; only the methods below are called
	cleanups   []func()
}

func (s *scope) Helper()                           {}
func (s *scope) Cleanup(f func())                  { s.cleanups = append(s.cleanups, f) }
func (s *scope) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (s *scope) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (s *scope) Skip(args ...any)                  { panic(fmt.Sprint(args...)) }

func (s *scope) TempDir() string {
	dir := must(os.MkdirTemp("", "redlock-bench-"))
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// must is for what does not fail on a machine in order, with servers that are up.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// end runs the cleanups, the last first.
func (s *scope) end() {
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		f()
	}
}

type servers []*redistest.Server

func addrs(servers servers) []string {
	out := make([]string, len(servers))
	for i, s := range servers {
		out[i] = s.Addr()
	}
	return out
}

// commands is how many commands the servers have executed together, those inside scripts included.
func commands(servers servers) (sum int64) {
	for _, s := range servers {
		sum += s.CommandsProcessed()
	}
	return sum
}
