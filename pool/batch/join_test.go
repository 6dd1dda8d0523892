package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/batch"
)

// server answers batches, and keeps what it is sent as words: "set a", "release a", "releases a b",
// with an "eval" before those that bring their source.
type server struct {
	*testing.T
	calls *batch.Batcher

	mu        sync.Mutex
	sent      []string // a batch each, with ", " between its commands
	gate      chan struct{}
	refused   []string                       // keys that releases together do not delete
	reply     func(word string) (any, error) // to releases; nil: answer
	abandoned int                            // calls, of the last batch that was
}

func serving(t *testing.T, f func(s *server)) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{T: t}
		s.calls = batch.New(s.send, batch.Options{OneServer: true, Abandon: func(calls []*call) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.abandoned = len(calls)
		}})
		f(s)
		time.Sleep(idle)
	})
}

func (s *server) send(_ context.Context, calls []*call) {
	var words []string
	for _, c := range calls {
		words = append(words, s.word(c))
	}
	s.mu.Lock()
	s.sent = append(s.sent, strings.Join(words, ", "))
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	for i, c := range calls {
		if s.reply != nil && !strings.HasPrefix(words[i], "set") {
			reply, err := s.reply(words[i])
			if reply != "nothing" {
				c.Answer(reply, err)
			}
			continue
		}
		c.Answer(s.answer(words[i]), nil)
	}
}

// word says what a call sends.
func (s *server) word(c *call) string {
	args := c.Args()
	if args[0] == "SET" {
		return "set " + args[1].(string)
	}
	by := map[any]string{
		scripts.Release.ID: "release", scripts.Release.Source: "eval release",
		scripts.Releases.ID: "releases", scripts.Releases.Source: "eval releases",
		scripts.Extend.ID: "extend",
	}
	n := int(args[2].(int64))
	word := by[args[1]]
	locks := 1
	if strings.HasSuffix(word, "releases") {
		locks = len(args) - 3 - n
	}
	for i := range locks {
		key, value := args[3+i], args[3+n+i]
		if locks > 1 && value != fmt.Sprint("by ", key) {
			s.Errorf("the value for %v is %v", key, value)
		}
		word += fmt.Sprint(" ", key)
	}
	return word
}

// answer is the reply to a command.
func (s *server) answer(word string) any {
	f := strings.Fields(strings.TrimPrefix(word, "eval "))
	switch f[0] {
	case "set":
		return "OK"
	case "releases":
		replies := make([]any, 0, len(f)-1)
		for _, key := range f[1:] {
			if slices.Contains(s.refused, key) {
				replies = append(replies, nil)
			} else {
				replies = append(replies, int64(1))
			}
		}
		if !slices.Contains(replies, nil) {
			return int64(len(replies))
		}
		return replies
	case "release":
		if slices.Contains(s.refused, f[1]) {
			return int64(-7)
		}
	}
	return int64(1)
}

// release is the release of a lock, with as many keys as are given.
func release(keys ...string) *pool.Command {
	args := []any{"by " + keys[0]}
	if len(keys) > 1 {
		args = append(args, int64(200))
	}
	c := pool.Eval(scripts.Release, keys, args...)
	c.Joint = scripts.Releases
	return c
}

// batch starts the commands while others are under way, and returns their outcomes when all
// are told. From then on, want compares what was sent for them.
func (s *server) batch(ctx context.Context, commands ...*pool.Command) []*outcome {
	s.Helper()
	gate := make(chan struct{})
	outcomes := s.queue(ctx, gate, commands...)
	synctest.Wait() // for the workers before: they could take what goes again one by one
	close(gate)
	synctest.Wait()
	for i, o := range outcomes {
		if o.times != 1 {
			s.Errorf("command %d has %d outcomes", i, o.times)
		}
	}
	return outcomes
}

// queue starts the commands while others are under way, and lets those end. Their own
// batch then waits at the gate next, unless that is nil.
func (s *server) queue(
	ctx context.Context, next chan struct{}, commands ...*pool.Command,
) []*outcome {
	gate := make(chan struct{})
	s.mu.Lock()
	s.gate = gate
	s.mu.Unlock()
	occupy(s.Context(), s.calls, &outcome{})
	var outcomes []*outcome
	for _, c := range commands {
		o := &outcome{}
		s.calls.Start(ctx, c, o)
		outcomes = append(outcomes, o)
	}
	s.mu.Lock()
	s.gate, s.sent = next, nil
	s.mu.Unlock()
	close(gate)
	return outcomes
}

