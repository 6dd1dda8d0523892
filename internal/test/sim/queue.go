package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/wire"
)

// The queue of those who wait for a lock, as a sorted set.

// standing is a member of a queue.
type standing struct {
	member string
	ticket int64
}

// waiting is a queue, in order.
type waiting struct {
	all     []standing
	expires time.Duration // by the node's clock
}

// channelLength is how much of a member is its channel; the rest is its value.
const channelLength = 39

// handedOn is what a release replies that has handed the key on.
const handedOn = 2

// reserved is what a key holds that is reserved for a member.
func reserved(member string) string { return "~" + member }

// isReserved tells whether a key that holds the value is reserved for somebody.
func isReserved(value string) bool { return strings.HasPrefix(value, "~redlock:turn:") }

func (w standing) compare(o standing) int {
	if w.ticket != o.ticket {
		return int(min(max(w.ticket-o.ticket, -1), 1))
	}
	return strings.Compare(w.member, o.member)
}

// waiting returns the queue of that name, or nil. The caller holds the mutex.
func (n *Node) waiting(name string) *waiting {
	q := n.queues[name]
	if q != nil && (len(q.all) == 0 || q.expires <= n.clock.now()) {
		delete(n.queues, name)
		return nil
	}
	return q
}

// waits reports whether c's member is in the queue. The caller holds the mutex.
func (n *Node) waits(c *command) bool {
	q := n.waiting(c.queue)
	return q != nil && slices.ContainsFunc(q.all,
		func(s standing) bool { return s.member == c.member })
}

// leave removes a member. The caller holds the mutex.
func (n *Node) leave(queue, member string) {
	if q := n.waiting(queue); q != nil {
		q.all = slices.DeleteFunc(q.all, func(s standing) bool { return s.member == member })
	}
}

// bid is what a member of the queue has said in advance.
type bid struct {
	member, number, value string
	expiry                time.Duration // of the key
}

// offer keeps a bid. The caller holds the mutex.
func (n *Node) offer(client string, c *command) {
	n.put(c.bid, fmt.Sprintf("%s%s %s %d %s", bidStart(c), c.member, c.number,
		c.expiry.Milliseconds(), c.value), c.keep)
	n.bidders[c.bid] = client
}

// bidStart is what a bid for c's key begins with.
func bidStart(c *command) string { return fmt.Sprintf("%d %s ", len(c.key), c.key) }

// bidding returns the bid that c has the key of, if it is one for c's key. The caller holds the
// mutex.
func (n *Node) bidding(c *command) bid {
	bids := n.get(c.bid).value
	if bids == "" {
		return bid{}
	}
	text, ok := strings.CutPrefix(bids, bidStart(c))
	parts := strings.SplitN(text, " ", 4)
	if !ok || len(parts) < 4 {
		return bid{}
	}
	ms, _ := strconv.ParseInt(parts[2], 10, 64)
	return bid{parts[0], parts[1], parts[3], time.Duration(ms) * time.Millisecond}
}

// Confuse lets the node find beside one lock what is beside another, as if the two shared their
// keys. Whoever has bid for the other has bid beside this one, and is the first who waits. It also
// hears that it has this lock. Confuse reports whether there was a bid.
func (n *Node) Confuse(lock, other string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	from, to := wire.BidKey(other), wire.BidKey(lock)
	b := n.bidding(&command{key: other, bid: from})
	if b.member == "" || n.down {
		return false
	}
	n.keys[to], n.bidders[to] = n.keys[from], n.bidders[from]
	q := n.place(&command{queue: wire.QueueKey(lock), member: b.member}, 0)
	q.expires = max(q.expires, n.keys[from].expires)
	n.publish(b.member[:channelLength], lock+" "+b.number)
	return true
}

// takeUp gives the key to the bidder. The caller holds the mutex.
func (n *Node) takeUp(c *command, b bid) {
	n.put(c.key, b.value, b.expiry)
	if n.log.used.Load() {
		n.log.add(Event{
			Node: n.id, Client: n.bidders[c.bid], Command: commandNames[cmdBid], Key: c.key,
			Value: b.value, Member: b.member, After: b.value, Effect: Granted,
		})
	}
}

// tellNext tells the first in the queue that it is the next. The caller holds the mutex.
func (n *Node) tellNext(c *command) {
	if q := n.waiting(c.queue); q != nil && len(q.all) > 0 {
		next := q.all[0].member
		n.publish(next[:channelLength], next[channelLength:]+"+")
	}
}

// handOn gives the key to the first in the queue who hears of it, or else reserves it for the
// first, and takes those out. It reports whether there was one. The caller holds the mutex.
func (n *Node) handOn(c *command) bool {
	first, leaves := "", !c.stands() && c.ticket == 0
	bid := n.bidding(c)
	for q := n.waiting(c.queue); q != nil && len(q.all) > 0; {
		to := q.all[0].member
		q.all = q.all[1:]
		if first == "" {
			first = to
		}
		heard := c.stands() || c.ticket != 0 // by the member itself
		takesUp := leaves && to == bid.member
		switch {
		case takesUp && n.publish(to[:channelLength], c.key+" "+bid.number) > 0:
			n.takeUp(c, bid)
			n.tellNext(c)
			return true
		case !takesUp && to != c.member:
			heard = n.publish(to[:channelLength], to[channelLength:]) > 0
		}
		if heard || c.stands() && n.get(c.key).value == reserved(c.member) {
			first = to
			break
		}
	}
	if first == "" {
		return false
	}
	n.put(c.key, reserved(first), c.window)
	if leaves {
		n.tellNext(c)
	}
	return true
}

