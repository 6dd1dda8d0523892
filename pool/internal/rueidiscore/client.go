package rueidiscore

import (
	"context"
	"fmt"
	"strconv"
)

// Client is a client of rueidis or valkey-go. An adapter makes it of that.
type Client interface {
	Conn
	// IsCluster reports whether it is a client for a cluster.
	IsCluster() bool
	// Addrs returns the addresses of the servers that it knows, in any order.
	Addrs() []string
	// Dedicate returns a connection of its own, which is made with the first command.
	Dedicate() Dedicated
}

// Conn sends commands.
type Conn interface {
	Do(ctx context.Context, c Command) Reply
	// DoMulti sends the commands in one round trip. The replies are in the same order.
	DoMulti(ctx context.Context, cs []Command) []Reply
}

// Dedicated is a connection for Pub/Sub.
type Dedicated interface {
	Conn
	// Change sends SUBSCRIBE or UNSUBSCRIBE with a channel. The reply has no value.
	Change(ctx context.Context, command, channel string) Reply
	// Listen sets what is called for messages, and for confirmations of the kind "subscribe" or
	// "unsubscribe", in the order in which the node has sent them. What it returns has the error
	// of a connection that is lost, or is closed.
	Listen(message func(channel, payload string), confirm func(kind, channel string)) <-chan error
	Close()
}

// Command is what a client makes a command of by its method Arbitrary.
type Command struct {
	Args []any // the name and the arguments, for Text

	// Own is for one of the connections that the client keeps for commands that block. Nobody else
	// uses it meanwhile. The command waits for no other connection, unless BlockingPoolSize are in
	// use.
	Own bool

	// Routed is for the master of a cluster that has the key. Other commands name no key that the
	// client knows of. So those for a server that is no cluster go on one connection, in order.
	Routed bool
	Key    string
}

// Text returns an argument as clients take it.
func Text(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case int64:
		return strconv.FormatInt(arg, 10)
	}
	return fmt.Sprint(arg)
}

// Reply is the outcome of a command.
type Reply struct {
	Value any   // of the types that pool.Pool promises
	Err   error // an error reply
	Lost  error // why there is no reply
}
