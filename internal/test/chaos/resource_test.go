package chaos

import (
	"errors"
	"io"
	"path/filepath"
	"testing"
)

func TestResource(t *testing.T) {
	h := NewHistory(io.Discard)
	path := filepath.Join(t.TempDir(), "resource")
	res, err := NewResource(path, h)
	if err != nil {
		t.Fatal(err)
	}
	var clients [2]*resourceClient
	for i := range clients {
		if clients[i], err = dialResource(path); err != nil {
			t.Fatal(err)
		}
	}
	do := func(worker int, op Op, token uint64, value, want int64, wantErr error) {
		t.Helper()
		got, err := clients[worker].do(request{Op: op, Worker: worker, Token: token, Value: value})
		if got != want || !errors.Is(err, wantErr) {
			t.Errorf("worker %d, %s with token %d: got %d, %v; want %d, %v", worker, op, token, got,
				err, want, wantErr)
		}
	}
	if got := res.Holder(); got != -1 {
		t.Errorf("before the first read, worker %d was the last", got)
	}
	// Both read 0; worker 1 with the newer token.
	do(0, Read, 7, 0, 0, nil)
	do(0, Read, 0, 0, 0, nil)
	do(1, Read, 8, 0, 0, nil)
	do(1, Read, 0, 0, 0, nil)
	if got := res.Holder(); got != 1 {
		t.Errorf("worker %d read last, want 1", got)
	}
	do(0, Write, 7, 1, 0, errStale)
	do(0, Write, 0, 1, 1, nil)
	do(1, Write, 8, 1, 1, nil)
	do(1, Write, 0, 1, 1, nil)
	if got, want := res.Tally(), (Tally{Fenced: 1, Refused: 1, Plain: 2, Lost: 1}); got != want {
		t.Errorf("tally %+v, want %+v", got, want)
	}
	late := func(op Op, token uint64, value, want int64, wantErr error) {
		t.Helper()
		got, err := clients[0].do(request{Op: op, Late: true, Token: token, Value: value})
		if got != want || !errors.Is(err, wantErr) {
			t.Errorf("%s with token %d behind the late fence: got %d, %v; want %d, %v", op, token,
				got, err, want, wantErr)
		}
	}
	late(Read, 8, 0, 0, nil)
	late(Write, 7, 1, 1, nil) // nobody has written with 8
	late(Write, 8, 1, 1, nil)
	late(Write, 7, 5, 1, errStale)
	if got := res.Tally(); got.Late != 2 || got.LateLost != 1 || got.Refused != 1 {
		t.Errorf("tally %+v, want one of two late updates lost", got)
	}
	do(1, Write, 8, 1, 1, nil) // which loses its own
	if got := res.Tally().FencedLost; got != 1 {
		t.Errorf("%d updates behind the fence were lost, want 1", got)
	}
	for _, c := range clients {
		_ = c.c.Close()
	}
	if err := res.Close(); err != nil {
		t.Error(err)
	}
	events, err := h.Events()
	if err != nil || len(events) != 5 {
		t.Errorf("history %v, %v; want the five accesses behind the fence", events, err)
	}
	if err := CheckFence(events[:4]); err != nil {
		t.Errorf("the resource's own history: %v", err)
	}
}