// place gives c's member the ticket. The caller holds the mutex.
func (n *Node) place(c *command, ticket int64) *waiting {
	q := n.waiting(c.queue)
	if q == nil {
		q = &waiting{}
		n.queues[c.queue] = q
	}
	q.all = slices.DeleteFunc(q.all, func(s standing) bool { return s.member == c.member })
	me := standing{c.member, ticket}
	at, _ := slices.BinarySearchFunc(q.all, me, standing.compare)
	q.all = slices.Insert(q.all, at, me)
	return q
}

// rank returns how many are before a member, 0 for one that is not there.
func (w *waiting) rank(member string) int {
	return max(0, slices.IndexFunc(w.all, func(s standing) bool { return s.member == member }))
}

// deep is how many are before a member that is kept on the roll from the start, and perSecond for
// how many of them it is given one more second.
const (
	deep      = 300
	perSecond = 100
)

// excuse takes a member off the roll, where one that has just come is not. One with many before it
// is given time until it asks again instead. The caller holds the mutex.
func (n *Node) excuse(c *command, rank int, came bool) {
	if rank < deep {
		if c.final || !came {
			n.leave(c.roll, c.member)
		}
		return
	}
	n.leave(c.roll, c.member)
	roll := n.waiting(c.roll)
	if roll == nil {
		roll = &waiting{}
		n.queues[c.roll] = roll
	}
	until := int64(n.clock.now()/time.Second) + c.grace + int64(rank/perSecond)
	roll.all = append(roll.all, standing{c.member, until})
	roll.expires = n.clock.now() + c.keep
}

// callRoll removes from the queue those who have not stood again within the grace that they were
// given, and gives one to those who have none. C's member has just shown that it lives. The caller
// holds the mutex.
func (n *Node) callRoll(c *command, q *waiting) {
	now := int64(n.clock.now() / time.Second)
	roll := n.waiting(c.roll)
	if roll == nil {
		roll = &waiting{}
	}
	has := map[string]bool{}
	var left []standing
	for _, s := range roll.all {
		if s.ticket <= now {
			if s.member != c.member {
				n.leave(c.queue, s.member)
			}
			continue
		}
		left = append(left, s)
		has[s.member] = true
	}
	for _, s := range q.all {
		if s.member != c.member && !has[s.member] {
			left = append(left, standing{s.member, now + c.grace})
		}
	}
	roll.all, roll.expires = left, n.clock.now()+c.keep
	n.queues[c.roll] = roll
}

// stand puts the member into the queue.
func (n *Node) stand(c *command) any {
	v, ticket := n.get(c.key).value, c.token
	mine := v == reserved(c.member)
	free := mine || c.value != "" && v == c.value
	if mine && !c.final {
		return []any{integer(ticket), integer(-1), integer(-1)}
	}
	last, _ := strconv.ParseInt(n.get(c.fence).value, 10, 64)
	if !c.final {
		ticket = max(ticket, last+1)
	}
	came := !n.waits(c)
	q := n.place(c, ticket)
	if came || c.renews {
		q.expires = n.clock.now() + c.keep
	}
	if came || c.renews || ticket > last {
		n.put(c.fence, strconv.FormatInt(max(ticket, last), 10), c.keep)
	}
	n.excuse(c, q.rank(c.member), came)
	_, taken := n.keys[c.key]
	if !taken {
		n.callRoll(c, q)
	}
	if free || !taken {
		n.handOn(c)
		if n.get(c.key).value == reserved(c.member) {
			return []any{integer(ticket), integer(-1), integer(-1)}
		}
	}
	rank := q.rank(c.member)
	left := int64(-1)
	if rank == 0 {
		if e := n.get(c.key); e.expires != 0 {
			left = (e.expires - n.clock.now()).Milliseconds()
		}
	}
	return []any{integer(ticket), integer(int64(rank)), integer(left)}
}

// Queue returns the members of the queue under key, in order.
func (n *Node) Queue(key string) (members []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q := n.waiting(key); q != nil {
		for _, s := range q.all {
			members = append(members, s.member)
		}
	}
	return members
}

// Standings returns the members of the queue under key and their tickets, in order.
func (n *Node) Standings(key string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := []string{}
	for _, s := range n.standings(key) {
		all = append(all, s.(string))
	}
	return all
}

// standings is Standings as a reply. The caller holds the mutex.
func (n *Node) standings(key string) []any {
	all := []any{}
	if q := n.waiting(key); q != nil {
		for _, s := range q.all {
			all = append(all, s.member, strconv.FormatInt(s.ticket, 10))
		}
	}
	return all
}
