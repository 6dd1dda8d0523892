package goredis

import (
	"context"
	"errors"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

// lesson L100: a Cluster client sends clones of a command that goes to all its masters.
func TestACloneKeepsThePromises(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]*command{
		"given":   newCommand(ctx, []any{"SCRIPT", "FLUSH"}),
		"request": newCommand(ctx, pool.SetNX("k", "v", time.Second).Args()),
	} {
		before := c.Args()
		clone, ok := c.Clone().(*command)
		if !ok {
			t.Fatalf("%s: the clone is a %T", name, c.Clone())
		}
		var noRetry interface{ NoRetry() bool } = clone
		if !noRetry.NoRetry() {
			t.Errorf("%s: go-redis may send the clone twice", name)
		}
		if got := clone.Args(); !reflect.DeepEqual(got, before) {
			t.Errorf("%s: the clone's arguments are %v, want %v", name, got, before)
		}
		clone.Args()[0] = "changed by a hook"
		if got := c.Args(); got[0] == "changed by a hook" {
			t.Errorf("%s: the clone shares its arguments with the command", name)
		}
		clone.SetVal("OK")
		if c.Val() != nil {
			t.Errorf("%s: the clone shares its reply with the command", name)
		}
		if again := clone.Clone().(*command); again.Val() != "OK" {
			t.Errorf("%s: the clone of an answered command has the reply %v", name, again.Val())
		}
		c.SetErr(redis.Nil)
		if again := c.Clone(); !errors.Is(again.Err(), redis.Nil) {
			t.Errorf("%s: the clone of a failed command has the error %v", name, again.Err())
		}
	}
	cancel()
	for name, c := range map[string]*command{
		"given":   newCommand(ctx, []any{"SCRIPT", "FLUSH"}),
		"request": newCommand(ctx, pool.SetNX("k", "v", time.Second).Args()),
	} {
		clone := c.Clone().(*command)
		if got := clone.Args(); !reflect.DeepEqual(got, []any{"PING"}) {
			t.Errorf("%s: after the end of its context, %v of the clone is sent", name, got)
		}
		clone.SetVal("PONG")
		if reply, err := clone.reply(nil); reply != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the outcome of a clone that was withheld is %v, %v", name, reply, err)
		}
	}
}

// Nobody knows what becomes of a clone: that of a command that fails may have been sent.
func TestAClonedCommandMayHaveBeenSent(t *testing.T) {
	fails := errors.New("fails")
	c := newCommand(t.Context(), pool.SetNX("k", "v", time.Second).Args())
	if _, err := c.reply(fails); !errors.Is(err, pool.ErrNotSent) {
		t.Errorf("of a command that nobody looked at: %v", err)
	}
	c.Clone()
	if _, err := c.reply(fails); !errors.Is(err, fails) || errors.Is(err, pool.ErrNotSent) {
		t.Errorf("of a command that was cloned: %v", err)
	}
}

// The commands of a lock that is free have their arguments in the room of the command.
func TestRoomForTheArguments(t *testing.T) {
	terms := wire.Terms{Expiry: time.Second, Queue: true, NodeTimeout: 400 * time.Millisecond}
	lock := wire.NewLock("k", &terms, &wire.Tokens{Now: time.Now})
	for name, said := range map[string]quorum.Command{
		"acquire": lock.Acquire("v"),
		"release": lock.Release("v", ""),
	} {
		args, c := said.Args(), &command{}
		if n := testing.AllocsPerRun(10, func() { c.set(t.Context(), args) }); n != 0 {
			t.Errorf("%s: the %d arguments take %v allocations", name, len(args), n)
		}
	}
}

// Of a client with many servers, a connection to one shows nothing about another.
func TestAFailureToConnectIsOfItsAddress(t *testing.T) {
	down := errors.New("down")
	var d dials
	dial := d.DialHook(func(context.Context, string, string) (net.Conn, error) { return nil, down })
	if _, err := dial(t.Context(), "tcp", "a"); err != down {
		t.Fatal(err)
	}
	down = nil
	for _, c := range []struct {
		addr  string
		known bool
	}{{"b", true}, {"a", false}} {
		if _, err := dial(t.Context(), "tcp", c.addr); err != nil {
			t.Fatal(err)
		}
		if known := d.last.Load() != nil; known != c.known {
			t.Errorf("after a connection to %s: %v, want %v", c.addr, known, c.known)
		}
	}
}
