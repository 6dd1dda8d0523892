package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlock-go/redlock"
)

// job is a command to run under locks.
type job struct {
	tool   *tool
	names  []string // of the locks, as they were given
	any    bool     // one of them is enough
	reader string   // the owner of the locks if they are shared, or ""
	expiry time.Duration
	grace  time.Duration
	limit  time.Duration
	argv   []string
	locks  *redlock.Redlock
	locked []*redlock.Mutex // by the command, in the order in which they were granted
	lost   <-chan error     // why one of them cannot be trusted any more, when that is so
	ended  bool             // the command was passed a signal that ends programs
}

// lockFlags are the flags of run and elect.
type lockFlags struct {
	*common
	names         names
	anyOf         string // the name of which the names are slots, or ""
	owner         string
	expiry, grace time.Duration
	limit, guard  time.Duration
	plain, shared bool
	telling       sync.Mutex // held while waiting writes
}

func (t *tool) lockFlags(command, which, about string) *lockFlags {
	c := &lockFlags{common: t.flags(command, which+" -- COMMAND [ARGUMENT …]")}
	c.set.Var(&c.names, "name", about)
	c.set.DurationVar(&c.expiry, "expiry", 10*time.Second,
		"the time after which the lock ends if this process dies")
	c.set.DurationVar(&c.grace, "grace", 0,
		"if the lock cannot be extended, send TERM this `duration` before it ends, and KILL "+
			"when a quarter of that is left (default a fifth of the expiry)")
	c.set.DurationVar(&c.limit, "max", 0,
		"end the command after this time, which is at least the expiry (default no limit)")
	c.set.DurationVar(&c.guard, "guard", 0,
		"the `maxTTL` of WithRestartGuard in your programs, if they use that")
	c.set.StringVar(&c.owner, "owner", hostAndProcess(),
		"a `text` by which status names the holder of the lock and those who wait for it")
	c.set.BoolVar(&c.plain, "no-token", false, "do without REDLOCK_TOKEN, the fencing token")
	return c
}

