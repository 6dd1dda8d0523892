package redlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlock-go/redlock/internal/clock"
	"github.com/redlock-go/redlock/internal/errtext"
	"github.com/redlock-go/redlock/internal/lease"
	"github.com/redlock-go/redlock/internal/wire"
)

// The defaults of the options. They are Redsync's where Redsync has the option.
const (
	// DefaultExpiry is long enough for a short critical section and a few slow round trips. A
	// crashed holder does not keep others waiting for longer.
	DefaultExpiry time.Duration = 8 * time.Second
	// DefaultTries with the default delay waits about five seconds for a lock that is taken.
	// Where a majority of the nodes is silent, and no other says that it is taken, each try takes a
	// node timeout as well: about 18 seconds, at most 21.
	DefaultTries int = 32
	// DefaultMinRetryDelay and DefaultMaxRetryDelay are the bounds of the random delay between
	// tries.
	DefaultMinRetryDelay time.Duration = 50 * time.Millisecond
	DefaultMaxRetryDelay time.Duration = 250 * time.Millisecond
	// DefaultDriftFactor allows for a clock that runs a hundredth faster than another.
	DefaultDriftFactor float64 = 0.01
	// DefaultTimeoutFactor times the default expiry makes a node timeout of 400 ms. By default a
	// node timeout is at most two seconds, however long the expiry: see [WithTimeoutFactor].
	DefaultTimeoutFactor float64 = 0.05
	// DefaultFenceTTL is how long a fence counter of WithFencePerName outlives its last use.
	DefaultFenceTTL time.Duration = 24 * time.Hour
)

// Unlimited tries wait for the lock as long as the context allows, see [WithTries]. Unlimited
// waiters are the default of [WithMaxWaiters].
const Unlimited int = -1

// longestByDefault is the longest node timeout that follows from an expiry alone. A node that takes
// longer is down, also where locks live for hours.
const longestByDefault = 2 * time.Second

// shortestTrip is the least time in which a node can be expected to answer: a round trip in a
// network, a script, and the client's own work. Less than that is a setting that never works.
const shortestTrip = time.Millisecond

// Option configures a [Redlock] or a single [Mutex]. The options of this package are the only
// ones. If options conflict, the last one wins.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

// config is what the options say. It is not changed once a Redlock or Mutex has it.
type config struct {
	lease.Options
	tries          int
	constantDelay  time.Duration // of WithRetryDelay
	timeoutFactor  float64
	factorBy       bool // WithTimeoutFactor was given
	nodeTimeoutSet bool // WithNodeTimeout was given
	genValueBy     bool // WithGenValueFunc was given
	fenceTTLBy     bool
	guardBy        bool
	maxHoldBy      bool
	value          *string
	prefix         string
	holding
	wrong mistakes // a nil Option was given, or nil events
}

func defaults() config {
	return config{
		Options: lease.Options{
			Terms: wire.Terms{
				Expiry: DefaultExpiry, DriftFactor: DefaultDriftFactor, FenceTTL: DefaultFenceTTL,
				Queue: true,
			},
			Delay:      UniformDelay(DefaultMinRetryDelay, DefaultMaxRetryDelay),
			MaxWaiters: Unlimited,
		},
		tries:         DefaultTries,
		timeoutFactor: DefaultTimeoutFactor,
		holding:       holding{events: nobody},
	}
}

// WithExpiry sets how long a granted lock lives if it is neither extended nor released. Whole
// milliseconds count, the rest is cut off. It must leave 1 ms after the drift, and a node timeout
// of 1 ms: with the default factors it is at least 20 ms, and with [WithNodeTimeout] at least 4
// ms. Default: [DefaultExpiry], 8 s.
func WithExpiry(expiry time.Duration) Option {
	return option(func(c *config) { c.Expiry = expiry })
}

