package wire_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/quorum"
	"github.com/redlock-go/redlock/internal/wire"
)

var member = wire.Member{ID: "m", Ticket: 3}

func lock(terms wire.Terms) *wire.Lock {
	l := wire.NewLock("x", &terms, &wire.Tokens{Now: time.Now})
	return &l
}

// Each command reads the replies that its script may return, and takes no other for an answer.
func TestReplies(t *testing.T) {
	l := lock(wire.Terms{Expiry: time.Second, Guard: time.Second, Queue: true,
		NodeTimeout: 50 * time.Millisecond})
	r := lock(wire.Terms{Expiry: time.Second, Shared: true, NodeTimeout: 50 * time.Millisecond})
	ms := time.Millisecond
	for _, tt := range []struct {
		name  string
		c     quorum.Command
		reply any
		want  quorum.Reply
	}{
		{"set", lock(wire.Terms{}).Acquire("v"), true, quorum.Reply{Means: quorum.Done, Number: 1}},
		{"not set", lock(wire.Terms{}).Acquire("v"), false, quorum.Reply{Means: quorum.Foreign}},
		{"granted", l.Acquire("v"), int64(7), quorum.Reply{Means: quorum.Done, Number: 7}},
		{"taken", l.Acquire("v"), int64(0), quorum.Reply{Means: quorum.Foreign}},
		{"extended", l.Extend("v"), int64(1), quorum.Reply{Means: quorum.Done}},
		{"not ours", l.Extend("v"), int64(-1), quorum.Reply{Means: quorum.Foreign}},
		{"gone", l.Valid("v"), int64(0), quorum.Reply{Means: quorum.Gone}},
		{"deleted", l.Release("v", ""), int64(1), quorum.Reply{Means: quorum.Done}},
		{"handed on", l.Release("v", ""), int64(2), quorum.Reply{Means: quorum.HandedOn}},
		{"nothing to delete", l.Release("v", ""), int64(0), quorum.Reply{Means: quorum.Gone}},
		{"somebody else's for ever", l.Release("v", ""), int64(-1),
			quorum.Reply{Means: quorum.Foreign, Left: quorum.Forever}},
		{"somebody else's for 5 ms", l.Release("v", ""), int64(-7),
			quorum.Reply{Means: quorum.Foreign, Left: 5 * ms}},
		{"a reader", r.Acquire("v"), int64(1), quorum.Reply{Means: quorum.Done, Number: 1}},
		{"a writer waits", r.Acquire("v"), int64(0), quorum.Reply{Means: quorum.Foreign}},
		{"no seat", r.Extend("v"), int64(0), quorum.Reply{Means: quorum.Gone}},
		{"others go on reading", r.Release("v", ""), int64(3), quorum.Reply{Means: quorum.Shared}},
		{"only others read", r.Release("v", ""), int64(-7),
			quorum.Reply{Means: quorum.Foreign, Left: 5 * ms}},
		{"a reader's turn", r.Stand(member, 1), []any{int64(3), int64(-1), int64(-1)},
			quorum.Reply{Means: quorum.Turn, Number: 3, Left: quorum.Forever}},
		{"the first in the queue", l.Stand(member, 1), []any{int64(3), int64(0), int64(9)},
			quorum.Reply{Means: quorum.Standing, Number: 3, Left: 9 * ms}},
		{"behind two", l.Stand(member, 1), []any{int64(3), int64(2), int64(-1)},
			quorum.Reply{Means: quorum.Standing, Number: 3, Before: 2, Left: quorum.Forever}},
		{"its turn", l.Stand(member, 1), []any{int64(3), int64(-1), int64(4)},
			quorum.Reply{Means: quorum.Turn, Number: 3, Left: quorum.Forever}},
	} {
		got, err := tt.c.Read(tt.c.Command, tt.reply, nil)
		require.NoError(t, err, tt.name)
		assert.Equal(t, tt.want, got, tt.name)

		oops := errors.New("oops")
		_, err = tt.c.Read(tt.c.Command, tt.reply, oops)
		assert.ErrorIs(t, err, oops, tt.name)
		if tt.c.Script() == nil {
			continue // any reply of SET NX but true is a refusal
		}
		for _, odd := range []any{nil, "1", true, []any{}, []any{int64(1), "2", int64(3)}, 1.0} {
			_, err := tt.c.Read(tt.c.Command, odd, nil)
			var reply *wire.ReplyError
			require.ErrorAs(t, err, &reply, "%s: %v", tt.name, odd)
			assert.Equal(t, &wire.ReplyError{Script: tt.c.Script().Name, Reply: odd}, reply)
		}
	}

	for seconds, want := range map[int64]time.Duration{
		-3: 3 * time.Second, math.MinInt64: math.MaxInt64,
	} {
		c := l.Acquire("v")
		_, err := c.Read(c.Command, seconds, nil)
		var guard *wire.GuardError
		require.ErrorAs(t, err, &guard)
		assert.Equal(t, want, guard.Wait)
	}
}

