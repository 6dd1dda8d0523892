// Command redlock runs programs under distributed locks, and looks at such locks.
//
//	redlock run -name backup -- pg_dump …   run a command while holding a lock
//	redlock run -name a -name b -- mv …     run it while holding several locks
//	redlock run -any-of x -slots 8 -- …     run at most eight at a time
//	redlock run -shared -name x -- …        run it beside others that share the lock
//	redlock elect -name scheduler -- …      run a command whenever elected
//	redlock status NAME                     tell who holds a lock, and who waits
//	redlock status                          list what is locked now
//	redlock watch NAME                      tell each time that changes
//	redlock top                             show nodes and locks in a live table
//	redlock doctor                          find what is wrong with the nodes
//	redlock release -force NAME             delete a lock that somebody else holds
//
// The nodes are those of the environment variable REDLOCK_NODES: comma-separated, each host:port or
// a URL such as rediss://user:password@10.0.0.1:6379. The flag -nodes has the same form, and
// -nodes-file names a file with one node in each line. Other users of the machine can see the
// arguments of a program, so -nodes refuses passwords. No password is ever printed.
//
// Each command explains its flags with -h. The exit status is 0 for success, and 64 for wrong
// usage. It is 69 if too few nodes answer, 70 if the lock was lost, 74 if the result cannot be
// written, and 75 if the lock is taken. After run and elect it is otherwise that of the command:
// 128 and the number of the signal that ended it, 126 if it cannot be executed, 127 if it is not
// found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redlock-go/redlock"
)

// Exit statuses, by sysexits.h where that has one.
const (
	exitUsage       = 64
	exitUnavailable = 69 // no quorum
	exitLost        = 70
	exitOutput      = 74 // the result cannot be written
	exitTaken       = 75
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128 // and the signal's number
)

const usage = `usage: redlock COMMAND [flags] …

  run -name NAME -- cmd …     run a command while holding the lock, or several: -name A -name B
  run -any-of NAME -slots K -- cmd …
                              run a command while fewer than K others run
  run -shared -name NAME -- cmd …
                              run a command beside others that share the lock
  elect -name NAME -- cmd …   run a command whenever elected
  status NAME                 tell who holds the lock, and who waits
  status                      list what is locked now
  watch NAME                  tell each time that changes
  top                         show nodes and locks in a live table
  doctor                      find what is wrong with the nodes
  release -force NAME         delete a lock that somebody else holds

The nodes are in REDLOCK_NODES, comma-separated: host:port or rediss://user:password@host:port.
redlock COMMAND -h explains the flags.

The exit status is that of cmd; or 64: wrong usage, 69: too few nodes answer, 70: the lock was lost
and cmd was ended, 74: the result cannot be written, 75: the lock is taken. doctor ends with 1 if a
finding is critical.
`

// tool is one call of the command line.
type tool struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) string
	signals        <-chan os.Signal
	unwritten      error // why a result has not been written
}

func main() {
	if runSupervisor(os.Args) {
		return
	}
	reapOrphans()
	outlivePipes()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, heeded()...)
	t := &tool{os.Stdin, os.Stdout, os.Stderr, os.Getenv, signals, nil}
	os.Exit(t.command(os.Args[1:]))
}

// command executes a command line and returns the exit status.
func (t *tool) command(args []string) int {
	commands := map[string]func([]string) (int, error){
		"run": t.run, "elect": t.elect, "status": t.status, "watch": t.watch, "doctor": t.doctor,
		"release": t.release, "top": t.top,
	}
	if len(args) == 0 || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" ||
		args[0] == "help" {
		fmt.Fprint(t.stderr, usage)
		if len(args) == 0 {
			return exitUsage
		}
		return 0
	}
	command, ok := commands[args[0]]
	if !ok {
		fmt.Fprintf(t.stderr, "redlock: there is no command %q\n%s", args[0], usage)
		return exitUsage
	}
	status, err := command(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil && t.unwritten != nil {
		status, err = exitOutput, t.unwritten
	}
	if err != nil && !errors.Is(err, errPrinted) {
		t.say(args[0], err)
	}
	return status
}

// print writes a result. If that fails, so does the command.
func (t *tool) print(result any) {
	if _, err := fmt.Fprint(t.stdout, result); err != nil {
		t.unwritten = err
	}
}

// say tells the user what went wrong, and how to find out more.
func (t *tool) say(command string, err error) {
	fmt.Fprintf(t.stderr, "redlock %s: %s\n", command, strings.TrimPrefix(err.Error(), "redlock: "))
	if errors.Is(err, redlock.ErrNoQuorum) {
		fmt.Fprintln(t.stderr, `"redlock doctor" says what is wrong with the nodes.`)
	}
}

// statusOf is the exit status for an error of the library.
func statusOf(err error) int {
	var option *redlock.OptionError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &option):
		return exitUsage
	case errors.Is(err, redlock.ErrLost):
		return exitLost
	case errors.Is(err, redlock.ErrTaken):
		return exitTaken
	}
	return exitUnavailable // also if the wait was over before enough nodes had answered
}

// interruptible returns a context that ends with the first signal that ends programs, or after
// the patience if that is positive. The function tells which signal it was, 0 for none, and from
// then on the context does not end any more.
func (t *tool) interruptible(patience time.Duration) (context.Context, func() syscall.Signal) {
	ctx, cancel := context.WithCancelCause(context.Background())
	timer := time.NewTimer(patience)
	if patience <= 0 {
		timer.Stop()
	}
	stop, got := make(chan struct{}), make(chan syscall.Signal, 1)
	go func() { // ends when the returned function is called
		defer close(got)
		for {
			select {
			case s := <-t.signals:
				if s := s.(syscall.Signal); ends(s) {
					got <- s
					cancel(fmt.Errorf("got the signal %v", s))
					return
				}
			case <-timer.C:
				cancel(fmt.Errorf("waited for %v", patience))
			case <-stop:
				return
			}
		}
	}()
	return ctx, func() syscall.Signal {
		timer.Stop()
		close(stop)
		return <-got
	}
}
