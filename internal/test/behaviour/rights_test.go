package behaviour_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/internal/wire"
	"github.com/redlock-go/redlock/pool"
)

// feature is a line of the table in docs/rights.md.
type feature struct {
	name  string
	based []string
	rules []string // of an ACL: commands, keys, channels
}

// documented reads the table.
func documented(t *testing.T) []feature {
	t.Helper()
	page, err := os.ReadFile("../../../docs/rights.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "\n| Feature |")
	table, _, _ = strings.Cut(table, "\n\n")
	code := regexp.MustCompile("`([^`]*)`")
	words := func(cell string) (all []string) {
		for _, m := range code.FindAllStringSubmatch(cell, -1) {
			all = append(all, m[1])
		}
		return all
	}
	var features []feature
	for line := range strings.Lines(table) {
		line = strings.ReplaceAll(line, `\|`, "\x00")
		cells := strings.Split(line, "|")
		if len(cells) != 7 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
		}
		name, _, _ := strings.Cut(strings.Trim(cells[1], "`"), "`")
		name, _, _ = strings.Cut(name, ",")
		if name == "redlock top" { // the tests of cmd/redlock try that
			continue
		}
		rest := slices.Concat(words(cells[3]), words(cells[4]), words(cells[5]))
		features = append(features, feature{name, words(cells[2]), rest})
	}
	return features
}

// allRules are the rights of a feature and of those that it is based on.
func allRules(t *testing.T, features []feature, name string) []string {
	t.Helper()
	i := slices.IndexFunc(features, func(f feature) bool { return f.name == name })
	require.GreaterOrEqual(t, i, 0, "the table has no feature %q", name)
	rules := slices.Clone(features[i].rules)
	for _, other := range features[i].based {
		rules = append(rules, allRules(t, features, other)...)
	}
	return rules
}

// restricted are servers, and a user of theirs with some rights.
type restricted struct {
	servers []*redistest.Server
	newPool func(t testing.TB, addr string) pool.Pool
	user    string
	lacks   string // the right that the user lacks, or ""
}

// redlock returns a client of the user.
func (r *restricted) redlock(t *testing.T) *redlock.Redlock {
	var pools []pool.Pool
	for _, s := range r.servers {
		pools = append(pools, r.newPool(t, r.user+":pw@"+s.Addr()))
	}
	return redlock.New(pools...).With(redlock.WithKeyPrefix("app:"),
		redlock.WithNodeTimeout(2*time.Second), redlock.WithPolling())
}

// other returns a client who may do everything.
func (r *restricted) other(t *testing.T) *redlock.Redlock {
	o := *r
	o.user = "other"
	for _, s := range r.servers {
		s.Must("ACL", "SETUSER", "other", "on", ">pw", "+@all", "~*", "&*")
	}
	return o.redlock(t)
}

// denied returns what the servers have denied the user: a command, or the name of a key or channel.
func (r *restricted) denied() (what []string) {
	for _, s := range r.servers {
		for _, entry := range s.Must("ACL", "LOG").([]any) {
			fields := map[string]any{}
			for kv := range slices.Chunk(entry.([]any), 2) {
				fields[kv[0].(string)] = kv[1]
			}
			object := fmt.Sprint(fields["object"])
			if fields["username"] == r.user && !strings.HasPrefix(object, "client|") {
				what = append(what, object)
			}
		}
	}
	return what
}

// forget lets the servers forget all scripts, so that the next one needs EVAL.
func (r *restricted) forget() {
	for _, s := range r.servers {
		s.Must("SCRIPT", "FLUSH")
	}
}

// until waits for a condition, or for a denial.
func (r *restricted) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventually(t, what, func() bool { return ok() || r.lacks != "" && len(r.denied()) > 0 })
}

// called reports whether the user's command has reached the server: it was carried out or denied.
func called(s *redistest.Server, command string) func() bool {
	before := s.Commands()[command]
	return func() bool { return s.Commands()[command] > before }
}

