// Code generated from package rueidis by TestCopy; DO NOT EDIT.

package valkeygo_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/valkeygo"
)

// A crowd of callers of one node has connections of its own, where they end in time. It has none
// while those that there were may be lost.
func TestACrowdOfOneNodeHasConnectionsOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		name              string
		alone, ends, wrap bool
		after             time.Duration // that the node was reached
		own               bool
	}{
		{"of one node", true, true, false, time.Minute, true},
		{"of several nodes", false, true, false, time.Minute, false},
		{"whose contexts have no deadline", true, false, false, time.Minute, false},
		{"behind a wrapper", true, true, true, time.Minute, false},
		{"of a node that was just reached", true, true, false, time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(b *bench) {
				if c.wrap {
					b.pool = valkeygo.NewPool(wrapper{b.client})
				}
				b.start(b.Context(), "before").granted()
				time.Sleep(c.after)
				ctx := b.Context()
				if c.ends {
					ctx = b.within(time.Minute)
				}
				for round := range 40 { // more than twice the 128 calls of a crowd
					gate := b.hold("held")
					for range 8 {
						command := pool.SetNX("held", "value", time.Hour)
						command.Alone = c.alone
						b.startCommand(ctx, "held", command)
					}
					if n := b.connections(); round == 0 && n != 1 {
						t.Errorf("before there was a crowd, there were %d connections, want 1", n)
					}
					close(gate)
					synctest.Wait()
				}
				if n := b.connections(); n > 1 != c.own {
					t.Errorf("there were %d connections, want 1: %v", n, !c.own)
				}
			})
		})
	}
}