// hostAndProcess is the owner if none is given, as web-3:4711.
func hostAndProcess() string {
	host, _ := os.Hostname() // the process alone tells something, too
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// job returns the locks of the flags, and what to run.
func (c *lockFlags) job(opts ...redlock.Option) *job {
	if c.grace == 0 {
		c.grace = c.expiry / 5
	}
	opts = append(opts, redlock.WithExpiry(c.expiry), redlock.WithMargin(c.grace),
		redlock.WithOwner(c.owner))
	if !c.plain {
		opts = append(opts, redlock.WithFencing())
	}
	if c.guard != 0 {
		opts = append(opts, redlock.WithRestartGuard(c.guard))
	}
	reader := ""
	if c.shared {
		// Inspect tells who shares a lock by their owners alone: this one must have its own.
		reader = strings.TrimSpace(c.owner + " " + rand.Text())
		opts = append(opts, redlock.WithShared(), redlock.WithOwner(reader))
	}
	lost := make(chan error, len(c.names))
	events := redlock.Events{
		Lost:    func(e redlock.Ended) { lost <- e.Err },
		Waiting: c.waiting,
	}
	if c.anyOf != "" {
		events.Acquire = c.waitingForAny()
	}
	locks := c.locks.With(append(opts, redlock.WithEvents(&events))...)
	return &job{tool: c.tool, names: c.names, any: c.anyOf != "", reader: reader, expiry: c.expiry,
		grace: c.grace, limit: c.limit, argv: c.set.Args(), locks: locks, lost: lost}
}

// waiting tells the user that the lock is not granted yet, why, and behind whom it waits. It does
// not block: the wait has to end even if nobody reads standard error.
func (c *lockFlags) waiting(w redlock.Waiting) {
	behind, why := "", w.Err
	if w.Ahead > 0 {
		behind = fmt.Sprintf(", %d ahead in the queue", w.Ahead)
	}
	if why == nil {
		why = errors.New("the nodes have not said anything yet")
	}
	err := fmt.Errorf("still waiting for %q after %v%s: %w", w.Name, w.Waited.Round(time.Second),
		behind, why)
	go func() {
		if c.telling.TryLock() { // or the line before this one is not written yet
			defer c.telling.Unlock()
			c.tool.say(strings.TrimPrefix(c.set.Name(), "redlock "), err)
		}
	}()
}

// waitingForAny returns what Events call for each lock that is tried. It is waiting for one who
// waits for any of several, whose waits for each of them are short.
func (c *lockFlags) waitingForAny() func(context.Context, redlock.Acquiring) (context.Context,
	func(redlock.Acquired)) {
	began, next := time.Now(), 2*time.Second // as for a single lock
	end := func(a redlock.Acquired) {
		waited := time.Since(began)
		if a.Err == nil || a.Tries != 1 || waited < next {
			return
		}
		next = 2 * waited
		a.Name = c.anyOf
		c.waiting(redlock.Waiting{Acquiring: a.Acquiring, Waited: waited, Err: a.Err})
	}
	return func(ctx context.Context, _ redlock.Acquiring) (context.Context,
		func(redlock.Acquired)) {
		return ctx, end
	}
}

// check says what is wrong with the arguments.
func (c *lockFlags) check() error {
	switch {
	case len(c.names) == 0:
		return errors.New("needs -name, the name of the lock")
	case c.set.NArg() == 0:
		return errors.New("needs a command to run")
	}
	return nil
}

// run runs a command while it holds locks.
func (t *tool) run(args []string) (int, error) {
	c := t.lockFlags("run", "{-name NAME … | -any-of NAME -slots K}",
		"the `name` of a lock; with several, all of these locks are needed")
	patience := wait{}
	c.set.Var(&patience, "wait", "the `duration` to wait for the locks, or forever (default 0)")
	taken := c.set.Int("E", exitTaken, "the exit `status` if a lock is taken")
	atLeast := c.set.Duration("at-least", 0,
		"leave the lock taken until this `duration` after the grant, if the command ends before")
	c.set.StringVar(&c.anyOf, "any-of", "",
		"run at most -slots commands with this `name` at a time, each under a lock of its own")
	slots := c.set.Int("slots", 0, "how many of -any-of may run at a time")
	c.set.BoolVar(&c.shared, "shared", false,
		"read locks: run beside other commands with -shared, but not beside one without")
	check := func() error {
		if *taken < 0 || *taken > 255 { // of 256 the parent process would see 0
			return fmt.Errorf("-E must be an exit status from 0 to 255, not %d", *taken)
		}
		if err := c.take(*slots); err != nil {
			return err
		}
		return c.check()
	}
	return c.with(args, check, func() (int, error) {
		tries := redlock.Unlimited
		if patience.d == 0 {
			tries = 1
		}
		status, err := c.job(redlock.WithTries(tries),
			redlock.WithMinHold(*atLeast)).whenGranted(patience.d)
		if err != nil && status == exitTaken {
			status = *taken
		}
		return status, err
	})
}

// whenGranted waits for the locks, runs the command, and returns its exit status.
func (j *job) whenGranted(patience time.Duration) (int, error) {
	ctx, stop := j.tool.interruptible(patience)
	if err := j.heldAbove(ctx); err != nil {
		stop()
		return exitTaken, err
	}
	err := j.lock(ctx)
	s := stop()
	switch {
	case s != 0: // if the lock was granted nevertheless, Close releases it
		return exitSignal + int(s), nil
	case err != nil:
		return statusOf(err), err
	}
	return j.execute()
}

// execute runs the command while the locks last, and then unlocks.
func (j *job) execute() (int, error) {
	if j.left() <= 0 { // this process has stood still since the grant
		return exitLost, fmt.Errorf("the command was not started: %w", <-j.lost)
	}
	cmd := exec.Command(j.argv[0], j.argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = j.tool.stdin, j.tool.stdout, j.tool.stderr
	cmd.Env = append(otherVariables(), j.environment()...)
	child, err := start(cmd)
	if err != nil { // Close releases the locks at once, whatever -at-least says
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return exitNotFound, err
		}
		return exitCannotRun, err
	}
	cause := j.attend(child)
	child.kill() // what it has left running in its group
	unlocked := j.unlock()
	if cause != nil {
		return exitLost, fmt.Errorf("the command was ended: %w", cause)
	}
	for _, err := range unlocked {
		what := "the lock is not released, and ends within its expiry:"
		if errors.Is(err, redlock.ErrExpired) {
			what = "the lock may have been lost before the command ended:"
		}
		fmt.Fprintln(j.tool.stderr, "redlock:", what, err)
	}
	return child.status(), nil
}

// attend passes signals on to the child until it ends. If a lock ends first, the child gets TERM at
// once, and KILL before anybody else can be granted one of its locks. Then attend returns why.
func (j *job) attend(child *child) (cause error) {
	var look <-chan time.Time // when to look whether the command has to be killed
	for {
		select {
		case <-child.done:
			return cause
		case passed := <-j.tool.signals:
			s := passed.(syscall.Signal)
			child.signal(s)
			// A command may go on after HUP or QUIT, unless it is being ended.
			ending := cause != nil && ends(s)
			j.ended = j.ended || ending || s == syscall.SIGTERM || s == syscall.SIGINT
		case <-child.stops:
			child.ask()
		case s := <-child.stopped:
			if child.follow(s) && j.confirmed() {
				child.goOn()
			}
		case why := <-j.lost:
			if cause == nil {
				cause = why
				child.signal(syscall.SIGTERM)
			}
			look = time.After(0)
		case <-look:
			look = nil
			if left := j.untilKill(); left > 0 {
				// At most a second, because timers stop while a machine is suspended.
				look = time.After(min(left, time.Second))
			} else {
				child.kill()
			}
		}
	}
}
