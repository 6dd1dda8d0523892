// Package pubsub makes an adapter a [pool.Subscriber]. A [Hub] shares one Pub/Sub connection among
// all subscriptions of a node, opens it again when it is lost, and tells subscribers that they may
// have missed messages. The adapter brings the connection, a [Conn]:
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
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlock-go/redlock/pool"
)

// Conn is a connection to a node that a [Hub] uses for Pub/Sub and nothing else. One goroutine calls
// Receive, another calls Send, and any calls Close. A panic in a method counts as the loss of the
// connection.
type Conn interface {
	// Send writes a command, and does not wait for its reply: SUBSCRIBE or UNSUBSCRIBE with a channel,
	// or PING, for which channel is "". After an error the Hub gives the connection up.
	Send(command, channel string) error

	// Receive returns the next message or reply. If nothing arrives within timeout, or the connection
	// is lost, it returns an error, and the Hub gives the connection up. It returns an error reply as an
	// [Event] of the kind [Refused]: a node that forbids one channel does not end the others.
	Receive(timeout time.Duration) (Event, error)

	// Close makes Send and Receive return soon. It may be called more than once. Its error is ignored.
	Close() error
}

// Event is what a [Conn] receives: a message, or the reply to a command. A Conn reports every reply,
// because a node replies in the order of the commands, and that is how a [Hub] knows which of them
// it has refused.
type Event struct {
	Kind    Kind
	Channel string // of Subscribed, Unsubscribed and Message; of Refused, if the Conn knows it
	Payload string // of Message
	Err     error  // of Refused
}

// Kind says what an [Event] is.
type Kind int

const (
	// Other is nothing that a [Hub] needs to know, such as the reply to a command that it did not send.
	Other Kind = iota
	// Message is a Payload that was published on Channel.
	Message
	// Subscribed confirms SUBSCRIBE of Channel.
	Subscribed
	// Unsubscribed confirms UNSUBSCRIBE of Channel.
	Unsubscribed
	// Pong is the reply to PING.
	Pong
	// Refused is an error reply, in Err. It answers the SUBSCRIBE of Channel or, if that is "", the oldest
	// command that has no reply yet.
	Refused
)

// Parse returns the Event that a reply or push is, for clients that hand these over as they are: arrays
// as []any, strings as string or []byte. It is Other for anything else.
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

// Hub implements [pool.Subscriber] with one connection, which it opens for the first subscription and
// closes soon after the last. It is safe for concurrent use. The zero value is ready once Dial is set.
type Hub struct {
	// Dial opens a connection. It should return soon after its context ends, which happens when no
	// subscription needs the connection any more. A Hub makes one call of Dial at a time, so a Dial that
	// does not return holds up later subscriptions, until their contexts end, but ties up no more than
	// one goroutine. A panic counts as an error.
	Dial func(context.Context) (Conn, error)

	mu      sync.Mutex // guards what follows, and the fields of session and subscription that change
	session *session   // nil when there is no subscription, and has been none for a while
	running bool       // there is a goroutine in run
}

const (
	// linger is how long an unused connection stays open. A process that waited for a lock often waits
	// for another one soon.
	linger = 200 * time.Millisecond
	// A connection on which nothing arrives for silence is given up. A PING every pingEvery makes sure
	// that something arrives.
	pingEvery = 5 * time.Second
	silence   = 2*pingEvery + time.Second
	// Attempts to open a lost connection again are minDelay apart at first, then more and more, up to
	// maxDelay. A connection that worked for maxDelay starts this over; one that breaks earlier does
	// not, or each reconnection would wake all subscribers, many times a second.
	minDelay = 10 * time.Millisecond
	maxDelay = time.Second
	// buffer is what a subscriber may have unread before it misses messages.
	buffer = 16
)

// session is one run of subscriptions without a longer break between them. Hub.mu guards its fields,
// except those that do not change.
type session struct {
	hub    *Hub
	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	unused *time.Timer   // ends the session if it has no subscription when it fires
	kick   chan struct{} // tells write to look into outbox; has room for one

	channels map[string][]*subscription

	// What follows is about the present connection, and starts empty with each.

	connected bool
	confirmed time.Time // when it confirmed the first subscription; zero before
	// awaited counts the SUBSCRIBEs of each channel in outbox and sent. Only the reply to the last one
	// counts: the UNSUBSCRIBE of an earlier subscription may follow the first.
	awaited map[string]int
	refused map[string]bool // channels with subscribers whose SUBSCRIBE the node refused
	outbox  []request       // not yet written
	sent    []request       // written, in order, without a reply yet
}

type request struct{ command, channel string }