// uses are what the features of the table do. The error is the first that the user meets.
var uses = map[string]func(t *testing.T, r *restricted) error{
	"Lock": func(t *testing.T, r *restricted) error {
		m, late := r.redlock(t).NewMutex("x"), r.redlock(t).NewMutex("x")
		r.forget()
		errs := m.TryLock()
		left := called(r.servers[0], "pttl")
		if taken := late.TryLock(); !errors.Is(taken, redlock.ErrTaken) {
			errs = errors.Join(errs, fmt.Errorf("not taken: %w", taken))
		}
		// What a busy server does after the Unlock finds no lock, and needs fewer rights.
		r.until(t, "the release of what late could have left", left)
		r.forget()
		_, err := m.Unlock()
		return errors.Join(errs, err, crowd(t, r, r.redlock(t), "mget"))
	},
	"Extend": func(t *testing.T, r *restricted) error {
		m := r.redlock(t).NewMutex("x", redlock.WithExpiry(time.Minute))
		r.until(t, "the lock on each server", func() bool {
			if err := m.TryLock(); err != nil {
				return false
			}
			for _, s := range r.servers {
				if s.Must("EXISTS", "app:x") != int64(1) {
					_, _ = m.Unlock()
					return false
				}
			}
			return true
		})
		r.forget()
		r.servers[0].Must("DEL", "app:x")
		_, err := m.Extend()
		if len(r.servers) > 1 {
			r.until(t, "a healed server",
				func() bool { return r.servers[0].Must("EXISTS", "app:x") == int64(1) })
		}
		_, released := m.Unlock()
		return errors.Join(err, released)
	},
	"Handoff": func(t *testing.T, r *restricted) error { return handOver(t, r) },
	"WithMinHold": func(t *testing.T, r *restricted) error {
		m := r.redlock(t).NewMutex("x", redlock.WithMinHold(time.Minute))
		if err := m.TryLock(); err != nil {
			return err
		}
		r.forget()
		_, err := m.Unlock()
		for _, s := range r.servers {
			s.Must("DEL", "app:x")
		}
		return err
	},
	"Valid": func(t *testing.T, r *restricted) error {
		holder := r.other(t).NewMutex("x")
		require.NoError(t, holder.TryLock())
		defer mustUnlock(t, holder)
		r.forget()
		_, err := r.redlock(t).NewMutex("x", redlock.WithValue(holder.Value())).Valid()
		return err
	},
	"Inspect": func(t *testing.T, r *restricted) error {
		holder := r.other(t).NewMutex("x")
		require.NoError(t, holder.TryLock())
		defer mustUnlock(t, holder)
		r.forget()
		in, err := r.redlock(t).Inspect(t.Context(), "x")
		if err == nil && (in.Verdict != redlock.VerdictHeld || in.Waiters == nil) {
			err = errors.New(in.String())
		}
		return err
	},
	"Waiting in the queue": func(t *testing.T, r *restricted) error {
		// Two processes on one connection, because UNSUBSCRIBE is sent for the last but one.
		// Those who wait do so until they are woken, or for a right that is missing; one gives
		// up. The holder of one lock dies.
		channels := func() []any { return r.servers[0].Must("PUBSUB", "CHANNELS").([]any) }
		ping, before := called(r.servers[0], "ping"), channels()
		fresh := func() int { // processes of this use that listen
			old := func(c any) bool { return slices.Contains(before, c) }
			return len(slices.DeleteFunc(channels(), old))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := r.newPool(t, r.user+":pw@"+r.servers[0].Addr())
		outcomes := make(chan error)
		wait := func(
			ctx context.Context, rl *redlock.Redlock, name string, delay time.Duration,
		) (holder *redlock.Mutex) {
			holder = r.announcing(t).NewMutex(name)
			if err := holder.TryLock(); err != nil {
				go func() { outcomes <- err }()
				return holder
			}
			waiter := rl.NewMutex(name,
				redlock.WithRetryDelay(delay), redlock.WithTries(redlock.Unlimited))
			go func() {
				err := waiter.LockContext(ctx)
				if err == nil {
					_, err = waiter.Unlock()
				}
				outcomes <- err
			}()
			r.until(t, "a waiter in the queue", func() bool {
				return r.servers[0].Must("ZCARD", queueOf("app:"+name)) == int64(1)
			})
			return holder
		}
		other := func() *redlock.Redlock {
			return redlock.New(p).With(redlock.WithKeyPrefix("app:"),
				redlock.WithNodeTimeout(2*time.Second))
		}
		a, b := other(), other()
		impatient, stop := context.WithCancel(ctx)
		stays, given := wait(ctx, a, "stays", time.Hour), wait(impatient, a, "given", time.Hour)
		wait(ctx, b, "dies", 20*time.Millisecond)
		var ended []error
		next := func() bool {
			select {
			case err := <-outcomes:
				if !errors.Is(err, context.Canceled) || ctx.Err() != nil {
					ended = append(ended, err)
				} else {
					ended = append(ended, nil)
				}
				return true
			default:
				return false
			}
		}
		stop()
		r.until(t, "a waiter that has given up", next)
		r.until(t, "a place given up",
			func() bool { return r.servers[0].Must("EXISTS", queueOf("app:given")) == int64(0) })
		r.servers[0].Must("DEL", "app:dies")
		r.until(t, "a waiter that has the lock of the dead", next)
		r.until(t, "UNSUBSCRIBE", func() bool { return fresh() == 1 })
		// Those whom the server knows from before still send PING.
		r.until(t, "PING", func() bool { return r.lacks != "+ping" && ping() })
		_, last := stays.Unlock()
		_, first := given.Unlock()
		r.until(t, "the other waiter", next)
		cancel()
		for len(ended) < 3 {
			ended = append(ended, <-outcomes)
		}
		return errors.Join(append(ended, last, first, crowd(t, r, a, "exists"))...)
	},
	"WithShared": func(t *testing.T, r *restricted) error {
		a := r.redlock(t).NewMutex("x", redlock.WithShared())
		b := r.redlock(t).NewMutex("x", redlock.WithShared())
		r.forget()
		errs := errors.Join(a.TryLock(), b.TryLock())
		_, extended := a.Extend()
		in, err := r.redlock(t).Inspect(t.Context(), "x")
		if err == nil && (len(in.Readers) != 2 || in.Waiters == nil) {
			err = errors.New(in.String())
		}
		_, left := a.Unlock()
		_, last := b.Unlock()
		return errors.Join(errs, extended, err, left, last)
	},
	"WithFencing": func(t *testing.T, r *restricted) error {
		m := r.redlock(t).NewMutex("x", redlock.WithFencing())
		err := m.TryLock()
		_, extended := m.Extend()
		_, released := m.Unlock()
		return errors.Join(err, extended, released, handOver(t, r, redlock.WithFencing()))
	},
	"WithFencePerName": func(t *testing.T, r *restricted) error {
		opts := []redlock.Option{redlock.WithFencing(), redlock.WithFencePerName()}
		m := r.redlock(t).NewMutex("x", opts...)
		err := m.TryLock()
		_, extended := m.Extend()
		_, released := m.Unlock()
		return errors.Join(err, extended, released, handOver(t, r, opts...))
	},
	"NewElection": func(t *testing.T, r *restricted) error {
		leader := r.announcing(t).NewElection("x")
		next := r.announcing(t).NewElection("x")
		r.forget()
		if _, err := leader.Campaign(t.Context()); err != nil {
			return err
		}
		elected := make(chan error, 1)
		go func() {
			_, err := next.Campaign(t.Context())
			elected <- err
		}()
		r.until(t, "a candidate in the queue", func() bool {
			return r.servers[0].Must("ZCARD", queueOf("app:x")) == int64(1)
		})
		r.forget()
		l, err := next.Leader(t.Context())
		if err == nil && l.Term != leader.Term() {
			err = fmt.Errorf("the term %d, not %d", l.Term, leader.Term())
		}
		return errors.Join(err, leader.Resign(t.Context()), <-elected, next.Resign(t.Context()))
	},
	"WithRestartGuard": func(t *testing.T, r *restricted) error {
		m := r.redlock(t).NewMutex("x", redlock.WithRestartGuard(redlock.DefaultExpiry))
		err := m.TryLock()
		var guard *redlock.GuardError
		if errors.As(err, &guard) {
			return nil // it was asked, and a server that is so young refuses
		}
		_, released := m.Unlock()
		return errors.Join(err, released)
	},
	"Check": func(t *testing.T, r *restricted) error {
		report, err := doctor.Check(t.Context(), r.announcing(t))
		if err != nil {
			return err
		}
		for _, f := range report.Findings {
			if f.Code != "single" && f.Code != "restart" {
				err = errors.Join(err, errors.New(f.Problem))
			}
		}
		return err
	},
}

// crowd locks and unlocks many names at a time, until some of them were unlocked together: by that
// command.
func crowd(t *testing.T, r *restricted, rl *redlock.Redlock, command string) (errs error) {
	if r.lacks != "" && len(r.denied()) > 0 {
		return nil
	}
	together := called(r.servers[0], command)
	r.until(t, "releases that go together", func() bool {
		var wg sync.WaitGroup
		outcomes := make([]error, 64)
		for i := range outcomes {
			m := rl.NewMutex(fmt.Sprint("crowd", i))
			wg.Go(func() {
				if outcomes[i] = m.TryLock(); outcomes[i] == nil {
					_, outcomes[i] = m.Unlock()
				}
			})
		}
		wg.Wait()
		errs = errors.Join(outcomes...)
		return together()
	})
	return errs
}

// handOver hands a lock over, and lets the heir extend it.
func handOver(t *testing.T, r *restricted, opts ...redlock.Option) error {
	m, heir := r.redlock(t).NewMutex("x", opts...), r.redlock(t).NewMutex("x", opts...)
	if err := m.TryLock(); err != nil {
		return err
	}
	handoff, err := m.Handoff()
	if err != nil {
		return err
	}
	r.forget()
	if _, err := heir.Adopt(t.Context(), handoff); err != nil {
		return err
	}
	_, extended := heir.Extend()
	_, released := heir.Unlock()
	return errors.Join(extended, released)
}

// announcing returns a client of the user that wakes and is woken.
func (r *restricted) announcing(t *testing.T) *redlock.Redlock {
	return redlock.New(r.newPool(t, r.user+":pw@"+r.servers[0].Addr())).With(
		redlock.WithKeyPrefix("app:"), redlock.WithNodeTimeout(2*time.Second))
}

// lesson L75: with the rights of the table, each feature works and is denied nothing; with one
// right fewer, something is denied. So the table is complete, and grants nothing without need.
func TestRights(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	features := documented(t)
	var names []string
	for _, f := range features {
		names = append(names, f.name)
	}
	for name := range uses {
		assert.Contains(t, names, name, "a feature without its rights in the table")
	}
	for _, f := range features {
		require.NotNil(t, uses[f.name], "the table has %q, and nothing here uses that", f.name)
	}
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			more := redistest.Args("--acllog-max-len", "1000")
			servers := redistest.Start(t, 1, more)
			for _, f := range features {
				of := servers
				switch f.name {
				case "Extend":
					of = redistest.Start(t, 3, more)
				case "Waiting in the queue": // takes seconds
					for i := range len(f.rules) + 1 {
						t.Run(fmt.Sprint(f.name, " ", i), func(t *testing.T) {
							t.Parallel()
							testRight(t, features, f, i, newPool, redistest.Start(t, 1, more))
						})
					}
					continue
				}
				t.Run(f.name, func(t *testing.T) {
					for i := range len(f.rules) + 1 {
						testRight(t, features, f, i, newPool, of)
					}
				})
			}
		})
	}
}

