package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/wire"
)

// Those who share a lock, as a sorted set of their values and of when their seats end, in
// milliseconds of the node's clock.

// notLast is what an unshare replies that leaves other readers.
const notLast = 3

// stands reports whether c takes a place in the queue.
func (c *command) stands() bool { return c.code == cmdStand || c.code == cmdStandShare }

// millis is what the node's clock shows, as scripts see it.
func (n *Node) millis() int64 { return int64(n.clock.now() / time.Millisecond) }

// reads reports whether readers have c's key. The caller holds the mutex.
func (n *Node) reads(c *command) bool { return n.get(c.key).value == wire.Marker }

// sits reports whether somebody has a seat beside c's key that has not ended. The caller holds the
// mutex.
func (n *Node) sits(c *command, who string) bool {
	ends, is := n.score(c, who)
	return is && ends > n.millis()
}

// score returns when a seat beside c's key ends, if it is there. The caller holds the mutex.
func (n *Node) score(c *command, value string) (ends int64, is bool) {
	if q := n.waiting(c.seats); q != nil {
		for _, s := range q.all {
			if s.member == value {
				return s.ticket, true
			}
		}
	}
	return 0, false
}

// sit gives a seat. The caller holds the mutex.
func (n *Node) sit(c *command, value string, lasts time.Duration) {
	ends := n.millis() + lasts.Milliseconds()
	q := n.place(&command{queue: c.seats, member: value}, ends)
	q.expires = max(q.expires, time.Duration(ends)*time.Millisecond)
}

// keepSeats lets the key live for as long as the last seat. It reports whether that has not ended.
// The caller holds the mutex.
func (n *Node) keepSeats(c *command) bool {
	q := n.waiting(c.seats)
	if q == nil || q.all[len(q.all)-1].ticket <= n.millis() {
		return false
	}
	q.expires = time.Duration(q.all[len(q.all)-1].ticket) * time.Millisecond
	n.keys[c.key] = entry{n.get(c.key).value, q.expires}
	return true
}

// admit lets in those who are first in the queue and share. The member whose command it is need not
// hear. The caller holds the mutex.
func (n *Node) admit(c *command, member string) {
	seated := false
	for range 100 {
		q := n.waiting(c.queue)
		if q == nil {
			break
		}
		to := q.all[0].member
		channel, number := to[:channelLength], to[channelLength:]
		shares := strings.HasSuffix(to, wire.Shares)
		if !shares && n.publish(channel, number+"+") > 0 {
			break
		}
		n.leave(c.queue, to)
		if shares && (to == member || n.publish(channel, number) > 0) {
			n.sit(c, reserved(to), c.window)
			seated = true
		}
	}
	if seated {
		n.keepSeats(c)
	}
}

// share acquires for a reader.
func (n *Node) share(c *command) (any, Effect, error) {
	held := n.get(c.key)
	_, exists := n.keys[c.key]
	reads, heals := n.reads(c), c.member == wire.Shares && isReserved(held.value)
	if exists && !reads && held.value != reserved(c.member) && !heals {
		return integer(0), None, nil
	}
	mine := reads && n.sits(c, c.value)
	switch {
	case reads && c.member == "" && !mine && n.waiting(c.queue) != nil:
		n.admit(c, "")
		if n.waiting(c.queue) != nil {
			return integer(0), None, nil
		}
	case !reads:
		delete(n.queues, c.seats)
	}
	marker := *c
	marker.value, marker.free = wire.Marker, exists
	if reads {
		left := (held.expires - n.clock.now()).Truncate(time.Millisecond)
		marker.expiry = max(c.expiry, left)
	}
	reply, _, err := n.acquire(&marker)
	if token, _ := reply.(int64); err != nil || token < 1 {
		return reply, None, err
	} else if c.fence != "" && token == maxToken {
		return nil, None, errors.New("ERR redlock: the fence counter " + c.fence +
			" is at its end")
	}
	n.leave(c.seats, reserved(c.member))
	if q := n.waiting(c.seats); q != nil && reads {
		q.all = slices.DeleteFunc(q.all, func(s standing) bool { return s.ticket <= n.millis() })
	}
	n.sit(c, c.value, c.expiry)
	n.keepSeats(c)
	n.leave(c.queue, c.member)
	n.admit(c, "")
	if mine {
		return reply, None, nil
	}
	return reply, Granted, nil
}

