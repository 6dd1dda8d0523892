package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/clock"
)

// names are the values of a flag that may be given several times.
type names []string

func (n *names) String() string { return "" }

// Set implements [flag.Value].
func (n *names) Set(name string) error {
	if name == "" {
		return errors.New("must not be empty")
	}
	*n = append(*n, name)
	return nil
}

// take makes the names those of the slots, if there are some.
func (c *lockFlags) take(slots int) error {
	switch {
	case c.anyOf == "" && slots != 0:
		return errors.New("-slots needs -any-of, the name of which there are so many")
	case c.anyOf == "":
		return nil
	case len(c.names) > 0:
		return errors.New("-name and -any-of exclude each other")
	case slots < 1:
		return errors.New("-any-of needs -slots, how many may run at a time, at least 1")
	}
	c.names = redlock.Slots(c.anyOf, slots)
	return nil
}

// lock waits until the locks are granted: all of them, in the order of DoAll, or any.
//
// The held contexts would end with ctx, whose time may be over just as the last lock is granted.
// The locks are kept, and tell of their loss by themselves.
func (j *job) lock(ctx context.Context) error {
	last := j.locks
	if j.limit != 0 { // counts from the last grant, which lets the command begin
		last = last.With(redlock.WithMaxHold(j.limit))
	}
	if j.any {
		_, m, err := last.HoldAny(ctx, j.names)
		j.locked = []*redlock.Mutex{m}
		return err
	}
	j.locked = nil
	for _, name := range slices.Compact(slices.Sorted(slices.Values(j.names))) {
		j.locked = append(j.locked, j.locks.NewMutex(name))
	}
	n := len(j.locked) - 1
	j.locked[n] = last.NewMutex(j.locked[n].Name())
	for _, m := range j.locked { // before anything is sent
		var wrong *redlock.OptionError
		if _, err := m.ValidContext(ctx); errors.As(err, &wrong) {
			return err
		}
	}
	for _, m := range j.locked {
		held, err := m.Hold(ctx)
		if err != nil {
			return err // Close releases the others
		}
		ctx = held // the loss of one ends the wait for the next
	}
	return nil
}

// otherVariables are those of this process, without those of a lock of a redlock above it that the
// command's own lock may not have.
func otherVariables() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "REDLOCK_TOKEN=") || strings.HasPrefix(v, "REDLOCK_SLOT=")
	})
}

// environment tells the command its locks.
func (j *job) environment() (env []string) {
	names := j.names
	if j.any {
		names = []string{j.locked[0].Name()}
		env = append(env, fmt.Sprint("REDLOCK_SLOT=", slices.Index(j.names, names[0])))
	}
	env = append(env, "REDLOCK_NAME="+strings.Join(names, "\n"),
		"REDLOCK_UNTIL="+j.until().Format(time.RFC3339Nano), j.heldHere())
	var tokens []string
	for _, name := range names {
		i := slices.IndexFunc(j.locked, func(m *redlock.Mutex) bool { return m.Name() == name })
		tokens = append(tokens, strconv.FormatUint(j.locked[i].FencingToken(), 10))
	}
	if tokens[0] != "0" { // without -no-token
		env = append(env, "REDLOCK_TOKEN="+strings.Join(tokens, "\n"))
	}
	return env
}

// until returns up to when all locks may be trusted: the zero time if one is proven to be lost.
func (j *job) until() time.Time {
	var all []time.Time
	for _, m := range j.locked {
		all = append(all, m.Until())
	}
	return slices.MinFunc(all, time.Time.Compare)
}

// left is for how long all locks may yet be trusted, also if the machine has been suspended. If one
// is proven to be lost, it is the least duration there is.
func (j *job) left() time.Duration { return clock.Remaining(time.Now(), j.until()) }

// untilKill is how long the command may still run, unless the locks are extended. The last quarter
// of the grace is for its end.
func (j *job) untilKill() time.Duration { return clock.Sub(j.left(), j.grace/4) }

// confirmed extends the locks after this process has stood still, and reports whether the command
// may go on. It asks for no longer than that. If a lock is lost, Events tell.
func (j *job) confirmed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), j.untilKill())
	defer cancel()
	for _, m := range j.locked {
		_, _ = m.ExtendContext(ctx) // left knows what it proves
	}
	return j.untilKill() > 0
}

// unlock releases the locks, in the reverse order, and returns what has failed.
func (j *job) unlock() (failed []error) {
	for _, m := range slices.Backward(j.locked) {
		if _, err := m.UnlockContext(context.Background()); err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}
