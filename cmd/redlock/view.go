package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/internal/wire"
)

const (
	// lookEvery is how far apart the looks of watch and top are. A change is seen within a second.
	lookEvery = 500 * time.Millisecond
	// answersIn is how long a node may take for an answer.
	answersIn = 500 * time.Millisecond
	// A node is sent 14 commands a second by a view, two of them at once: with those that open a
	// connection, that is less than twenty.
	pace = time.Second / 14
	// scanned is how many keys one SCAN looks at, in about a millisecond, and read is how many one
	// script reads. Status stops after mostScans; top goes on in its next look after lookScans.
	scanned   = 5000
	read      = 2000
	mostScans = 20
	lookScans = 3
	// dullFor is how long a key is not read again that has something else than a lock.
	dullFor = 10 * time.Second
)

// readLocks reads locks. KEYS are those of the locks, as many of their queues, and of their fence
// counters if those are asked for. It returns the number of each key that has a text. If that may
// be the value of a lock, the value follows, its PTTL, how many wait, the first ticket, and the
// counter.
const readLocks = `local n, all = tonumber(ARGV[1]), {}
for i, v in ipairs(redis.call('MGET', unpack(KEYS, 1, n))) do
	if v and (string.sub(v, -2) == '==' or string.sub(v, 1, 9) == '~redlock:') then
		local q = redis.pcall('ZRANGEBYSCORE', KEYS[n + i], '-inf', '+inf', 'WITHSCORES')
		if q.err then q = {} end
		local f = KEYS[2 * n + i] and redis.pcall('GET', KEYS[2 * n + i])
		if type(f) ~= 'string' then f = '' end
		local ttl = redis.call('PTTL', KEYS[i])
		table.insert(all, {i, v, ttl, #q / 2, q[2] or '', f})
	elseif v then
		table.insert(all, {i})
	end
end
return all`

// held is what a node has under the key of a lock.
type held struct {
	value   string
	ends    time.Time // or never
	waiting int
	first   time.Time // since when the first one waits, or zero
	token   uint64    // 0: not known
}

// nodeView is what a view knows of one node. It is not changed once it is shown.
type nodeView struct {
	addr       string
	err        error         // why it does not answer
	denied     error         // why it does not tell its clock or memory
	trip       time.Duration // round trip
	ahead      time.Duration // its clock
	used, most int64         // bytes of memory; most is 0 without a limit
	failures   int
	locks      map[string]held // by key
	complete   bool            // every key has been looked at
	keys       int             // that were looked at
}

// viewer looks at one node.
type viewer struct {
	client  *redis.Client
	prefix  string
	perName bool

	free  time.Time            // when the pace allows for the next command
	sent  time.Time            // when the latest one was sent
	view  nodeView             // latest
	locks map[string]bool      // keys that had locks, or have just been found
	found map[string]bool      // keys in this pass of SCAN
	dull  map[string]time.Time // keys that have something else, until when not to read them
	from  string               // cursor of SCAN
	seen  int                  // keys in this pass
}

// viewers returns viewers of the nodes, and a function that closes their clients.
func (c *common) viewers() (all []*viewer, closeAll func()) {
	for _, options := range c.options {
		// A frozen node is noticed in time, and each command is sent once.
		options.ContextTimeoutEnabled, options.MaxRetries = true, -1
		all = append(all, &viewer{
			client: redis.NewClient(options), prefix: c.prefix, perName: c.perName,
			view: nodeView{addr: options.Addr}, dull: map[string]time.Time{}, from: "0",
			locks: map[string]bool{}, found: map[string]bool{},
		})
	}
	return all, func() {
		for _, v := range all {
			_ = v.client.Close()
		}
	}
}

