package batch_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// A call says whether no other node is asked. So does one that stands for several releases.
func TestACallSaysWhetherItsNodeIsAlone(t *testing.T) {
	for _, alone := range []bool{false, true} {
		serving(t, func(s *server) {
			var said []bool // one batch after the other
			s.calls.MaxSends = 1
			s.calls.Send = func(ctx context.Context, calls []*call) {
				for _, c := range calls {
					said = append(said, c.Alone())
				}
				s.send(ctx, calls)
			}
			gate := make(chan struct{})
			s.gate = gate
			for _, key := range []string{"before", "a", "b"} {
				command := release(key)
				command.Alone = alone
				s.calls.Start(s.Context(), command, &outcome{})
				synctest.Wait()
			}
			close(gate)
			synctest.Wait()
			s.want("release before", "releases a b")
			if want := []bool{alone, alone}; !slices.Equal(said, want) {
				t.Errorf("calls said %v, want %v", said, want)
			}
		})
	}
}