func (s *server) want(batches ...string) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.sent, batches) {
		s.Errorf("sent are %q, want %q", s.sent, batches)
	}
}

func (s *server) replies(outcomes []*outcome, want ...any) {
	s.Helper()
	for i, o := range outcomes {
		if o.reply != want[i] || o.err != nil {
			s.Errorf("outcome %d is %v, %v, want %v", i, o.reply, o.err, want[i])
		}
	}
}

var a, b, c = release("a", "{a}:q"), release("b", "{b}:q"), release("c", "{c}:q")

func TestReleasesOfABatchGoTogether(t *testing.T) {
	set := func(key string) *pool.Command { return pool.SetNX(key, "v", time.Minute) }
	member := pool.Eval(scripts.Release, []string{"m", "q"}, "by m", int64(200), "member")
	extend := pool.Eval(scripts.Extend, []string{"e"}, "v", int64(9000))
	one, two := release("one"), release("two")
	for _, test := range []struct {
		name     string
		commands []*pool.Command
		want     string
	}{
		{"before the others", []*pool.Command{set("x"), a, set("y"), b, set("z"), c},
			"releases a b c, set x, set y, set z"},
		{"of one key", []*pool.Command{one, two}, "releases one two"},
		{"with as many keys", []*pool.Command{a, one, b, two},
			"releases a b, release one, release two"},
		{"not one alone", []*pool.Command{set("x"), a}, "set x, release a"},
		{"not of one in a queue", []*pool.Command{a, member, b}, "releases a b, release m"},
		{"not other scripts", []*pool.Command{extend, a, extend, b},
			"releases a b, extend e, extend e"},
	} {
		t.Run(test.name, func(t *testing.T) {
			serving(t, func(s *server) {
				for _, o := range s.batch(s.Context(), test.commands...) {
					if o.err != nil || o.reply != true && o.reply != int64(1) {
						t.Errorf("an outcome is %v, %v", o.reply, o.err)
					}
				}
				s.want(test.want)
			})
		})
	}
}

func TestReleasesGoAloneWhereKeysAreOnSeveralServers(t *testing.T) {
	serving(t, func(s *server) {
		s.calls = batch.New(s.send, batch.Options{})
		s.replies(s.batch(s.Context(), a, b), int64(1), int64(1))
		s.want("release a, release b")
	})
}

func TestAReleaseThatIsMoreThanADeletionGoesAlone(t *testing.T) {
	serving(t, func(s *server) {
		s.refused = []string{"b"}
		s.replies(s.batch(s.Context(), a, b, c), int64(1), int64(-7), int64(1))
		s.want("releases a b c", "release b")
	})
}

func TestAReleaseThatGoesAloneStaysAloneWithItsSource(t *testing.T) {
	serving(t, func(s *server) {
		s.refused = []string{"a", "b"}
		s.reply = func(word string) (any, error) {
			if strings.HasPrefix(word, "release ") {
				return nil, errors.New("NOSCRIPT No matching script. Please use EVAL.")
			}
			return s.answer(word), nil
		}
		s.replies(s.batch(s.Context(), a, b), int64(-7), int64(-7))
		s.want("releases a b", "release a, release b", "eval release a, eval release b")
	})
}

func TestAReleaseWhoseContextHasEndedGoesWithNoOther(t *testing.T) {
	serving(t, func(s *server) {
		ctx, cancel := context.WithCancel(s.Context())
		late := &outcome{}
		gate := make(chan struct{})
		s.gate = gate
		occupy(s.Context(), s.calls, &outcome{})
		s.calls.Start(ctx, c, late)
		s.mu.Lock()
		s.gate, s.sent = nil, nil
		s.mu.Unlock()
		outcomes := []*outcome{{}, {}}
		s.calls.Start(s.Context(), a, outcomes[0])
		s.calls.Start(s.Context(), b, outcomes[1])
		cancel() // while c is still in the queue
		close(gate)
		synctest.Wait()
		s.want("releases a b, release c")
		s.replies(outcomes, int64(1), int64(1))
		s.replies([]*outcome{late}, int64(1))
	})
}

