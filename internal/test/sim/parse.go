package sim

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/pool"
)

var errArgs = errors.New("ERR sim: wrong number or kind of arguments")

// parse makes the empty command c that of a script's keys and arguments.
func (c *command) parse(s *pool.Script, keys []string, args []any) error {
	c.code = -1
	for code := cmdRelease; code < cmdSubscribe; code++ {
		if commandNames[code] == s.Name {
			c.code = code
		}
	}
	if c.code < 0 {
		return fmt.Errorf("ERR sim: unknown script %q", s.Name)
	}
	a := arguments{rest: args}
	if c.code >= cmdShare && len(keys) > 1 {
		c.seats = keys[len(keys)-1]
		keys = keys[:len(keys)-1]
	}
	if !c.parseKeys(keys) {
		return errArgs
	}
	if c.code != cmdInspect && !c.stands() && c.code != cmdReaders && c.code != cmdQueue {
		c.value = a.text()
	}
	if c.code == cmdClaim && len(args) > 0 {
		a.rest = a.rest[:len(a.rest)-1]
		last := arguments{rest: args[len(args)-1:]}
		c.member = last.text()
		a.bad = a.bad || last.bad
	}
	if c.code == cmdShare && len(args) > 2 {
		a.rest = a.rest[:len(a.rest)-2]
		last := arguments{rest: args[len(args)-2:]}
		c.window, c.member = last.millis(), last.text()
		a.bad = a.bad || last.bad
	}
	if c.code == cmdSwap && len(args) > 0 {
		a.rest = a.rest[:len(a.rest)-1]
		last := arguments{rest: args[len(args)-1:]}
		c.old = last.text()
		a.bad = a.bad || last.bad
	}
	c.parseArguments(&a)
	if a.bad || len(a.rest) > 0 {
		return errArgs
	}
	return nil
}

// parseKeys reports whether there are as many keys as the script has.
func (c *command) parseKeys(keys []string) bool {
	switch {
	case c.code == cmdStand || c.code == cmdStandShare:
		if len(keys) != 4 {
			return false
		}
		c.queue, c.fence, c.roll = keys[1], keys[2], keys[3]
	case c.code == cmdBid:
		if len(keys) != 2 {
			return false
		}
		c.bid = keys[1]
	case c.code == cmdClaim || c.code == cmdShare:
		if len(keys) < 2 || len(keys) > 3 {
			return false
		}
		c.queue = keys[len(keys)-1]
		if len(keys) == 3 {
			c.fence = keys[1]
		}
	case len(keys) < 1 || len(keys) > 2:
		return false
	case len(keys) < 2:
	case c.code == cmdRelease || c.code == cmdUnshare || c.code == cmdQueue:
		c.queue = keys[1]
	default:
		c.fence = keys[1]
	}
	c.key = keys[0]
	return true
}

// parseArguments reads the arguments after the value.
func (c *command) parseArguments(a *arguments) {
	switch c.code {
	case cmdRelease, cmdUnshare:
		if c.queue != "" {
			c.window = a.millis()
		}
		if len(a.rest) > 0 {
			c.member = a.text()
			c.bid = strings.TrimSuffix(c.queue, "queue") + "bid"
			a.bad = a.bad || c.queue == ""
		}
		if len(a.rest) > 0 {
			c.ticket, c.keep = a.number(), a.millis()
		}
	case cmdStand, cmdStandShare:
		c.window, c.member = a.millis(), a.text()
		c.token, c.final, c.keep = a.number(), a.number() == 1, a.millis()
		c.grace, c.renews = a.number(), a.number() == 1
		if len(a.rest) > 0 {
			c.value = a.text()
		}
	case cmdBid:
		c.expiry, c.member, c.number, c.keep = a.millis(), a.text(), a.text(), a.millis()
	case cmdSeat:
		if len(a.rest) > 0 {
			c.expiry = a.millis()
		}
		if c.fence != "" && c.expiry > 0 {
			c.keep = a.millis()
		}
	case cmdExtend:
		c.expiry = a.millis()
		if c.fence != "" {
			c.keep = a.millis()
		}
	case cmdAcquire, cmdClaim, cmdHeal, cmdSwap, cmdShare:
		c.expiry = a.millis()
		if c.fence != "" {
			c.token, c.keep = a.number(), a.millis()
		}
		if len(a.rest) > 0 {
			c.guard = a.number()
		}
	case cmdRaise, cmdLift:
		c.token, c.keep = a.number(), a.millis()
		a.bad = a.bad || c.fence == ""
	}
}