type subscription struct {
	session  *session
	channel  string
	messages chan string
	ready    chan struct{} // closed when the subscription is confirmed, or has failed with err
	err      error

	confirmed, closed bool // guarded by Hub.mu
}

// Subscribe does what [pool.Subscriber] promises. It returns what Dial or the node made of the attempt,
// or ctx.Err() once ctx has ended, whatever Dial does.
func (h *Hub) Subscribe(ctx context.Context, channel string) (pool.Subscription, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sub := h.add(channel)
	select {
	case <-sub.ready:
		if sub.err != nil {
			return nil, sub.err
		}
		return sub, nil
	case <-ctx.Done():
		_ = sub.Close()
		return nil, ctx.Err()
	}
}

func (h *Hub) add(name string) *subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.session
	if s == nil {
		s = &session{hub: h, kick: make(chan struct{}, 1), channels: make(map[string][]*subscription)}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.unused = time.AfterFunc(linger, s.end)
		h.session = s
		if !h.running {
			h.running = true
			go h.run()
		}
	}
	sub := &subscription{
		session: s, channel: name,
		messages: make(chan string, buffer), ready: make(chan struct{}),
	}
	others := s.channels[name]
	s.channels[name] = append(others, sub)
	switch {
	case len(others) == 0 || s.refused[name]:
		s.subscribe(name)
	case s.connected && s.awaited[name] == 0:
		sub.confirm()
	}
	return sub
}

// end ends the session if it has had no subscription for a while.
func (s *session) end() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if len(s.channels) == 0 && s.hub.session == s {
		s.hub.session = nil
		s.cancel()
	}
}

// run keeps one session after the other connected, and returns when there is none.
func (h *Hub) run() {
	for {
		h.mu.Lock()
		s := h.session
		h.running = s != nil
		h.mu.Unlock()
		if s == nil {
			return
		}
		s.run()
	}
}

// run keeps the session connected until it ends.
func (s *session) run() {
	delay := minDelay
	for {
		err := s.connect()
		more, worked := s.lost(err)
		if !more {
			return
		}
		if worked >= maxDelay {
			delay = minDelay
		}
		select {
		case <-time.After(delay/2 + rand.N(delay/2)):
			delay = min(2*delay, maxDelay)
		case <-s.ctx.Done():
		}
	}
}

// connect opens a connection and works with it until it is lost or the session ends.
func (s *session) connect() error {
	var conn Conn
	err := try(func() (err error) {
		conn, err = s.hub.Dial(s.ctx)
		return err
	})
	if err != nil {
		return err
	}
	if conn == nil {
		return errNoConn
	}
	ctx, cancel := context.WithCancel(s.ctx)
	hangUp := func() { _ = try(conn.Close) }
	stop := context.AfterFunc(ctx, hangUp)
	s.begin()
	written := make(chan error, 1)
	go func() {
		defer cancel()
		written <- try(func() error { return s.write(ctx, conn) })
	}()
	err = try(func() error { return s.read(conn) })
	select {
	case err = <-written: // this made Receive fail
	default:
		defer func() { <-written }()
	}
	cancel()
	stop()
	hangUp()
	return err
}

var errNoConn = errors.New("pubsub: Dial returned neither a connection nor an error")

// try calls f, and returns its error or what it panicked with.
func try(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = pool.Recovered(value)
		}
	}()
	return f()
}

// begin notes that there is a connection, and subscribes to all channels.
func (s *session) begin() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.connected = true
	s.awaited, s.refused = make(map[string]int), make(map[string]bool)
	for name := range s.channels {
		s.subscribe(name)
	}
}

// subscribe asks the node for a channel. The caller holds Hub.mu.
func (s *session) subscribe(name string) {
	if s.connected { // otherwise begin does it
		s.awaited[name]++
		delete(s.refused, name)
		s.request("SUBSCRIBE", name)
	}
}

// request lets write send a command. The caller holds Hub.mu.
func (s *session) request(command, name string) {
	s.outbox = append(s.outbox, request{command, name})
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// write sends what is asked for, until ctx ends or the connection is lost.
func (s *session) write(ctx context.Context, conn Conn) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ping.C:
			s.tick()
		case <-s.kick:
		}
		for r, ok := s.next(); ok; r, ok = s.next() {
			if err := conn.Send(r.command, r.channel); err != nil {
				return err
			}
		}
	}
}

// tick asks for a sign of life, and again for the channels that the node refused to those who had
// them on an earlier connection.
func (s *session) tick() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.request("PING", "")
	for name := range s.refused {
		s.subscribe(name)
	}
}

// next moves a request from outbox to sent, before it is written: the reply may arrive at once.
func (s *session) next() (request, bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if len(s.outbox) == 0 {
		return request{}, false
	}
	r := s.outbox[0]
	s.outbox = s.outbox[1:]
	s.sent = append(s.sent, r)
	return r, true
}