// testRight uses a feature with its rights, which is trial 0, or without one of them.
func testRight(t *testing.T, features []feature, f feature, trial int,
	newPool func(testing.TB, string) pool.Pool, servers []*redistest.Server) {
	r := &restricted{servers, newPool,
		fmt.Sprint(strings.ReplaceAll(f.name, " ", "-"), trial), ""}
	if trial > 0 {
		r.lacks = f.rules[trial-1]
	}
	left := slices.DeleteFunc(allRules(t, features, f.name),
		func(rule string) bool { return rule == r.lacks })
	for _, s := range servers {
		s.Must("FLUSHALL")
		s.Must("ACL", "LOG", "RESET")
		nothing := []string{"ACL", "SETUSER", r.user, "on", ">pw", "-@all",
			"resetkeys", "resetchannels"}
		s.Must(append(nothing, left...)...)
	}
	err := uses[f.name](t, r)
	if r.lacks == "" {
		require.NoError(t, err)
		require.Empty(t, r.denied(), "the table does not have all that %s needs", f.name)
	} else {
		require.NotEmpty(t, r.denied(), "%s does not need %s; %v", f.name, r.lacks, err)
	}
}

// A reader who may not publish cannot know who listens: it leaves all in the queue who wait.
func TestAReaderThatMayNotPublishPassesNobody(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	r := &restricted{redistest.Start(t, 1), adapters["goredis"], "reader", ""}
	rules := allRules(t, documented(t), "WithShared")
	require.NotContains(t, rules, "+publish")
	r.servers[0].Must(append([]string{"ACL", "SETUSER", r.user, "on", ">pw", "-@all",
		"resetkeys", "resetchannels"}, rules...)...)
	full := *r
	r.other(t)
	full.user = "other"
	rl := full.announcing(t)
	reads := rl.NewMutex("x", redlock.WithShared())
	require.NoError(t, reads.Lock())
	writer := make(chan error, 1)
	go func() { writer <- rl.NewMutex("x").LockContext(t.Context()) }()
	queued := func() bool {
		return r.servers[0].Must("ZCARD", wire.QueueKey("app:x")) == int64(1)
	}
	eventually(t, "the writer queues", queued)
	for range 3 {
		err := r.redlock(t).NewMutex("x", redlock.WithShared()).TryLock()
		require.ErrorIs(t, err, redlock.ErrTaken)
		require.True(t, queued())
	}
	mustUnlock(t, reads)
	require.NoError(t, <-writer)
}