func TestTerms(t *testing.T) {
	terms := wire.Terms{Expiry: time.Second, DriftFactor: 0.01}
	assert.Equal(t, 12*time.Millisecond, terms.Drift())
	assert.Equal(t, 988*time.Millisecond, terms.Validity())
	assert.Equal(t, 103*time.Millisecond, terms.Lingering(100*time.Millisecond))
	terms.Expiry = math.MaxInt64
	assert.Positive(t, terms.Validity())
	assert.EqualValues(t, math.MaxInt64, terms.Lingering(math.MaxInt64))
}

func TestValues(t *testing.T) {
	v := wire.NewValue()
	assert.Len(t, v, 24)
	assert.NotEqual(t, v, wire.NewValue())
	assert.Empty(t, wire.OwnerOf(v))
	assert.Equal(t, "me", wire.OwnerOf("me:"+v))
	assert.Equal(t, "me:too", wire.OwnerOf("me:too:"+v))
	for _, other := range []string{"", ":", "me", "me:" + v + "x", "me:" + strings.Repeat("!", 24),
		"me:" + strings.Repeat("A", 24)} {
		assert.Empty(t, wire.OwnerOf(other), other)
	}
}

// Who a member is stands behind its number, as older versions' scripts can have it: without a space
// or a "+", and with the "*" of readers at the end.
func TestOwnerOfAMember(t *testing.T) {
	channel := "redlock:turn:" + strings.Repeat("A", 26)
	for _, owner := range []string{"", "web-3:4711", "a b*+\x00é", ":", strings.Repeat("x", 999)} {
		for _, shares := range []bool{false, true} {
			ending := wire.Ending(owner, shares)
			m := wire.Member{ID: channel + "2z" + ending}
			assert.Equal(t, owner, m.Owner())
			assert.NotContains(t, ending, " ")
			assert.NotContains(t, ending, "+")
			assert.Equal(t, shares, strings.HasSuffix(ending, wire.Shares))
		}
	}
	assert.Empty(t, wire.Ending("", false), "as older versions")
	for _, id := range []string{"", "x", channel, channel + "1", channel + "1:!"} {
		assert.Empty(t, (&wire.Member{ID: id}).Owner(), id)
	}
}

// A value that is shown does not release the lock.
func TestBrief(t *testing.T) {
	v := wire.NewValue()
	for value, want := range map[string]string{
		"": `""`, "ab": `""…`, "abcdef": `"ab"…`, v: `"` + v[:6] + `"…`,
		"me:" + v: `"me:` + v[:6] + `"…`,
	} {
		assert.Equal(t, want, wire.Brief(value))
	}
}

// A proposal is greater than any token seen, unless that is too far ahead of the clock.
func TestProposals(t *testing.T) {
	now := time.UnixMicro(1000)
	tokens := wire.Tokens{Now: func() time.Time { return now }}
	terms := wire.Terms{Expiry: time.Second, Fencing: true, FencePerName: true}
	l := wire.NewLock("x", &terms, &tokens)
	proposal := func() int64 { return l.Acquire("v").Args()[7].(int64) }
	assert.Equal(t, int64(1000), proposal(), "the clock's")
	tokens.Saw(5000)
	tokens.Saw(4000)
	assert.Equal(t, int64(5001), proposal())
	tokens.Saw(1 << 53)
	assert.Equal(t, int64(5001), proposal(), "a counter at its end is forgotten")
	now = time.UnixMicro(-1)
	assert.Positive(t, proposal())
}

// Every command tells a pool whether its node is the only one.
func TestCommandsOfOneNode(t *testing.T) {
	for _, alone := range []bool{false, true} {
		for _, terms := range []wire.Terms{
			{Expiry: time.Second, Queue: true, NodeTimeout: 50 * time.Millisecond},
			{Expiry: time.Second, Guard: time.Second, Fencing: true, FencePerName: true},
			{Expiry: time.Second, NodeTimeout: 50 * time.Millisecond, Shared: true},
		} {
			l := lock(terms)
			l.Alone = alone
			for _, c := range []quorum.Command{
				l.Acquire("v"), l.AcquireUnguarded("v"), l.Claim("v", "m"), l.Swap("v", "w"),
				l.Heal("v", 1), l.Raise("v", 1), l.Extend("v"), l.Linger("v", time.Second),
				l.Valid("v"), l.Release("v", ""), l.Release("v", "m"), l.TakeBack("v", "m", 3),
				l.Leave(member), l.Forget("k", "text"), l.Stand(member, time.Minute),
			} {
				assert.Equal(t, alone, c.Alone, "%v", c.Args())
			}
		}
	}
}
