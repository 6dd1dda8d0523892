package sim

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Codes of the commands a node knows. Except for SET and SUBSCRIBE they are the scripts of
// internal/scripts as typed operations. A differential test compares them with the Lua text.
const (
	cmdSet = iota
	cmdRelease
	cmdExtend
	cmdValid
	cmdAcquire
	cmdRaise
	cmdInspect
	cmdStand
	cmdClaim
	cmdBid
	cmdHeal
	cmdSwap
	cmdQueue
	cmdShare
	cmdUnshare
	cmdSeat
	cmdStandShare
	cmdLift
	cmdReaders
	cmdSubscribe
	commandCount
)

var commandNames = [commandCount]string{"set", "release", "extend", "valid", "acquire", "raise",
	"inspect", "stand", "claim", "bid", "heal", "swap", "queue", "share", "unshare",
	"seat", "standshare", "lift", "readers", "subscribe"}

func mustCommand(name string) int {
	for code, n := range commandNames {
		if n == name {
			return code
		}
	}
	panic(fmt.Sprintf("sim: no command %q: must be one of %q", name, commandNames))
}

// maxToken is the largest integer up to which a double counts exactly.
const maxToken = 1<<53 - 1

// A command is one command with its arguments.
type command struct {
	code  int
	key   string
	value string
	// Key of the fence counter, or of stand that of the greatest ticket; "" for none.
	fence   string
	channel string        // of subscribe
	queue   string        // key of the queue, "" for none
	bid     string        // key of the bid, "" for none
	number  string        // of a bid
	member  string        // of the queue
	seats   string        // key of those who share the lock, "" for none
	roll    string        // key of those of the queue who have to show that they live
	ticket  int64         // with which the member comes back; 0 for none
	window  time.Duration // of a reservation

	old    string        // what the key must hold; of swap
	free   bool          // the key may be overwritten; of claim, heal and swap
	expiry time.Duration // of key
	keep   time.Duration // expiry of fence, 0 for none; of a bid its life
	guard  int64         // seconds
	grace  int64         // seconds in which those of the queue have to show that they live
	token  int64         // proposed, or raised to; of stand the ticket
	final  bool          // the ticket is
	renews bool          // the queue
	sub    *subscription // of subscribe
}

// beside returns the keys of c beside the lock's, and "" for each that it has not.
func (c *command) beside() [5]string {
	ticket := ""
	if c.code == cmdStand || c.code == cmdStandShare {
		ticket = c.fence
	}
	return [...]string{c.queue, c.bid, c.roll, ticket, c.seats}
}

// integer boxes a number as clients return it. Numbers from 0 to 255 cost no allocation.
func integer(n int64) any { return n }

// holds returns 1 if the key holds c's value, 0 if there is no key, -1 if it is
// somebody else's.
func (n *Node) holds(c *command) int64 {
	e, ok := n.get(c.key), false
	if e == (entry{}) {
		_, ok = n.keys[c.key] // an empty value is a value
	}
	switch {
	case e == entry{} && !ok:
		return 0
	case e.value == c.value:
		return 1
	default:
		return -1
	}
}

// has is holds to which a reservation is no key.
func (n *Node) has(c *command) int64 {
	if isReserved(n.get(c.key).value) {
		return 0
	}
	return n.holds(c)
}

// put sets a key that expires.
func (n *Node) put(key, value string, expiry time.Duration) {
	n.keys[key] = entry{value: value, expires: n.clock.in(expiry)}
}

// count sets a fence counter.
func (n *Node) count(c *command, token int64) {
	e := entry{value: strconv.FormatInt(token, 10)}
	if c.keep != 0 {
		e.expires = n.clock.in(c.keep)
	}
	n.keys[c.fence] = e
}

func (n *Node) set(c *command) (any, Effect, error) {
	if c.expiry < time.Millisecond {
		return nil, None, errors.New("ERR invalid expire time in 'set' command")
	}
	if n.holds(c) != 0 {
		return false, None, nil
	}
	n.put(c.key, c.value, c.expiry)
	return true, Granted, nil
}

func (n *Node) release(c *command) (any, Effect) {
	held := n.holds(c)
	if b := n.bidding(c); b.member == c.member && b.value == c.value {
		delete(n.keys, c.bid)
	}
	if c.member != "" && c.ticket == 0 {
		n.leave(c.queue, c.member)
	}
	if held == 1 || c.member != "" && n.get(c.key).value == reserved(c.member) {
		if c.ticket != 0 {
			n.place(c, c.ticket).expires = n.clock.now() + c.keep
		}
		reply := int64(1)
		if c.queue == "" || !n.handOn(c) {
			delete(n.keys, c.key)
		} else {
			reply = handedOn
		}
		if held == 1 {
			return integer(reply), Deleted
		}
		return integer(0), None
	}
	if held == 0 {
		return integer(0), None
	}
	e := n.get(c.key)
	if e.expires == 0 {
		return integer(-1), None
	}
	return integer(-2 - (e.expires - n.clock.now()).Milliseconds()), None
}

func (n *Node) extend(c *command) (any, Effect) {
	held := n.has(c)
	if held != 1 {
		return integer(held), None
	}
	n.put(c.key, c.value, c.expiry)
	if c.fence != "" {
		if e := n.get(c.fence); e != (entry{}) {
			n.put(c.fence, e.value, c.keep)
		}
	}
	return integer(1), Extended
}

func (n *Node) acquire(c *command) (any, Effect, error) {
	held := n.holds(c)
	if c.free {
		held = 0
	}
	if held < 0 {
		return integer(0), None, nil
	}
	if c.guard > 0 && held == 0 {
		if up := int64((n.clock.now() - n.started) / time.Second); up < c.guard {
			return integer(up - c.guard), None, nil
		}
	}
	token := int64(1)
	if c.fence != "" {
		token = c.token
		if v := n.get(c.fence).value; v != "" {
			stored, ok := counter(v)
			if !ok {
				return nil, None, errForeign(c.fence)
			}
			if held == 1 {
				return integer(stored), None, nil
			}
			token = max(token, stored+1)
		}
		if token > maxToken {
			return nil, None, fmt.Errorf("ERR redlock: the fence counter %s is at its end", c.fence)
		}
		n.count(c, token)
	}
	if held == 1 {
		return integer(token), None, nil
	}
	n.put(c.key, c.value, c.expiry)
	return integer(token), Granted, nil
}

func (n *Node) raise(c *command) (any, Effect, error) {
	held := n.holds(c)
	if held != 1 {
		return integer(held), None, nil
	}
	if v := n.get(c.fence).value; v != "" {
		stored, ok := counter(v)
		if !ok {
			return nil, None, errForeign(c.fence)
		}
		if stored >= c.token {
			return integer(1), None, nil
		}
	}
	n.count(c, c.token)
	return integer(1), Raised, nil
}

func (n *Node) inspect(c *command) any {
	e := n.get(c.key)
	_, ok := n.keys[c.key]
	if !ok {
		return []any{}
	}
	reply := []any{e.value, integer(-1)}
	if e.expires != 0 {
		reply[1] = integer((e.expires - n.clock.now()).Milliseconds())
	}
	if c.fence != "" {
		reply = append(reply, n.get(c.fence).value)
	}
	return reply
}

// counter reads a fence counter: at most 16 digits, and no more than a token can be.
func counter(v string) (int64, bool) {
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return n, err == nil && len(v) <= 16 && n <= maxToken
}

func errForeign(fence string) error {
	return fmt.Errorf("ERR redlock: the fence counter %s holds something else", fence)
}