// lesson L75: for each right of the table that a user lacks, Check has a finding, and its advice
// is the command that grants exactly that.
func TestCheckNamesTheMissingRight(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	features := documented(t)
	// Locks need one kind of counters; an election beside them needs its own.
	rulesBut := func(others ...string) (rules []string) {
		for _, f := range features {
			if slices.Contains(others, f.name) {
				continue
			}
			for _, rule := range allRules(t, features, f.name) {
				if !slices.Contains(rules, rule) && rule != "+unsubscribe" { // Check cannot try it
					rules = append(rules, rule)
				}
			}
		}
		return rules
	}
	opts := []redlock.Option{
		redlock.WithKeyPrefix("app:"), redlock.WithFencing(), redlock.WithRestartGuard(time.Minute),
		redlock.WithNodeTimeout(2 * time.Second),
	}
	own := append(slices.Clone(opts), redlock.WithFencePerName())
	for counters, tt := range map[string]struct {
		rules []string
		opts  []redlock.Option
	}{
		"shared counters": {rulesBut("WithShared"), opts},
		"own counters":    {rulesBut("WithFencing", "WithShared"), own},
		"shared lock":     {rulesBut(), append(slices.Clone(opts), redlock.WithShared())},
	} {
		t.Run(counters, func(t *testing.T) {
			t.Parallel()
			testMissingRights(t, tt.rules, tt.opts)
		})
	}
}