// WithTries sets how many attempts Lock makes before it fails, at least 1. [Unlimited] tries go
// on until the context ends. Attempts that are made earlier than the retry delay says do not
// count: because the lock was released, because a holder's keys have expired, or because a
// release may have been missed. Lock makes no more than two if nodes refuse for a reason that
// lasts, see [Mutex.LockContext]. Default: [DefaultTries], 32.
func WithTries(tries int) Option {
	return option(func(c *config) { c.tries = tries })
}

// WithRetryDelay sets a constant delay between attempts, not negative. Use [WithRetryDelayFunc]
// for a random one, as the algorithm asks for. Default: random, see [WithRetryDelayFunc].
func WithRetryDelay(delay time.Duration) Option {
	return option(func(c *config) { c.Delay, c.constantDelay = ConstantDelay(delay), delay })
}

// WithRetryDelayFunc sets the delay between attempts: [ConstantDelay], [UniformDelay],
// [ExponentialDelay] or one of your own. The same function is used by all mutexes made with the
// option. Default: [UniformDelay] from [DefaultMinRetryDelay] to [DefaultMaxRetryDelay], 50 to
// 250 ms.
func WithRetryDelayFunc(delay DelayFunc) Option {
	return option(func(c *config) { c.Delay, c.constantDelay = delay, 0 })
}

// WithDriftFactor sets which part of the expiry is set aside for clocks that run at different
// rates: the lock is trusted for expiry − elapsed − (expiry × factor + 2 ms). At least
// 0, less than 1. Default: [DefaultDriftFactor], 0.01.
func WithDriftFactor(factor float64) Option {
	return option(func(c *config) { c.DriftFactor = factor })
}

// WithTimeoutFactor sets the node timeout as a part of the expiry, more than 0 and at most 1. The
// node timeout that follows is at least 1 ms. With this option it grows with the expiry without a
// bound: it is 18 minutes for a factor of 0.05 and an expiry of six hours. Default:
// [DefaultTimeoutFactor], 0.05, but at most two seconds.
func WithTimeoutFactor(factor float64) Option {
	return option(func(c *config) {
		c.timeoutFactor, c.factorBy, c.nodeTimeoutSet = factor, true, false
	})
}

// WithNodeTimeout sets how long one node may take to answer one command, at least 1 ms and at
// most the expiry. A node that takes longer counts as failed. Default: expiry × 0.05, at most two
// seconds; that is 400 ms with the default expiry. See [WithTimeoutFactor]. The renewals of a hold
// have more time: five seconds, or the node timeout if that is longer, twice as long after each
// failure, but at most two thirds of what is left.
func WithNodeTimeout(timeout time.Duration) Option {
	return option(func(c *config) { c.NodeTimeout, c.nodeTimeoutSet = timeout, true })
}

// WithGenValueFunc sets where values come from, for instance to write the host's name into them.
// The function is called for each attempt, by many goroutines at once. What it returns is only the
// beginning of the value: redlock appends 128 random bits, because two acquisitions with one value
// could release each other's lock. An error it returns fails the Lock. Default: the random bits.
func WithGenValueFunc(gen func() (string, error)) Option {
	return option(func(c *config) { c.GenValue, c.genValueBy, c.Owner = gen, true, "" })
}

// WithValue makes a mutex that takes over a lock whose value came from elsewhere, usually another
// process's [Mutex.Value]. It is for [Redlock.NewMutex]. The mutex does not know until when the
// lock is valid: its first Extend asks the nodes, and makes it the holder if a quorum still has
// the value. Its fencing token is not known and is 0. A Lock replaces the value by a new one. The
// value must not be empty. Default: none.
func WithValue(value string) Option {
	return option(func(c *config) { c.value = &value })
}

// WithKeyPrefix sets what is put before the name to make the Redis key. Default: nothing.
func WithKeyPrefix(prefix string) Option {
	return option(func(c *config) { c.prefix = prefix })
}