// cut is an error reply of rueidis and valkey-go, without the "ERR " that it began with.
type cut string

func (e cut) Error() string    { return string(e) }
func (e cut) IsNoScript() bool { return false }

func TestReleasesThatTheServerRefusesTogetherGoAlone(t *testing.T) {
	for name, test := range map[string]struct {
		reply any
		err   error
		ever  bool     // also to releases that bring their source
		want  []string // batches
		fails string   // every release, with that in its error; or ""
		next  string   // the next batch
	}{
		"one of the keys is not theirs": {
			err:  errors.New("NOPERM No permissions to access a key"),
			want: []string{"releases a b", "release a, release b"}, next: "releases a b",
		},
		"the keys are in several slots": {
			err:  errors.New("CROSSSLOT Keys in request don't hash to the same slot"),
			want: []string{"releases a b", "release a, release b"}, next: "release a, release b",
		},
		"the keys are in several slots, says a proxy": {
			err:  errors.New("ERR 'EVALSHA' command keys must in same slot"),
			want: []string{"releases a b", "release a, release b"}, next: "release a, release b",
		},
		"the client cuts ERR off": {
			err:  cut("'EVALSHA' command keys must in same slot"),
			want: []string{"releases a b", "release a, release b"}, next: "release a, release b",
		},
		"a hook wraps what it says": {
			err:  fmt.Errorf("hook: %w", errors.New("NOPERM No permissions to access a key")),
			want: []string{"releases a b", "release a, release b"}, next: "releases a b",
		},
		"the client could not log in": {
			err:  pool.NotSent(errors.New("WRONGPASS invalid username-password pair")),
			want: []string{"releases a b"}, fails: "WRONGPASS", next: "releases a b",
		},
		"it does not know the script": {
			err:  errors.New("NOSCRIPT No matching script. Please use EVAL."),
			want: []string{"releases a b", "eval releases a b"}, next: "releases a b",
		},
		"it never knows the script": {
			err:  errors.New("NOSCRIPT No matching script. Please use EVAL."),
			ever: true,
			want: []string{"releases a b", "eval releases a b", "eval release a, eval release b"},
			next: "releases a b",
		},
		"it replies too few": {
			reply: []any{int64(1)},
			want:  []string{"releases a b", "release a, release b"}, next: "releases a b",
		},
		"it replies another number": {
			reply: int64(1),
			want:  []string{"releases a b", "release a, release b"}, next: "releases a b",
		},
		"the connection is lost": {
			err:  errors.New("read tcp: connection reset by peer"),
			want: []string{"releases a b"}, fails: "reset by peer", next: "releases a b",
		},
		"there is no reply": {
			reply: "nothing",
			want:  []string{"releases a b"}, fails: "neither a reply", next: "releases a b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			serving(t, func(s *server) {
				s.reply = func(word string) (any, error) {
					if strings.HasPrefix(word, "releases") ||
						test.ever && strings.HasPrefix(word, "eval releases") {
						return test.reply, test.err
					}
					return s.answer(word), nil
				}
				outcomes := s.batch(s.Context(), a, b)
				s.want(test.want...)
				for i, o := range outcomes {
					if test.fails == "" && (o.reply != int64(1) || o.err != nil) ||
						test.fails != "" && !strings.Contains(fmt.Sprint(o.err), test.fails) {
						t.Errorf("outcome %d is %v, %v, want %q", i, o.reply, o.err, test.fails)
					}
				}
				s.reply = nil
				s.replies(s.batch(s.Context(), a, b), int64(1), int64(1))
				s.want(test.next)
			})
		})
	}
}

func TestReleasesTogetherAreAbandonedAsTheyWereSent(t *testing.T) {
	serving(t, func(s *server) {
		ctx, cancel := context.WithCancel(s.Context())
		gate := make(chan struct{})
		outcomes := s.queue(ctx, gate, a, b)
		synctest.Wait()
		s.want("releases a b")
		cancel()
		time.Sleep(20 * time.Millisecond)
		s.mu.Lock()
		if s.abandoned != 1 {
			t.Errorf("%d calls were abandoned, want the one that was sent", s.abandoned)
		}
		s.mu.Unlock()
		close(gate)
		synctest.Wait()
		s.replies(outcomes, int64(1), int64(1))
	})
}