// testMissingRights has Check find each of the rules that a user lacks.
func testMissingRights(t *testing.T, rules []string, opts []redlock.Option) {
	command := regexp.MustCompile(`ACL SETUSER (\S+) ([^;]*?)( -- .*)?$`)
	for client, newPool := range adapters {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, 1, redistest.AOF())[0]
			admin := newPool(t, s.Addr())
			for _, without := range append([]string{""}, rules...) {
				s.Must("ACL", "SETUSER", "app", "reset", "on", ">pw", "+unsubscribe", "+acl|whoami")
				for _, rule := range rules {
					if rule != without {
						s.Must("ACL", "SETUSER", "app", rule)
					}
				}
				s.Must("SCRIPT", "FLUSH")
				// Somebody else uses a script that Check does not need.
				_, err := redlock.New(admin).NewMutex("x", redlock.WithValue("v"),
					redlock.WithNodeTimeout(2*time.Second)).Valid()
				require.ErrorIs(t, err, redlock.ErrExpired)
				rl := redlock.New(newPool(t, "app:pw@"+s.Addr())).With(opts...)
				advised := false
				for range 3 {
					r, err := doctor.Check(t.Context(), rl)
					require.NoError(t, err)
					again := false
					for _, f := range r.Findings {
						if f.Code != "noperm" && f.Code != "announcements" && f.Code != "unknown" {
							continue
						}
						advice := command.FindStringSubmatch(f.Advice)
						require.NotNil(t, advice, "without %s: %s -> %s",
							without, f.Problem, f.Advice)
						assert.Equal(t, "app", advice[1])
						assert.Equal(t, without, advice[2], "%s", f.Problem)
						s.Must(append([]string{"ACL", "SETUSER",
							advice[1]}, strings.Fields(advice[2])...)...)
						advised, again = true, true
					}
					if !again {
						break
					}
				}
				assert.Equal(t, without != "", advised, "without %q", without)
				r, found := check(t, rl)
				assert.Empty(t, r.Nodes[0].Denied)
				for _, f := range found {
					assert.True(t, strings.HasPrefix(f, "warning single") ||
						strings.HasPrefix(f, "critical guard"), f)
				}
				drop(rl)
			}
		})
	}
}
