// Package pubsub makes an adapter a [pool.Subscriber]. A [Hub] shares one Pub/Sub connection
// among all subscriptions of a node. When the connection is lost, it opens another one, and tells
// subscribers that they may have missed messages. The adapter brings the connection, a [Conn]:
//
//	type Pool struct {
//		hub pubsub.Hub
//		…
//	}
//
//	func NewPool(…) *Pool {
//		p := &Pool{…}
//		p.hub.Dial = p.dial // returns a pubsub.Conn
//		return p
//	}
//
//	func (p *Pool) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
//		return p.hub.Subscribe(ctx, channel)
//	}
//
// Package [github.com/redlock-go/redlock/pool/pooltest] proves that the result behaves.
package pubsub

import (
	"strings"
	"time"
)

// Conn is a connection to a node that a [Hub] uses for Pub/Sub and nothing else. One goroutine
// calls Receive, another calls Send, and any calls Close. A panic in a method counts as the loss
// of the connection.
type Conn interface {
	// Send writes a command, and need not wait for its reply: SUBSCRIBE or UNSUBSCRIBE with a
	// channel, or PING, for which channel is "". After an error the Hub gives the connection up.
	Send(command, channel string) error

	// Receive returns the next message or reply. If nothing arrives within timeout, or the
	// connection is lost, it returns an error, and the Hub gives the connection up. It returns an
	// error reply as an [Event] of the kind [Refused]: a node that forbids one channel does not
	// end the others.
	Receive(timeout time.Duration) (Event, error)

	// Close makes Send and Receive return soon. It may be called more than once. Its error is
	// ignored.
	Close() error
}

// Event is what a [Conn] receives: a message, or the reply to a command. A Conn reports every
// reply. A node replies in the order of the commands, and by that a [Hub] knows which of them it
// has refused.
type Event struct {
	Kind    Kind   // what it is
	Channel string // of Subscribed, Unsubscribed and Message; of Refused, if the Conn knows it
	Payload string // of Message
	Err     error  // of Refused
}

// Kind says what an [Event] is.
type Kind int

const (
	// Other is nothing that a [Hub] needs to know, such as the reply to a command that it did not
	// send.
	Other Kind = iota
	// Message is a Payload that was published on Channel.
	Message
	// Subscribed confirms SUBSCRIBE of Channel.
	Subscribed
	// Unsubscribed confirms UNSUBSCRIBE of Channel.
	Unsubscribed
	// Pong is the reply to PING.
	Pong
	// Refused is an error reply, in Err. It answers the SUBSCRIBE of Channel or, if that is "",
	// the oldest command that has no reply yet.
	Refused
)

// Parse returns the Event that a reply or push is, for clients that hand these over as they are:
// arrays as []any, strings as string or []byte. It is Other for anything else.
func Parse(reply any) Event {
	text := func(v any) string {
		if b, ok := v.([]byte); ok {
			return string(b)
		}
		s, _ := v.(string)
		return s
	}
	parts, ok := reply.([]any)
	if !ok {
		parts = []any{reply} // PONG, if there is no subscription
	}
	parts = append(parts[:len(parts):len(parts)], nil, nil, nil)
	switch kind, channel := text(parts[0]), text(parts[1]); strings.ToLower(kind) {
	case "message":
		return Event{Kind: Message, Channel: channel, Payload: text(parts[2])}
	case "subscribe":
		return Event{Kind: Subscribed, Channel: channel}
	case "unsubscribe":
		return Event{Kind: Unsubscribed, Channel: channel}
	case "pong":
		return Event{Kind: Pong}
	}
	return Event{}
}