// do sends a command when the pace allows for it.
func (v *viewer) do(ctx context.Context, args ...any) (any, error) {
	now := time.Now()
	v.free = latest(v.free, now.Add(-2*pace)).Add(pace)
	select {
	case <-time.After(v.free.Sub(now)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	v.sent = time.Now()
	limited, cancel := context.WithTimeout(ctx, answersIn)
	defer cancel()
	reply, err := v.client.Do(limited, args...).Result()
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v", answersIn)
	}
	return reply, err
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// never is when a key ends that never does.
var never = time.Unix(1<<40, 0)

// look asks the node, with so many SCAN at most.
func (v *viewer) look(ctx context.Context, scans int) nodeView {
	if v.view.err = v.lookAt(ctx, scans); v.view.err != nil {
		v.view.failures++
		v.view.locks = nil
	}
	return v.view
}

func (v *viewer) lookAt(ctx context.Context, scans int) error {
	if err := v.lookAtServer(ctx); err != nil {
		return err
	}
	for range scans {
		if ended, err := v.scan(ctx); err != nil || ended {
			if err != nil {
				return err
			}
			break
		}
	}
	return v.readAll(ctx)
}

// lookAtServer asks for memory and clock. A user without these rights sees the locks.
func (v *viewer) lookAtServer(ctx context.Context) error {
	v.view.denied = nil
	info, err := v.ask(ctx, "INFO", "memory") // the first one may open a connection
	if err != nil {
		return err
	}
	clock, err := v.ask(ctx, "TIME")
	if err != nil {
		return err
	}
	v.view.trip = time.Since(v.sent)
	if fields, _ := clock.([]any); len(fields) == 2 {
		at, _ := strconv.ParseInt(fmt.Sprint(fields[0]), 10, 64)
		us, _ := strconv.ParseInt(fmt.Sprint(fields[1]), 10, 64)
		v.view.ahead = time.Unix(at, us*1000).Sub(v.sent.Add(v.view.trip / 2))
	}
	for line := range strings.Lines(fmt.Sprint(info)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		bytes, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "used_memory":
			v.view.used = bytes
		case "maxmemory":
			v.view.most = bytes
		}
	}
	return nil
}

// ask is do for what a user may be denied.
func (v *viewer) ask(ctx context.Context, args ...any) (any, error) {
	reply, err := v.do(ctx, args...)
	var answer redis.Error
	if errors.As(err, &answer) {
		v.view.denied, err = err, nil
	}
	return reply, err
}

// globs escapes what has a meaning in the pattern of SCAN.
var globs = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// scan goes on looking for keys, and reports whether it has come to the end.
func (v *viewer) scan(ctx context.Context) (ended bool, err error) {
	reply, err := v.do(ctx, "SCAN", v.from, "MATCH", globs.Replace(v.prefix)+"*", "COUNT", scanned,
		"TYPE", "string")
	if err != nil {
		return false, err
	}
	fields, _ := reply.([]any)
	if len(fields) != 2 {
		return false, errors.New("SCAN: unexpected reply")
	}
	v.from = fmt.Sprint(fields[0])
	keys, _ := fields[1].([]any)
	for _, key := range keys {
		if key := fmt.Sprint(key); !wire.IsOwnKey(key) && key != v.prefix {
			v.found[key] = true
			v.locks[key] = true
		}
	}
	v.seen += scanned
	if v.from != "0" {
		v.view.keys = max(v.view.keys, v.seen)
		return false, nil
	}
	v.view.complete, v.view.keys, v.seen = true, v.seen, 0
	v.locks, v.found = v.found, map[string]bool{}
	for key := range v.dull {
		if !v.locks[key] {
			delete(v.dull, key)
		}
	}
	return true, nil
}

// readAll reads the locks that are known.
func (v *viewer) readAll(ctx context.Context) error {
	now, locks := time.Now(), map[string]held{}
	var keys []string
	for key := range v.locks {
		if now.After(v.dull[key]) {
			keys = append(keys, key)
		}
	}
	for some := range slices.Chunk(keys, read) {
		if err := v.read(ctx, some, locks); err != nil {
			return err
		}
	}
	v.view.locks = locks
	return nil
}

// read reads the locks of keys.
func (v *viewer) read(ctx context.Context, keys []string, locks map[string]held) error {
	count := 2 * len(keys)
	if v.perName {
		count = 3 * len(keys)
	}
	args := []any{"EVAL", readLocks, count}
	for _, key := range keys {
		args = append(args, key)
	}
	for _, key := range keys {
		queue := wire.QueueKey(key)
		if !strings.HasPrefix(queue, v.prefix) {
			queue = key // has no queue, or one that its user may not read
		}
		args = append(args, queue)
	}
	for _, key := range keys[:count-2*len(keys)] {
		args = append(args, wire.OwnCounter(key))
	}
	reply, err := v.do(ctx, append(args, len(keys))...)
	if err != nil {
		return err
	}
	now := time.Now()
	all, _ := reply.([]any)
	for _, one := range all {
		fields, _ := one.([]any)
		if len(fields) == 0 {
			return errors.New("EVAL: unexpected reply")
		}
		i, _ := fields[0].(int64)
		if i < 1 || int(i) > len(keys) {
			return errors.New("EVAL: unexpected reply")
		}
		key := keys[i-1]
		lock, ok := readHeld(fields, now)
		if ok {
			locks[key] = lock
		} else {
			v.dull[key] = now.Add(dullFor)
		}
	}
	return nil
}

// readHeld reads what readLocks returns for a lock. It is none if the value is none of redlock's.
func readHeld(fields []any, now time.Time) (lock held, ok bool) {
	if len(fields) != 6 {
		return held{}, false
	}
	lock.value, _ = fields[1].(string)
	ttl, _ := fields[2].(int64)
	waiting, _ := fields[3].(int64)
	lock.waiting = int(waiting)
	if lock.ends = never; ttl >= 0 {
		lock.ends = now.Add(time.Duration(ttl) * time.Millisecond)
	}
	if ticket, err := strconv.ParseFloat(fmt.Sprint(fields[4]), 64); err == nil {
		lock.first = time.UnixMicro(int64(ticket))
	}
	lock.token, _ = strconv.ParseUint(fmt.Sprint(fields[5]), 10, 64)
	ours := wire.OwnerOf("o:"+lock.value) != "" // with an owner of its own or without
	return lock, ours || strings.HasPrefix(lock.value, wire.NoValue)
}
