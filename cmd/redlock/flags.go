package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/nodeurl"
)

// common are the flags of all commands.
type common struct {
	set         *flag.FlagSet
	nodes, file string
	prefix      string
	perName     bool
	tool        *tool
	options     []*goredis.Options // of the nodes; set by with, as locks are
	locks       *redlock.Redlock
}

// flags returns the flag set of a command with the flags that all have.
func (t *tool) flags(command, arguments string) *common {
	c := &common{set: flag.NewFlagSet("redlock "+command, flag.ContinueOnError), tool: t}
	c.set.SetOutput(t.stderr)
	c.set.Usage = func() {
		fmt.Fprintf(t.stderr, "usage: redlock %s [flags] %s\n", command, arguments)
		c.set.PrintDefaults()
	}
	c.set.StringVar(&c.nodes, "nodes", "",
		"comma-separated `nodes` without passwords (default those of REDLOCK_NODES)")
	c.set.StringVar(&c.file, "nodes-file", "", "a `file` with one node in each line")
	c.set.StringVar(&c.prefix, "prefix", "",
		"put this `prefix` before the name, as WithKeyPrefix does")
	c.set.BoolVar(&c.perName, "fence-per-name", false,
		"a fence counter for each name, as WithFencePerName")
	return c
}

// errPrinted is an error that the user has been told of.
var errPrinted = errors.New("printed")

// parse parses the flags. Its error is [flag.ErrHelp] or errPrinted.
func (c *common) parse(args []string) error {
	err := c.set.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return errPrinted
	}
	return err
}

// with parses the arguments, and calls f with the locks open unless check finds something wrong
// with the arguments.
func (c *common) with(args []string, check func() error, f func() (int, error)) (int, error) {
	if err := c.parse(args); err != nil {
		return exitUsage, err
	}
	if err := check(); err != nil {
		c.set.Usage()
		return exitUsage, err
	}
	closeAll, err := c.open()
	if err != nil {
		return exitUsage, err
	}
	defer closeAll()
	return f()
}

// untilSignal is with for a function whose context ends with a signal.
func (c *common) untilSignal(
	args []string, check func() error, f func(context.Context) (int, error),
) (int, error) {
	return c.with(args, check, func() (int, error) {
		ctx, stop := c.tool.interruptible(0)
		status, err := f(ctx)
		if s := stop(); s != 0 {
			return exitSignal + int(s), nil
		}
		return status, err
	})
}

// oneName is the check of a command whose only argument is the name of a lock.
func (c *common) oneName() error {
	if c.set.NArg() != 1 {
		return fmt.Errorf("needs the name of one lock, not %d arguments", c.set.NArg())
	}
	return nil
}

// open opens the locks on the nodes, and returns a function that closes them and the clients.
func (c *common) open() (closeAll func(), err error) {
	list, err := c.addresses()
	if err != nil {
		return nil, err
	}
	logging.Disable() // the errors of the locks say the same once
	pools, closePools, err := nodeurl.Open(list)
	switch {
	case err != nil && c.file != "":
		return nil, fmt.Errorf("%s: %w; a line names one node", c.file, err)
	case err != nil:
		return nil, err
	}
	if c.options, err = nodeurl.Parse(list); err != nil {
		return nil, err
	}
	opts := []redlock.Option{redlock.WithKeyPrefix(c.prefix)}
	if c.perName {
		opts = append(opts, redlock.WithFencePerName())
	}
	c.locks = redlock.New(pools...).With(opts...)
	return func() {
		_ = c.locks.Close() // what it could not release ends with its expiry
		_ = closePools()
	}, nil
}

// addresses returns the nodes from where they are given.
func (c *common) addresses() ([]string, error) {
	switch {
	case c.nodes != "" && c.file != "":
		return nil, errors.New("-nodes and -nodes-file exclude each other")
	case strings.Contains(c.nodes, "@"):
		return nil, errors.New("-nodes must not contain users and passwords, which others could " +
			"see: use REDLOCK_NODES or -nodes-file")
	case c.nodes != "":
		return strings.Split(c.nodes, ","), nil
	case c.file != "":
		text, err := os.ReadFile(c.file)
		if err != nil {
			return nil, err
		}
		var list []string
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				list = append(list, line)
			}
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("%s names no node", c.file)
		}
		return list, nil
	}
	if list := c.tool.env("REDLOCK_NODES"); list != "" {
		return strings.Split(list, ","), nil
	}
	return nil, errors.New("no nodes: set REDLOCK_NODES, -nodes or -nodes-file")
}

// wait is how long to wait for a lock: a duration, or "forever".
type wait struct{ d time.Duration }

const forever time.Duration = -1

func (w *wait) String() string {
	if w.d == forever {
		return "forever"
	}
	return w.d.String()
}

// Set implements [flag.Value].
func (w *wait) Set(text string) error {
	if text == "forever" {
		w.d = forever
		return nil
	}
	d, err := time.ParseDuration(text)
	if text == "0" {
		d, err = 0, nil
	}
	if err != nil || d < 0 {
		return errors.New(`must be a duration such as 30s, at least 0, or "forever"`)
	}
	w.d = d
	return nil
}