// read handles what arrives until the connection is lost.
func (s *session) read(conn Conn) error {
	for {
		event, err := conn.Receive(silence)
		if err != nil {
			return err
		}
		s.handle(event)
	}
}

func (s *session) handle(event Event) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	switch event.Kind {
	case Message:
		for _, sub := range s.channels[event.Channel] {
			sub.deliver(event.Payload)
		}
	case Subscribed:
		s.replied(request{"SUBSCRIBE", event.Channel})
		s.confirm(event.Channel)
	case Unsubscribed:
		s.replied(request{"UNSUBSCRIBE", event.Channel})
	case Pong:
		s.replied(request{"PING", ""})
	case Refused:
		r := request{"SUBSCRIBE", event.Channel}
		if event.Channel != "" {
			s.replied(r)
		} else if len(s.sent) > 0 {
			r, s.sent = s.sent[0], s.sent[1:]
		}
		if r.command == "SUBSCRIBE" {
			s.refuse(r.channel, event.Err)
		}
	}
}

// replied notes that the oldest request like r has its reply, and so have all before it. The caller
// holds Hub.mu.
func (s *session) replied(r request) {
	if i := slices.Index(s.sent, r); i >= 0 {
		s.sent = s.sent[i+1:]
	}
}

// settled notes the reply to a SUBSCRIBE, and reports whether it is the last for the channel. The
// caller holds Hub.mu.
func (s *session) settled(name string) bool {
	s.awaited[name]--
	if s.awaited[name] > 0 {
		return false
	}
	delete(s.awaited, name)
	return true
}

// confirm notes that the node has confirmed a channel. The caller holds Hub.mu.
func (s *session) confirm(name string) {
	if s.confirmed.IsZero() {
		s.confirmed = time.Now()
	}
	if !s.settled(name) {
		return
	}
	for _, sub := range s.channels[name] {
		if sub.confirmed {
			sub.deliver("")
		} else {
			sub.confirm()
		}
	}
}

// refuse notes that the node has refused a channel. The caller holds Hub.mu.
func (s *session) refuse(name string, err error) {
	if !s.settled(name) {
		return
	}
	s.fail(name, err)
	if s.channels[name] != nil {
		s.refused[name] = true
	}
	s.rest()
}

// fail tells those who wait for the confirmation of a channel that there will be none. The caller
// holds Hub.mu.
func (s *session) fail(name string, err error) {
	var kept []*subscription
	for _, sub := range s.channels[name] {
		if sub.confirmed {
			kept = append(kept, sub)
			continue
		}
		sub.err, sub.closed = err, true
		close(sub.ready)
	}
	if s.channels[name] = kept; kept == nil {
		delete(s.channels, name)
	}
}

// rest begins the time after which an unused session ends. The caller holds Hub.mu.
func (s *session) rest() {
	if len(s.channels) == 0 {
		s.unused.Reset(linger)
	}
}

// lost notes the end of a connection, or of the attempt to open one. It reports whether there is
// still somebody to open another for, and for how long the connection worked. Those who wait for a
// confirmation are told: the node is in trouble, and waiting for it is not their business.
func (s *session) lost(err error) (more bool, worked time.Duration) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if !s.confirmed.IsZero() {
		worked = time.Since(s.confirmed)
	}
	s.connected, s.confirmed = false, time.Time{}
	s.awaited, s.refused, s.outbox, s.sent = nil, nil, nil, nil
	for name := range s.channels {
		s.fail(name, err)
	}
	if len(s.channels) > 0 {
		return true, worked
	}
	if s.hub.session == s {
		s.hub.session = nil
	}
	s.cancel()
	return false, worked
}

// confirm ends the wait of Subscribe. The caller holds Hub.mu.
func (sub *subscription) confirm() {
	sub.confirmed = true
	close(sub.ready)
}

// deliver hands over a message, unless the subscriber has enough to read. The caller holds Hub.mu.
func (sub *subscription) deliver(payload string) {
	select {
	case sub.messages <- payload:
	default:
	}
}

func (sub *subscription) Messages() <-chan string { return sub.messages }

func (sub *subscription) Close() error {
	s := sub.session
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if sub.closed {
		return nil
	}
	sub.closed = true
	subs := s.channels[sub.channel]
	i := slices.Index(subs, sub)
	subs = slices.Delete(subs, i, i+1)
	if s.channels[sub.channel] = subs; len(subs) > 0 {
		return nil
	}
	delete(s.channels, sub.channel)
	delete(s.refused, sub.channel)
	if s.connected {
		s.request("UNSUBSCRIBE", sub.channel)
	}
	s.rest()
	return nil
}
