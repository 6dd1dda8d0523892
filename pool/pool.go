// Package pool says what redlock asks of a Redis node.
//
// A [Pool] is one node, usually a thin adapter around a client's own connections. Adapters ship
// with redlock for go-redis (pool/goredis) and redigo (pool/redigo). Those for rueidis
// (pool/rueidis) and valkey-go (pool/valkeygo) are modules of their own. An adapter for another
// client is two methods: the example below is a complete one, and package pool/pooltest proves that
// it behaves.
//
// Optional interfaces say what a node can do beyond locking. A Pool implements
// them where its client can: [Subscriber] to wake waiters when a lock is released, which
// package pool/pubsub makes short; [Starter] to share round trips and do without a goroutine for
// each command, which package pool/batch makes short; [Carrier] to let a caller who waits for
// nothing else send its own command; [Doer] to inspect a deployment; [Addressed] to be called by an
// address; [Explainer] to say why a node does not answer.
package pool

import (
	"context"
	"strings"
	"time"
)

// Pool is one Redis node.
//
// Implementations are safe for concurrent use, and every method obeys the
// same rules:
//
//   - A command that has not been sent when ctx ends is not sent any more; the
//     method returns the context's error.
//   - A command that has been sent is given up when ctx ends where the client
//     can do that. Where it cannot, the method may return later: redlock keeps
//     its own time and never waits for a Pool longer than its node timeout.
//   - The client should send a command at most once. A client that sends it again
//     after a lost reply does no harm to safety, and has a price. A lock that was
//     refused by its own key takes another attempt. A release that finds nothing
//     to delete, because it did so before, looks like a lock that was lost: on so
//     many nodes that no quorum is left, Unlock fails with ErrExpired although
//     nothing was wrong.
//   - Errors are returned as the client made them, or wrapped, so that
//     [errors.Is] and [errors.As] find them.
type Pool interface {
	// SetNX sets key to value with the given expiry if key does not exist, by SET key value NX PX
	// milliseconds. It reports whether it did: false with a nil error means that the key existed.
	// The expiry is cut to whole milliseconds, never rounded up. If nothing is left then, no key
	// is set and an error returned.
	SetNX(ctx context.Context, key, value string, expiry time.Duration) (bool, error)

	// Eval runs script on the node, by EVALSHA. Where the node does not know the script yet, it
	// sends EVAL (see [IsNoScript]). An integer reply is returned as int64, a string as string, an
	// array as []any, a null as a nil any. An error reply is an error. Arguments are strings and
	// integers.
	//
	// Calls on other nodes use the same keys and args at the same time. An implementation that
	// changes them, to add a prefix for instance, changes a copy.
	Eval(ctx context.Context, script *Script, keys []string, args ...any) (any, error)
}

// Subscriber is implemented by pools that can tell a waiter that a lock was
// released.
type Subscriber interface {
	// Subscribe returns once the node has confirmed the subscription. No message that is published
	// later is missed while the connection lasts. It blocks no longer than ctx; afterwards ctx has
	// no effect on the subscription, which lives until its Close.
	//
	// All subscriptions of one Pool share one connection, opened for the first and
	// closed with the last of them. A lost connection is opened again by the Pool.
	//
	// A Pool whose client cannot subscribe after all returns an error that matches
	// [errors.ErrUnsupported].
	Subscribe(ctx context.Context, channel string) (Subscription, error)
}

// Subscription is a stream of the messages published on one channel of one node.
// It is safe for concurrent use.
type Subscription interface {
	// Messages returns the channel on which payloads arrive, always the same one.
	// It is never closed. A subscriber that does not keep up misses messages. An empty string
	// means that messages may have been missed: it arrives when some were, and when a lost
	// connection has been opened again.
	Messages() <-chan string

	// Close ends the subscription. It does not wait for the network. Closing
	// again does nothing.
	Close() error
}

// Doer is implemented by pools that can send any command. doctor.Check uses it to read INFO, TIME
// and CONFIG; no lock depends on it.
type Doer interface {
	// Do sends one command and returns its reply under the rules of Pool.Eval; a RESP3 map may
	// come as map[any]any, map[string]any, map[string]string, or a flat []any of keys and values.
	Do(ctx context.Context, args ...any) (any, error)
}

// Addressed is implemented by pools that know where their node is.
type Addressed interface {
	// Addr returns the node's address for errors and reports, such as "10.0.0.3:6379", or "" if
	// it is not known. It contains no password, and it is not asked from the node. Two nodes of a
	// group do not have the same.
	Addr() string
}

// Explainer is implemented by pools whose client may know why a node does not answer. The error of
// a command that has run out of time may not say so.
type Explainer interface {
	// Explain returns what keeps the client from the node: for instance the error of its last
	// attempt to connect, if that failed. It returns nil if nothing is known, and does not block.
	Explain() error
}

// Starter is implemented by pools that can have many commands under way without a goroutine
// for each. Redlock then starts none of its own.
type Starter interface {
	// Start begins what Pool.SetNX or Pool.Eval does, and returns without waiting. The reply to a
	// SET is a bool. Other nodes are sent the same Command at the same time, and Start does not
	// change it.
	Start(ctx context.Context, c *Command, to Receiver)
}

// Carrier is implemented by a [Starter] whose client may keep to deadlines by itself. A caller who
// waits for one command alone then sends it from its own goroutine: it is handed over to no other,
// and its outcome is not handed back.
type Carrier interface {
	Starter
	// Carry is Start for a caller who waits for the outcome, and for nothing else. It may block
	// until then. Whatever the node and the network do, it returns within a few milliseconds of
	// the deadline of ctx. Where the client cannot promise that, Carry returns as Start does.
	Carry(ctx context.Context, c *Command, to Receiver)
}

// Receiver is told the outcome of one command.
type Receiver interface {
	// Receive is called exactly once for each command, also for one that was never sent. It may
	// be called from any goroutine, and before the method that began the command has returned.
	//
	// It does not block, but it may call Start, of this Pool or another: a Pool holds no lock
	// during Receive that its Start takes.
	Receive(reply any, err error)
}

// Script is a Lua script and its identity. It is not changed after it was
// made, so one Script may be used by many goroutines.
type Script struct {
	// Name is a word for people: "release".
	Name string
	// Source is the Lua text, sent with EVAL.
	Source string
	// ID is the lower-case hexadecimal SHA-1 of Source, sent with EVALSHA. Redis
	// defines it that way; here it only names the script, nothing rests on its strength.
	ID string
}

// IsNoScript reports whether err is the reply of a node that does not know a
// script's ID: after a restart or SCRIPT FLUSH, for instance. It looks at the text, because
// hooks and wrappers around clients do not always keep the type.
func IsNoScript(err error) bool {
	return err != nil && strings.Contains(err.Error(), "NOSCRIPT ")
}

// IsNoMaster reports whether err is the reply of a server that is a replica, or loads its data. An
// adapter ends the connection that brought it, where the client allows that: behind one address, a
// new connection may reach the master. It looks at the text, as IsNoScript does, because a script
// may have run into the refusal.
func IsNoMaster(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "READONLY ") || strings.Contains(text, "MASTERDOWN ") ||
		strings.Contains(text, "LOADING ")
}