// arguments reads a script's arguments one by one.
type arguments struct {
	rest []any
	bad  bool
}

func (a *arguments) take() any {
	if len(a.rest) == 0 {
		a.bad = true
		return nil
	}
	v := a.rest[0]
	a.rest = a.rest[1:]
	return v
}

func (a *arguments) text() string {
	switch v := a.take().(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case int:
		return strconv.Itoa(v)
	default:
		a.bad = true
		return ""
	}
}

func (a *arguments) number() int64 {
	switch v := a.take().(type) {
	case int64:
		return v
	case int:
		return int64(v)
	case uint64:
		return int64(v)
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		a.bad = a.bad || err != nil
		return n
	default:
		a.bad = true
		return 0
	}
}

func (a *arguments) millis() time.Duration { return time.Duration(a.number()) * time.Millisecond }

// execute runs c for client, tells the log, and returns the reply. The caller holds the mutex.
func (n *Node) execute(client string, c *command) (reply any, err error) {
	n.counts[c.code]++
	before := n.seen(c)
	var effect Effect
	switch c.code {
	case cmdSet:
		reply, effect, err = n.set(c)
	case cmdRelease:
		reply, effect = n.release(c)
	case cmdExtend:
		reply, effect = n.extend(c)
	case cmdValid:
		reply = integer(n.has(c))
	case cmdAcquire:
		reply, effect, err = n.acquire(c)
	case cmdRaise:
		reply, effect, err = n.raise(c)
	case cmdInspect:
		reply = n.inspect(c)
	case cmdStand:
		reply = n.stand(c)
	case cmdClaim:
		absent := n.holds(c) == 0
		c.free = n.get(c.key).value == reserved(c.member)
		if reply, effect, err = n.acquire(c); absent && effect == Granted {
			n.leave(c.queue, c.member)
		}
	case cmdBid:
		n.offer(client, c)
		reply = integer(1)
	case cmdHeal:
		c.free = isReserved(n.get(c.key).value)
		reply, effect, err = n.acquire(c)
	case cmdSwap:
		c.free = n.get(c.key).value == c.old
		if !c.free && n.holds(c) != 1 {
			reply = integer(0)
			break
		}
		reply, effect, err = n.acquire(c)
	case cmdShare:
		reply, effect, err = n.share(c)
	case cmdUnshare:
		reply, effect = n.unshare(c)
	case cmdSeat:
		reply, effect = n.seat(c)
	case cmdStandShare:
		reply = n.standShare(c)
	case cmdQueue:
		reply = n.standings(c.queue)
	case cmdReaders:
		reply = n.readers(c)
	case cmdLift:
		reply, effect, err = n.lift(c)
	case cmdSubscribe:
		n.subscribe(c.sub)
	}
	if n.log.used.Load() {
		n.note(client, c, before, effect, reply, err)
	}
	return reply, err
}

// note writes what was executed to the log.
func (n *Node) note(client string, c *command, before string, effect Effect, reply any, err error) {
	n.log.add(Event{
		Node: n.id, Client: client, Command: commandNames[c.code], Key: c.key, Value: c.value,
		Member: c.member, Final: c.final, Back: c.ticket != 0,
		Waits: c.member != "" && n.waits(c), Beside: c.beside(),
		Before: before, After: n.seen(c), Effect: effect, Reply: reply, Err: err,
		Shared: n.reads(c), Short: n.short(c),
	})
}
