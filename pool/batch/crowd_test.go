package batch_test

import (
	"slices"
	"testing"
)

// In a crowd, calls to a node that is alone in its group wait until fewer than four batches are
// under way. So they go together. Nothing changes for other nodes.
func TestACrowdSharesFourBatches(t *testing.T) {
	for _, c := range []struct {
		crowd   int
		alone   bool
		batches int // of one call each, until others wait
	}{
		{fewAlone - 1, true, fewAlone}, {fewAlone, true, fewAlone}, {fewAlone + 1, true, 4},
		{fewAlone - 1, false, few}, {fewAlone, false, few}, {fewAlone + 1, false, few},
	} {
		inBubbleOf(t, c.alone, func(n *node) {
			var slow outcomes
			for range c.crowd {
				slow = append(slow, n.start(n.Context(), "slow"))
			}
			close(n.gate)
			slow.granted()
			n.gate = make(chan struct{})
			before := len(n.sent())
			var beside outcomes
			for range c.batches {
				beside = append(beside, n.start(n.Context(), "slow"))
			}
			if sent := len(n.sent()) - before; sent != c.batches {
				t.Errorf("%+v: %d calls go by themselves", c, sent)
			}
			a, b := n.start(n.Context(), "a"), n.start(n.Context(), "b")
			if !a.open() || !b.open() {
				t.Errorf("%+v: one more call goes by itself", c)
			}
			close(n.gate)
			append(beside, a, b).granted()
			if sent := n.sent(); !slices.Equal(sent[len(sent)-1], []string{"a", "b"}) {
				t.Errorf("%+v: the last batch is %q", c, sent[len(sent)-1])
			}
		})
	}
}