// WithFencing gives every acquisition a fencing token. A resource that is claimed with the token
// before it is read loses no update. It loses none even if a holder was paused for longer than its
// lock lived: see [Mutex.FencingToken].
//
// It costs no further round trip unless the nodes' counters disagree. Names share 65,536 counters,
// redlock:fence:0000 to redlock:fence:ffff, which take some 6 MB of a node and never expire. The
// digits are the first four of the SHA-256 of the lock's key, which is the prefix of
// [WithKeyPrefix] and the name. An ACL that allows app:* must so allow redlock:fence:* too. A node
// that is a cluster needs [WithFencePerName].
//
// All users of a name must use the option, and the same of WithFencePerName: all of them or none.
// Otherwise tokens may go back. Default: no token, 0.
func WithFencing() Option {
	return option(func(c *config) { c.Fencing = true })
}

// WithFencePerName gives each name a fence counter of its own, for [WithFencing] on nodes that are
// clusters: a script may use keys of one hash slot only there. The counter of a key is
// "{key}:fence". It is key:fence if the key has a closing brace, which must be that of a hash tag.
// An ACL that allows app:* must so allow {app:* too. No lock of these mutexes may have the key of
// such a counter.
//
// It costs a key per name until the TTL of [WithFenceTTL] has passed since the name's last use:
// 60,000 names a day are 60,000 keys on each node. When a counter has expired, the next token comes
// from the clock. Default: counters are shared.
func WithFencePerName() Option {
	return option(func(c *config) { c.FencePerName = true })
}

// WithFenceTTL sets how long a counter of [WithFencePerName] lives after its last use, at least the
// expiry. It has no effect on shared counters. Default: [DefaultFenceTTL], a day.
func WithFenceTTL(ttl time.Duration) Option {
	return option(func(c *config) { c.FenceTTL, c.fenceTTLBy = ttl, true })
}

// WithRestartGuard ignores the vote of a node that has been up for less than maxTTL + 1 s. By
// then every lock that the node may have forgotten has expired. Every client of these nodes must
// set it, to the longest expiry that any of them uses: a client without it is granted locks by a
// restarted node at once. It needs the permission for INFO. The error of the node is a
// [*GuardError]. At least the expiry. Default: no guard.
func WithRestartGuard(maxTTL time.Duration) Option {
	return option(func(c *config) { c.Guard, c.guardBy = maxTTL, true })
}

// WithMaxHold bounds how long [Mutex.Hold] keeps a lock extended, from the beginning of the attempt
// by which it was granted. Then the held context is cancelled with the cause [ErrLost], and the
// lock is extended no more, nor released: work can be wound down under it until [Mutex.Until],
// usually two thirds of the expiry away or more. At least the expiry. Default: no bound.
func WithMaxHold(limit time.Duration) Option {
	return option(func(c *config) { c.maxHold, c.maxHoldBy = limit, true })
}

// WithMargin ends the held context of [Mutex.Hold] and [Redlock.Do] so much before [Mutex.Until],
// if the lock could not be extended by then. The cause is [ErrLost]. The work then has the margin
// for winding down while the lock still excludes others. The lock is extended no more, and is
// kept until Unlock or Until. A loss that is proven earlier ends the context at once, without a
// margin. The margin takes time from the renewals: an outage that a hold survives is shorter by
// as much. At least 0, at most half of what the drift leaves of the expiry. Default: 0.
func WithMargin(margin time.Duration) Option {
	return option(func(c *config) { c.margin = margin })
}

// WithMinHold makes Unlock leave the lock taken until d after the beginning of the attempt by which
// it was granted. Then a job of a millisecond runs once in a period, although the clocks of its
// replicas differ by seconds. Choose a d that is longer than the clocks differ, and by as much
// shorter than the period. Replicas whose clocks agree ask at the same moment, and may split the
// vote: give them several tries, and [WithoutWaiting], or one that waits runs the job when d is
// over. Once d has passed, Unlock releases the lock.
//
// The keys live on for what is left of d and the drift of that: left × drift factor + 2 ms. Only an
// Unlock that succeeds leaves the lock taken. One that is lost, or whose process dies, is free when
// its keys expire, and Close releases it. [WithRestartGuard] must cover d and its drift in every
// client of the nodes. The TTL of a counter of [WithFencePerName] must cover d. At least 0.
// Default: 0, Unlock releases.
func WithMinHold(d time.Duration) Option {
	return option(func(c *config) { c.MinHold = d })
}

