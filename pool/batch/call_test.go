package batch_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
)

// The first call of a batch says whether a crowd of callers of one node sends it. So does one that
// stands for several releases.
func TestACallSaysWhetherItIsOfACrowd(t *testing.T) {
	for _, test := range []struct {
		alone   bool
		callers int
		want    bool
	}{
		{true, fewCallers, false}, {true, fewCallers + 1, true}, {false, fewCallers + 1, false},
	} {
		serving(t, func(s *server) {
			var said bool // by the last batch
			s.calls.MaxSends = 1
			s.calls.Send = func(ctx context.Context, calls []*call) {
				said = calls[0].Crowded()
				s.send(ctx, calls)
			}
			for range crowdCalls { // more than that are sent
				s.gate = make(chan struct{})
				for i := range test.callers {
					command := release(fmt.Sprint(i))
					command.Alone = test.alone
					s.calls.Start(s.Context(), command, &outcome{})
					synctest.Wait()
				}
				close(s.gate)
				synctest.Wait()
			}
			if said != test.want {
				t.Errorf("alone %v, %d callers: a batch said %v, want %v", test.alone,
					test.callers, said, test.want)
			}
		})
	}
}
