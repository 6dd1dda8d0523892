package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redlock-go/redlock"
)

// job is a command to run under a lock.
type job struct {
	tool   *tool
	name   string
	grace  time.Duration
	argv   []string
	locks  *redlock.Redlock
	locked *redlock.Mutex
	lost   <-chan error // why the lock cannot be trusted any more, when that is so
}

// lockFlags are the flags of run and elect.
type lockFlags struct {
	*common
	lock          string
	expiry, grace time.Duration
	limit         time.Duration
	plain         bool
}

func (t *tool) lockFlags(command string) *lockFlags {
	c := &lockFlags{common: t.flags(command, "-name NAME -- COMMAND [ARGUMENT …]")}
	c.set.StringVar(&c.lock, "name", "", "the `name` of the lock")
	c.set.DurationVar(&c.expiry, "expiry", 10*time.Second,
		"the time after which the lock ends if this process dies")
	c.set.DurationVar(&c.grace, "grace", 0,
		"if the lock cannot be extended, send TERM this `duration` before it ends, and KILL "+
			"when a quarter of that is left (default a fifth of the expiry)")
	c.set.DurationVar(&c.limit, "max", 0,
		"end the command after this time, which is at least the expiry (default no limit)")
	c.set.BoolVar(&c.plain, "no-token", false, "do without REDLOCK_TOKEN, the fencing token")
	return c
}

// job returns the mutex of the flags, and what to run.
func (c *lockFlags) job(opts ...redlock.Option) *job {
	if c.grace == 0 {
		c.grace = c.expiry / 5
	}
	opts = append(opts, redlock.WithExpiry(c.expiry), redlock.WithMargin(c.grace))
	if !c.plain {
		opts = append(opts, redlock.WithFencing())
	}
	if c.limit != 0 {
		opts = append(opts, redlock.WithMaxHold(c.limit))
	}
	lost := make(chan error, 1)
	opts = append(opts, redlock.WithEvents(&redlock.Events{
		Lost:    func(e redlock.Ended) { lost <- e.Err },
		Waiting: c.waiting,
	}))
	return &job{c.tool, c.lock, c.grace, c.set.Args(), c.locks, c.locks.NewMutex(c.lock, opts...),
		lost}
}

// waiting tells the user that the lock is not granted yet, why, and behind whom it waits.
func (c *lockFlags) waiting(w redlock.Waiting) {
	behind, why := "", w.Err
	if w.Ahead > 0 {
		behind = fmt.Sprintf(", behind %d other processes", w.Ahead)
	}
	if why == nil {
		why = errors.New("the nodes have not said anything yet")
	}
	c.tool.say(strings.TrimPrefix(c.set.Name(), "redlock "), fmt.Errorf(
		"still waiting for %q after %v%s: %w", w.Name, w.Waited.Round(time.Second), behind, why))
}

// check says what is wrong with the arguments.
func (c *lockFlags) check() error {
	switch {
	case c.lock == "":
		return errors.New("needs -name, the name of the lock")
	case c.set.NArg() == 0:
		return errors.New("needs a command to run")
	}
	return nil
}

// run runs a command while it holds a lock.
func (t *tool) run(args []string) (int, error) {
	c := t.lockFlags("run")
	patience := wait{}
	c.set.Var(&patience, "wait", "the `duration` to wait for the lock, or forever (default 0)")
	taken := c.set.Int("E", exitTaken, "the exit `status` if the lock is taken")
	atLeast := c.set.Duration("at-least", 0,
		"leave the lock taken until this `duration` after the grant, if the command ends before")
	check := func() error {
		if *taken < 0 || *taken > 255 { // of 256 the parent process would see 0
			return fmt.Errorf("-E must be an exit status from 0 to 255, not %d", *taken)
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

// whenGranted waits for the lock, runs the command, and returns its exit status.
func (j *job) whenGranted(patience time.Duration) (int, error) {
	ctx, stop := j.tool.interruptible(patience)
	if err := j.heldAbove(ctx); err != nil {
		stop()
		return exitTaken, err
	}
	// The held context would end with ctx, whose time may be over just as the lock is granted. The
	// lock is kept, and tells of its loss by itself.
	_, err := j.locked.Hold(ctx)
	s := stop()
	switch {
	case s != 0: // if the lock was granted nevertheless, Close releases it
		return exitSignal + int(s), nil
	case err != nil:
		return statusOf(err), err
	}
	return j.execute()
}

// execute runs the command while the lock lasts, and then unlocks.
func (j *job) execute() (int, error) {
	until := j.locked.Until()
	cmd := exec.Command(j.argv[0], j.argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = j.tool.stdin, j.tool.stdout, j.tool.stderr
	cmd.Env = append(os.Environ(), "REDLOCK_NAME="+j.name,
		"REDLOCK_UNTIL="+until.Format(time.RFC3339Nano), j.heldHere())
	if token := j.locked.FencingToken(); token != 0 {
		cmd.Env = append(cmd.Env, "REDLOCK_TOKEN="+strconv.FormatUint(token, 10))
	}
	child, err := start(cmd)
	if err != nil { // Close releases the lock at once, whatever -at-least says
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return exitNotFound, err
		}
		return exitCannotRun, err
	}
	cause := j.attend(child)
	child.kill() // what it has left running in its group
	_, unlocked := j.locked.UnlockContext(context.Background())
	switch {
	case cause != nil:
		return exitLost, fmt.Errorf("the command was ended: %w", cause)
	case errors.Is(unlocked, redlock.ErrExpired):
		fmt.Fprintln(j.tool.stderr,
			"redlock: the lock may have been lost before the command ended:", unlocked)
	case unlocked != nil:
		fmt.Fprintln(j.tool.stderr,
			"redlock: the lock is not released, and ends within its expiry:", unlocked)
	}
	return child.status(), nil
}

// attend passes signals on to the child until it ends. If the lock ends first, the child gets
// TERM at once, and KILL before anybody else can be granted the lock. Then attend returns why.
func (j *job) attend(child *child) (cause error) {
	lost := j.lost
	var kill <-chan time.Time
	for {
		select {
		case <-child.done:
			return cause
		case s := <-j.tool.signals:
			child.signal(s.(syscall.Signal))
		case <-child.stops:
			child.ask()
		case s := <-child.stopped:
			if child.follow(s) && j.confirmed() {
				child.goOn()
			}
		case cause = <-lost:
			lost = nil
			child.signal(syscall.SIGTERM)
			// After a proven loss Until is the zero time, and this is the least duration there is.
			left := time.Until(j.locked.Until().Add(-j.grace / 4))
			kill = time.After(max(left, 0))
		case <-kill:
			child.kill()
			kill = nil
		}
	}
}

// confirmed reports whether the lock may still be trusted after this process has stood still. If
// not, its loss is told.
func (j *job) confirmed() bool {
	_, err := j.locked.ExtendContext(context.Background())
	return err == nil || errors.Is(err, redlock.ErrNoQuorum)
}
