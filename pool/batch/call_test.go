package batch_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// The first call of a batch says whether a crowd of callers of one node sends it. So does one that
// stands for several releases.
func TestACallSaysWhetherItIsOfACrowd(t *testing.T) {
	for _, test := range []struct {
		alone bool
		calls int // beside one under way
		want  bool
	}{
		{true, fewAlone - 1, false}, {true, fewAlone, true}, {false, fewAlone, false},
	} {
		serving(t, func(s *server) {
			var said []bool // one batch after the other
			s.calls.MaxSends = 1
			s.calls.Send = func(ctx context.Context, calls []*call) {
				said = append(said, calls[0].Crowded())
				s.send(ctx, calls)
			}
			gate := make(chan struct{})
			s.gate = gate
			for i := range 1 + test.calls {
				command := release(fmt.Sprint(i))
				command.Alone = test.alone
				s.calls.Start(s.Context(), command, &outcome{})
				synctest.Wait()
			}
			close(gate)
			synctest.Wait()
			if want := []bool{false, test.want}; !slices.Equal(said, want) {
				t.Errorf("alone %v, %d calls: batches said %v, want %v", test.alone,
					1+test.calls, said, want)
			}
		})
	}
}
