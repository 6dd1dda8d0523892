package pubsub

import (
	"context"
	"slices"
	"time"
)

// A connection on which nothing arrives for silence is given up. A PING every pingEvery makes sure
// that something arrives.
const (
	pingEvery = 3 * time.Second
	silence   = 2*pingEvery + time.Second
)

// connection is a connection, and what was asked for on it. Hub.mu guards its fields, except those
// that do not change.
type connection struct {
	Conn
	kick chan struct{} // tells write to look into outbox; has room for one

	confirmed time.Time       // when it confirmed the first subscription; zero before
	refused   map[string]bool // channels with subscribers whose SUBSCRIBE the node refused
	outbox    []request       // not yet written
	sent      []request       // written, in order, without a reply yet
}

type request struct{ command, channel string }

// begin notes that there is a connection, on which the node was asked for a channel. It subscribes
// to the others.
func (h *Hub) begin(conn Conn, asked string) *connection {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &connection{
		Conn: conn, kick: make(chan struct{}, 1),
		refused: make(map[string]bool), sent: []request{{"SUBSCRIBE", asked}},
	}
	if h.channels[asked] == nil { // nobody wants it any more
		c.request("UNSUBSCRIBE", asked)
	}
	for name := range h.channels {
		if name != asked {
			c.subscribe(name)
		}
	}
	h.conn = c
	return c
}

// subscribe asks the node for a channel. The caller holds Hub.mu.
func (c *connection) subscribe(name string) {
	delete(c.refused, name)
	c.request("SUBSCRIBE", name)
}

// awaits reports whether a SUBSCRIBE of the channel has no reply yet. Only the reply to the last
// one counts: the UNSUBSCRIBE of an earlier subscription may follow the first. The caller holds
// Hub.mu.
func (c *connection) awaits(name string) bool {
	r := request{"SUBSCRIBE", name}
	return slices.Contains(c.sent, r) || slices.Contains(c.outbox, r)
}

// request lets write send a command. The caller holds Hub.mu.
func (c *connection) request(command, name string) {
	c.outbox = append(c.outbox, request{command, name})
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// write sends what is asked for, until ctx ends or the connection is lost.
func (h *Hub) write(ctx context.Context, c *connection) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ping.C:
			h.tick(c)
		case <-c.kick:
		}
		for r, ok := h.pop(c); ok; r, ok = h.pop(c) {
			if err := c.Send(r.command, r.channel); err != nil {
				return err
			}
		}
	}
}

// tick asks for a sign of life, and again for the channels that the node refused to those who had
// them on an earlier connection.
func (h *Hub) tick(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.request("PING", "")
	for name := range c.refused {
		c.subscribe(name)
	}
}

// pop moves a request from outbox to sent, before it is written: the reply may arrive at once.
func (h *Hub) pop(c *connection) (request, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(c.outbox) == 0 {
		return request{}, false
	}
	r := c.outbox[0]
	c.outbox = c.outbox[1:]
	c.sent = append(c.sent, r)
	return r, true
}

// read handles what arrives until the connection is lost.
func (h *Hub) read(c *connection) error {
	for {
		event, err := c.Receive(silence)
		if err != nil {
			return err
		}
		h.handle(c, event)
	}
}

func (h *Hub) handle(c *connection, event Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch event.Kind {
	case Message:
		for _, sub := range h.channels[event.Channel] {
			sub.deliver(event.Payload)
		}
	case Subscribed:
		c.replied(request{"SUBSCRIBE", event.Channel})
		h.confirm(c, event.Channel)
	case Unsubscribed:
		c.replied(request{"UNSUBSCRIBE", event.Channel})
	case Pong:
		c.replied(request{"PING", ""})
	case Refused:
		r := request{"SUBSCRIBE", event.Channel}
		if event.Channel != "" {
			c.replied(r)
		} else if len(c.sent) > 0 {
			r, c.sent = c.sent[0], c.sent[1:]
		}
		if r.command == "SUBSCRIBE" {
			h.refuse(c, r.channel, event.Err)
		}
	}
}

// replied notes that the oldest request like r has its reply, and so have all before it. The
// caller holds Hub.mu.
func (c *connection) replied(r request) {
	if i := slices.Index(c.sent, r); i >= 0 {
		c.sent = c.sent[i+1:]
	}
}

// confirm notes that the node has confirmed a channel. The caller holds mu.
func (h *Hub) confirm(c *connection, name string) {
	if c.confirmed.IsZero() {
		c.confirmed = time.Now()
	}
	if c.awaits(name) {
		return
	}
	for _, sub := range h.channels[name] {
		if sub.confirmed {
			sub.deliver("")
		} else {
			sub.confirm()
		}
	}
}

// refuse notes that the node has refused a channel. The caller holds mu.
func (h *Hub) refuse(c *connection, name string, err error) {
	if c.awaits(name) {
		return
	}
	h.fail(name, err)
	if h.channels[name] != nil {
		c.refused[name] = true
	}
}
