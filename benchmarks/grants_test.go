package main

import (
	"testing"
	"time"
)

// Turns that touch are not at once: the clocks of processes differ.
func TestAtOnce(t *testing.T) {
	const ms = int64(time.Millisecond)
	for name, tt := range map[string]struct {
		clients [][]turn
		want    int
	}{
		"none":         {nil, 0},
		"not granted":  {[][]turn{{{Asked: 1}}, {{Asked: 1}}}, 0},
		"one after":    {[][]turn{{{1, 10 * ms, 20 * ms}}, {{1, 20 * ms, 30 * ms}}}, 1},
		"within slack": {[][]turn{{{1, 10 * ms, 20 * ms}}, {{1, 19 * ms, 30 * ms}}}, 1},
		"beside":       {[][]turn{{{1, 10 * ms, 20 * ms}}, {{1, 15 * ms, 30 * ms}}}, 2},
		"two of three": {[][]turn{{{1, 10 * ms, 50 * ms}},
			{{1, 11 * ms, 20 * ms}, {1, 30 * ms, 40 * ms}}}, 2},
		"three of them": {[][]turn{{{1, 10 * ms, 50 * ms}}, {{1, 11 * ms, 50 * ms}},
			{{1, 12 * ms, 50 * ms}}}, 3},
	} {
		if got := atOnce(tt.clients); got != tt.want {
			t.Errorf("%s: %d at once, want %d", name, got, tt.want)
		}
		if len(tt.clients) == 2 && overlap(tt.clients[:1], tt.clients[1:]) != (tt.want == 2) {
			t.Errorf("%s: overlap is wrong", name)
		}
	}
}

// A wait that the end cut off counts as one, and no grant.
func TestCount(t *testing.T) {
	end := time.Unix(0, 100)
	g := count([][]turn{
		{{Asked: 0, Granted: 10, Released: 20}, {Asked: 20, Granted: 90, Released: 120}},
		{{Asked: 40}, {Asked: 100, Granted: 110, Released: 120}},
	}, end)
	if g.grants != 2 || g.fewest != 0 || g.most != 2 || g.held != 20 || g.longest != 70 {
		t.Errorf("%+v", g)
	}
}