// unshare ends a reader's seat.
func (n *Node) unshare(c *command) (any, Effect) {
	reads := n.reads(c)
	mine := reads && n.sits(c, c.value)
	_, had := n.score(c, c.value)
	_, kept := n.score(c, reserved(c.member))
	if reads {
		n.leave(c.seats, c.value)
		n.leave(c.seats, reserved(c.member))
	}
	if reads && n.keepSeats(c) {
		if c.ticket == 0 {
			n.leave(c.queue, c.member)
		} else if had || kept {
			n.place(c, c.ticket).expires = n.clock.now() + c.keep
		}
		n.admit(c, c.member)
		if mine {
			return integer(notLast), Deleted
		}
		return integer(-2 - (n.get(c.key).expires - n.clock.now()).Milliseconds()), None
	}
	last := *c
	if reads {
		last.value = wire.Marker
	}
	reply, effect := n.release(&last)
	if reads && !mine {
		return integer(min(reply.(int64), 0)), None
	}
	return reply, effect
}

// seat asks for a reader's seat, or sets its end anew.
func (n *Node) seat(c *command) (any, Effect) {
	held := n.get(c.key).value
	if _, exists := n.keys[c.key]; exists && held != wire.Marker && !isReserved(held) {
		return integer(-1), None
	}
	if held != wire.Marker || !n.sits(c, c.value) {
		return integer(0), None
	}
	if c.expiry == 0 {
		return integer(1), None
	}
	n.sit(c, c.value, c.expiry)
	n.keepSeats(c)
	if e := n.get(c.fence); c.fence != "" && e != (entry{}) {
		n.put(c.fence, e.value, c.keep)
	}
	return integer(1), Extended
}

// standShare puts a member into the queue that shares.
func (n *Node) standShare(c *command) any {
	if n.reads(c) {
		if !c.final && n.sits(c, reserved(c.member)) {
			return []any{integer(c.token), integer(-1), integer(-1)}
		}
		n.leave(c.seats, reserved(c.member))
		n.leave(c.seats, c.value)
		if !n.keepSeats(c) {
			n.put(c.key, reserved(c.member), c.window)
		}
	}
	said := n.stand(c)
	if !n.reads(c) {
		return said
	}
	n.callWriters(c)
	n.admit(c, c.member)
	ticket := said.([]any)[0]
	if n.sits(c, reserved(c.member)) {
		return []any{ticket, integer(-1), integer(-1)}
	}
	rank, left := 0, int64(-1)
	if q := n.waiting(c.queue); q != nil {
		rank = q.rank(c.member)
	}
	if rank == 0 {
		left = (n.get(c.key).expires - n.clock.now()).Milliseconds()
	}
	return []any{ticket, integer(int64(rank)), integer(left)}
}

// callWriters calls the roll for those in the queue before the first who shares, up to 100 of them.
// The caller holds the mutex.
func (n *Node) callWriters(c *command) {
	q := n.waiting(c.queue)
	if q == nil {
		return
	}
	now := int64(n.clock.now() / time.Second)
	for _, s := range slices.Clone(q.all[:min(len(q.all), 100)]) {
		if strings.HasSuffix(s.member, wire.Shares) {
			return
		}
		roll := &command{queue: c.roll, member: s.member}
		switch due, called := n.score(&command{seats: c.roll}, s.member); {
		case !called:
			n.place(roll, now+c.grace).expires = n.clock.now() + c.keep
		case due <= now:
			n.leave(c.queue, s.member)
			n.leave(c.roll, s.member)
		}
	}
}

// lift raises a reader's token.
func (n *Node) lift(c *command) (any, Effect, error) {
	if n.reads(c) && n.sits(c, c.value) {
		marker := *c
		marker.value = wire.Marker
		return n.raise(&marker)
	}
	return n.raise(c)
}

// readers tells who shares c's key.
func (n *Node) readers(c *command) any {
	all := []any{}
	if q := n.waiting(c.seats); q != nil && n.reads(c) {
		for _, s := range q.all {
			if left := s.ticket - n.millis(); left > 0 && !isReserved(s.member) {
				all = append(all, s.member, integer(left))
			}
		}
	}
	return all
}

// seen is what the key holds to the one who sent c. The caller holds the mutex.
func (n *Node) seen(c *command) string {
	if c.seats == "" || !n.reads(c) {
		return n.get(c.key).value
	}
	if n.sits(c, c.value) {
		return c.value
	}
	return ""
}

// Has reports whether the node has a value of that kind under key, or that of a reader.
func (n *Node) Has(key string, is func(value string) bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &command{key: key, seats: wire.SeatsKey(key)}
	if q := n.waiting(c.seats); q != nil && n.reads(c) {
		return slices.ContainsFunc(q.all,
			func(s standing) bool { return s.ticket > n.millis() && is(s.member) })
	}
	value := n.get(key).value
	return value != "" && is(value)
}

// short reports whether the key ends before a seat. The caller holds the mutex.
func (n *Node) short(c *command) bool {
	q := n.waiting(c.seats)
	if q == nil || !n.reads(c) {
		return false
	}
	return n.get(c.key).expires < time.Duration(q.all[len(q.all)-1].ticket)*time.Millisecond
}
