package pubsub

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlock-go/redlock/pool"
)

const (
	// linger is how long an unused connection stays open. A process that waited for a lock often
	// waits for another one soon.
	linger = 200 * time.Millisecond
	// A connection on which nothing arrives for silence is given up. A PING every pingEvery makes
	// sure that something arrives.
	pingEvery = 3 * time.Second
	silence   = 2*pingEvery + time.Second
	// Attempts to open a lost connection again are minDelay apart at first, then more and more,
	// up to maxDelay. A connection that worked for maxDelay starts this over; one that breaks
	// earlier does not, or each reconnection would wake all subscribers, many times a second.
	minDelay = 10 * time.Millisecond
	maxDelay = time.Second
	// room is how many messages a subscriber may have unread before it misses some. A process hears
	// of all its locks on one channel. 2,000 waiters of a process had up to 403 unread on a machine
	// with five times as much to do as it could.
	room = 1024
)

// session is one run of subscriptions without a longer break between them. Hub.mu guards its
// fields, except those that do not change.
type session struct {
	hub    *Hub
	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	unused *time.Timer   // ends the session if it has no subscription when it fires
	kick   chan struct{} // tells write to look into outbox; has room for one

	channels map[string][]*subscription
	latest   string // channel that was added

	// What follows is about the present connection, and starts empty with each.

	connected bool
	confirmed time.Time // when it confirmed the first subscription; zero before
	// awaited counts the SUBSCRIBEs of each channel in outbox and sent. Only the reply to the
	// last one counts: the UNSUBSCRIBE of an earlier subscription may follow the first.
	awaited map[string]int
	refused map[string]bool // channels with subscribers whose SUBSCRIBE the node refused
	outbox  []request       // not yet written
	sent    []request       // written, in order, without a reply yet
}

type request struct{ command, channel string }

// end ends the session if it has had no subscription for a while.
func (s *session) end() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if len(s.channels) == 0 && s.hub.session == s {
		s.hub.session = nil
		s.cancel()
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
	var asked string // channel
	err := try(func() (err error) {
		if s.hub.DialWith != nil {
			asked = s.anyChannel()
			conn, err = s.hub.DialWith(s.ctx, asked)
		} else {
			conn, err = s.hub.Dial(s.ctx)
		}
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
	s.begin(asked)
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

// anyChannel returns a channel that somebody has, or had if all have closed theirs.
func (s *session) anyChannel() string {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for name := range s.channels {
		return name
	}
	return s.latest
}

// begin notes that there is a connection, and subscribes to all channels but the one that the node
// was asked for, unless that is "".
func (s *session) begin(asked string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.connected = true
	s.awaited, s.refused = make(map[string]int), make(map[string]bool)
	if asked != "" {
		s.awaited[asked]++
		s.sent = append(s.sent, request{"SUBSCRIBE", asked})
		if s.channels[asked] == nil { // nobody wants it any more
			s.request("UNSUBSCRIBE", asked)
		}
	}
	for name := range s.channels {
		if name != asked {
			s.subscribe(name)
		}
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

// replied notes that the oldest request like r has its reply, and so have all before it. The
// caller holds Hub.mu.
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
	s.armUnused()
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

// armUnused begins the time after which an unused session ends. The caller holds Hub.mu.
func (s *session) armUnused() {
	if len(s.channels) == 0 {
		s.unused.Reset(linger)
	}
}

// lost notes the end of a connection, or of the attempt to open one. It reports whether there is
// still somebody to open another for, and for how long the connection worked. Those who wait for
// a confirmation are told: the node is in trouble, and waiting for it is not their business.
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