// WithPolling makes a waiting Lock ask the nodes again after each retry delay, instead of waiting
// in their queue. It does not subscribe to anything. An Unlock frees the lock for the one who asks
// first, so there is no order among processes, and those that do queue wait until they next ask. A
// waiter is still woken by releases of its own process.
//
// A process that locks a name again and again leaves it to others for a retry delay now and then.
// Default: off, waiting processes queue.
func WithPolling() Option {
	return option(func(c *config) { c.Queue = false })
}

// mistakes are what is wrong with options.
type mistakes []error

func (w *mistakes) add(option string, value any, rule string, args ...any) {
	// Copies of a config share what they have been given before.
	*w = append(slices.Clip(*w), &OptionError{option, value, fmt.Sprintf(rule, args...)})
}

// finish fills in what follows from other options and says what is wrong with them.
func (c *config) finish() error {
	wrong := c.wrong
	c.finishExpiry(&wrong)
	c.finishNodeTimeout(&wrong)
	c.checkValue(&wrong)
	c.checkTimes(&wrong)
	return errtext.Join(wrong...)
}

func (c *config) finishExpiry(wrong *mistakes) {
	if c.Expiry < time.Millisecond {
		wrong.add("WithExpiry", c.Expiry, "must be at least 1ms")
	} else {
		c.Expiry = c.Expiry.Truncate(time.Millisecond)
	}
	if c.tries < 1 && c.tries != Unlimited {
		wrong.add("WithTries", c.tries, "must be at least 1, or Unlimited")
	}
	if c.MaxWaiters < 1 && c.MaxWaiters != Unlimited {
		wrong.add("WithMaxWaiters", c.MaxWaiters, "must be at least 1, or Unlimited")
	}
	if c.constantDelay < 0 {
		wrong.add("WithRetryDelay", c.constantDelay, "must be at least 0")
	}
	if c.Delay == nil {
		wrong.add("WithRetryDelayFunc", nil, "must be a function")
	}
	if c.genValueBy && c.GenValue == nil {
		wrong.add("WithGenValueFunc", nil, "must be a function")
	}
	if !(c.DriftFactor >= 0 && c.DriftFactor < 1) {
		wrong.add("WithDriftFactor", c.DriftFactor, "must be at least 0 and less than 1")
	} else if len(*wrong) == 0 && c.Validity() < shortestTrip {
		wrong.add("WithExpiry", c.Expiry, "must be at least %v more than the drift of %v "+
			"(expiry × drift factor + 2ms)", shortestTrip, c.Drift())
	}
}

func (c *config) finishNodeTimeout(wrong *mistakes) {
	switch {
	case c.nodeTimeoutSet && c.NodeTimeout < shortestTrip:
		wrong.add("WithNodeTimeout", c.NodeTimeout, "must be at least %v", shortestTrip)
	case c.nodeTimeoutSet && c.NodeTimeout > c.Expiry:
		wrong.add("WithNodeTimeout", c.NodeTimeout, "must be at most the expiry of %v", c.Expiry)
	case c.nodeTimeoutSet:
	case !(c.timeoutFactor > 0 && c.timeoutFactor <= 1):
		wrong.add("WithTimeoutFactor", c.timeoutFactor, "must be more than 0 and at most 1")
	default:
		c.NodeTimeout = clock.Part(c.Expiry, c.timeoutFactor)
		if !c.factorBy {
			c.NodeTimeout = min(c.NodeTimeout, longestByDefault)
		}
		if c.NodeTimeout >= shortestTrip || len(*wrong) > 0 {
			return
		}
		const rule = "must make a node timeout (expiry of %v × timeout factor of %v) of at least " +
			"%v, not %v"
		option, value := "WithTimeoutFactor", any(c.timeoutFactor)
		if float64(c.Expiry)*DefaultTimeoutFactor < float64(shortestTrip) {
			option, value = "WithExpiry", c.Expiry
		}
		wrong.add(option, value, rule, c.Expiry, c.timeoutFactor, shortestTrip, c.NodeTimeout)
	}
}

func (c *config) checkValue(wrong *mistakes) {
	switch {
	case c.value == nil:
	case c.Shared:
		wrong.add("WithValue", nil, "cannot take over a lock of WithShared")
	case *c.value == "":
		wrong.add("WithValue", `""`, "must not be empty")
	case strings.HasPrefix(*c.value, wire.NoValue):
		wrong.add("WithValue", strconv.Quote(wire.NoValue+"…"),
			"must be the value of a lock, not what redlock notes under a key")
	}
}

// checkTimes checks what has to be longer or shorter than the expiry, or the minimum hold.
func (c *config) checkTimes(wrong *mistakes) {
	counts := c.Fencing && c.FencePerName || c.fenceTTLBy
	switch {
	case c.MinHold < 0:
		wrong.add("WithMinHold", c.MinHold, "must be at least 0")
	case c.longHold < 0:
		wrong.add("WithLongHold", c.longHold, "must be at least 0")
	case counts && c.FenceTTL < c.MinHold:
		wrong.add("WithFenceTTL", c.FenceTTL, "must be at least the minimum hold of %v", c.MinHold)
	case c.guardBy && c.MinHold > 0 && c.Guard < c.Lingering(c.MinHold):
		wrong.add("WithRestartGuard", c.Guard, "must be at least the minimum hold of %v and its "+
			"drift: %v", c.MinHold, c.Lingering(c.MinHold))
	}
	if counts && c.FenceTTL < c.Expiry {
		wrong.add("WithFenceTTL", c.FenceTTL, "must be at least the expiry of %v", c.Expiry)
	}
	if c.guardBy && c.Guard < c.Expiry {
		wrong.add("WithRestartGuard", c.Guard, "must be at least the expiry of %v", c.Expiry)
	}
	if c.maxHoldBy && c.maxHold < c.Expiry {
		wrong.add("WithMaxHold", c.maxHold, "must be at least the expiry of %v", c.Expiry)
	}
	if most := max(c.Validity()/2, 0); c.margin < 0 || c.margin > most {
		wrong.add("WithMargin", c.margin, "must be at least 0 and at most half of what the drift "+
			"leaves of the expiry: %v", most)
	}
}

// WithMaxWaiters bounds how many callers of this process wait for a lock. Where n wait for the name
// already, Lock, Hold and Do fail at once, with [ErrTaken], instead of waiting behind them. So a
// server that is late with a name sheds work, and does not pile it up.
//
// All that wait for the name count, on this Redlock and on others from the same New, whatever their
// options. The holder does not count, and neither do waiters of other processes. The bound is that
// of the caller who arrives. At least 1, or [Unlimited]. To wait for nothing, use [Mutex.TryLock]
// or [WithTries] with 1 instead. No effect on elections. Default: Unlimited.
func WithMaxWaiters(n int) Option {
	return option(func(c *config) { c.MaxWaiters = n })
}

// WithoutWaiting makes Lock, Hold and Do fail with [ErrTaken] as soon as they know that somebody
// has the lock, instead of waiting for its release. After a retry delay they try again only while
// nobody is known to have it: several callers have asked at the same moment, and each got some of
// the nodes, or too few nodes answered. It is for work that the holder does for all, such as a job
// that runs once in a period. With [WithMinHold] they give up when that time has passed since they
// began, so that none of them outlasts it. Before it fails, it asks the nodes that refused once
// more. No effect on elections. Default: off, they wait.
func WithoutWaiting() Option {
	return option(func(c *config) { c.NoWait = true })
}
