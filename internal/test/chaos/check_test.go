package chaos

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// A history in few words: l(grant, call, return, token, until) and so on.
func l(grant string, call, ret int64, token uint64, until int64) Event {
	return Event{Op: Lock, Grant: grant, Call: call, Return: ret, Token: token, Until: until,
		OK: true}
}

func x(grant string, call, ret, until int64) Event {
	return Event{Op: Extend, Grant: grant, Call: call, Return: ret, Until: until, OK: true}
}

func u(grant string, call, ret int64, ok bool) Event {
	return Event{Op: Unlock, Grant: grant, Call: call, Return: ret, OK: ok}
}

func leave(grant string, at int64) Event {
	return Event{Op: Leave, Grant: grant, Call: at, Return: at, OK: true}
}

func lost(grant string, told, until int64) Event {
	return Event{Op: Lost, Grant: grant, Call: told, Return: told, Until: until, OK: true}
}

func r(token uint64, at, value int64, ok bool) Event {
	return Event{Op: Read, Token: token, Call: at, Return: at, Value: value, OK: ok}
}

func w(token uint64, at, value int64, ok bool) Event {
	return Event{Op: Write, Token: token, Call: at, Return: at, Value: value, OK: ok}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		history []Event
		wrong   string // part of the error; "" for a valid history
		without string // a part of the error that must not be there
		fence   bool   // whether the fence alone finds it wrong
	}{
		"empty": {},
		"two in turn": {history: []Event{
			l("a", 0, 10, 5, 100), r(5, 11, 0, true), w(5, 12, 1, true), u("a", 20, 30, true),
			l("b", 5, 25, 6, 200), r(6, 26, 1, true), w(6, 27, 2, true), u("b", 40, 50, true),
		}},
		"granted while the other's Unlock is under way": {history: []Event{
			l("a", 0, 10, 5, 100), u("a", 20, 60, false), l("b", 5, 25, 6, 200),
		}},
		"granted while the other's Unlock, which kills it, is under way": {history: []Event{
			l("a", 0, 10, 5, 100), leave("a", 20), l("b", 5, 25, 6, 200),
		}},
		"granted before the other is about to unlock": {wrong: "two holders: a until 26",
			history: []Event{
				l("a", 0, 10, 5, 100), leave("a", 26), l("b", 5, 25, 6, 200),
			}},
		"granted after the other's validity": {history: []Event{
			l("a", 0, 10, 5, 100), l("b", 50, 101, 6, 200), u("a", 110, 120, false),
		}},
		"told of the grant after its end": {history: []Event{
			l("a", 0, 300, 5, 100), l("b", 50, 150, 6, 250), u("b", 200, 210, true),
			u("a", 310, 320, false),
		}},
		"told of the grant when it was lost": {history: []Event{
			l("a", 0, 300, 5, 0), l("b", 50, 150, 6, 250), u("b", 200, 210, true),
			x("a", 301, 302, 0), u("a", 310, 320, false),
		}},
		"lost, and told before the next was granted the lock": {history: []Event{
			l("a", 0, 10, 5, 100), l("b", 120, 175, 6, 250), x("a", 170, 171, 180),
			lost("a", 169, 180), u("a", 172, 173, false),
		}},
		"lost, and told after the next was granted the lock": {wrong: "two holders: a until 178",
			history: []Event{
				l("a", 0, 10, 5, 100), l("b", 120, 175, 6, 250), x("a", 179, 180, 180),
				lost("a", 178, 180), u("a", 180, 181, false),
			}},
		"told late, but nobody could trust it any more": {history: []Event{
			l("a", 0, 10, 5, 100), l("b", 120, 185, 6, 250), x("a", 190, 190, 180),
			lost("a", 189, 180), u("a", 191, 192, false),
		}},
		"a loss of nothing": {wrong: "lost of grant b, which the history has not",
			history: []Event{lost("b", 1, 2)}},
		"a stale write refused": {history: []Event{
			l("a", 0, 10, 5, 100), r(5, 11, 0, true), l("b", 50, 101, 6, 200), r(6, 110, 0, true),
			w(5, 120, 1, false), w(6, 130, 1, true),
		}},
		"a stale write before the next holder shows its token": {history: []Event{
			l("a", 0, 10, 5, 100), r(5, 11, 0, true), l("b", 50, 101, 6, 200), w(5, 120, 1, true),
			r(6, 130, 1, true),
		}},
		"two at once": {wrong: "two holders: a until 80, and b from 50 on", history: []Event{
			l("a", 0, 10, 5, 100), l("b", 40, 50, 6, 200), u("b", 60, 70, true),
			u("a", 80, 90, true),
		}},
		"two at once, because the first had extended": {wrong: "two holders: a until 180",
			history: []Event{
				l("a", 0, 10, 5, 100), x("a", 50, 60, 180), l("b", 120, 150, 6, 250),
			}},
		"two at once, with a third between": {wrong: "two holders: a until 100", history: []Event{
			l("a", 0, 10, 5, 100), l("c", 11, 90, 7, 80), l("b", 40, 95, 8, 200),
		}},
		"a token again": {wrong: "token 5 of grant b is not above 5 of grant a",
			without: "two holders", history: []Event{
				l("a", 0, 10, 5, 100), u("a", 20, 30, true), l("b", 40, 50, 5, 200),
			}},
		"a token that falls": {wrong: "token 4 of grant b is not above 5 of grant a",
			history: []Event{
				l("a", 0, 10, 5, 100), u("a", 20, 30, true), l("b", 40, 50, 4, 200),
			}},
		"tokens out of order in overlapping calls": {wrong: "not linearizable", without: "token",
			history: []Event{
				l("a", 0, 10, 6, 100), u("a", 20, 30, true), l("b", 5, 25, 5, 200),
			}},
		"a token that nobody was granted": {wrong: "not linearizable", without: "two holders",
			history: []Event{
				l("a", 0, 10, 5, 100), r(6, 11, 0, true),
			}},
		"a stale write accepted": {wrong: "write with token 5 was accepted: true, after token 6 " +
			"was seen", fence: true, history: []Event{
			l("a", 0, 10, 5, 100), r(5, 11, 0, true), l("b", 50, 101, 6, 200), r(6, 110, 0, true),
			w(5, 120, 1, true),
		}},
		"a fresh write refused": {wrong: "write with token 6 was accepted: false", fence: true,
			history: []Event{
				l("a", 0, 10, 6, 100), r(6, 11, 0, true), w(6, 12, 1, false),
			}},
		"a lost update": {wrong: "an update was lost", fence: true, history: []Event{
			l("a", 0, 10, 5, 100), r(5, 11, 0, true), w(5, 12, 1, true), w(5, 13, 1, true),
		}},
		"an unlock of nothing": {wrong: "unlock of grant b, which the history has not",
			history: []Event{u("b", 1, 2, true)}},
		"a grant twice": {wrong: "grant a is in the history twice",
			history: []Event{l("a", 0, 10, 5, 100), l("a", 110, 120, 6, 200)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := Check(c.history); err != nil {
				got = err.Error()
			}
			if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
				t.Errorf("got %q, want %q", got, c.wrong)
			}
			if c.without != "" && strings.Contains(got, c.without) {
				t.Errorf("got %q, want no %q", got, c.without)
			}
			if err := CheckFence(c.history); (err != nil) != c.fence {
				t.Errorf("the fence alone: %v", err)
			}
		})
	}
}

func elected(grant string, call, ret int64, term uint64) Event {
	return Event{Op: Elected, Grant: grant, Call: call, Return: ret, Token: term, OK: true}
}

func leads(who string, term uint64, call, ret int64) Event {
	return Event{Op: Leads, Grant: who, Call: call, Return: ret, Token: term, OK: true}
}

func TestCheckElection(t *testing.T) {
	for name, c := range map[string]struct {
		wrong   string // part of the error; "" for a valid history
		history []Event
	}{
		"empty": {},
		"one after the other": {"", []Event{
			elected("a.0", 0, 10, 5), leads("a", 5, 11, 12), leads("a", 5, 20, 21),
			r(5, 15, 0, true), w(5, 16, 1, true),
			elected("b.0", 5, 30, 6), leads("b", 6, 31, 32), r(6, 33, 1, true),
		}},
		"nobody looked in a term": {"", []Event{
			elected("a.0", 0, 10, 5), elected("b.0", 20, 30, 6), elected("a.1", 31, 40, 7),
			leads("a", 7, 41, 42),
		}},
		"asked before the other was": {"", []Event{leads("a", 5, 11, 40), leads("b", 6, 31, 32)}},
		"paused while it was asked":  {"", []Event{leads("b", 6, 31, 32), leads("a", 5, 11, 40)}},
		"asked when the other answers": {"", []Event{
			leads("a", 5, 11, 31), leads("b", 6, 31, 32), leads("a", 5, 32, 33),
		}},
		"a leader after the next one": {"two leaders: a in term 5, 1ns after b in term 6", []Event{
			leads("a", 5, 11, 12), leads("b", 6, 31, 32), leads("a", 5, 33, 34),
		}},
		"the history out of order": {"two leaders: a in term 5, 1ns after b in term 6", []Event{
			leads("a", 5, 33, 34), leads("b", 6, 31, 32),
		}},
		"two later leaders": {"two leaders: a in term 5, 1ns after c in term 7", []Event{
			leads("b", 6, 20, 31), leads("c", 7, 30, 32), leads("a", 5, 33, 34),
		}},
		"two of one term": {"two leaders of term 5: a and b", []Event{
			leads("a", 5, 11, 12), leads("b", 5, 31, 32),
		}},
		"a term again": {"token 5 of grant a.1 is not above 5 of grant a.0", []Event{
			elected("a.0", 0, 10, 5), elected("a.1", 20, 30, 5),
		}},
		"a term that falls": {"token 4 of grant b.0 is not above 5 of grant a.0", []Event{
			elected("a.0", 0, 10, 5), elected("b.0", 20, 30, 4),
		}},
		"a lost update": {"an update was lost", []Event{
			r(5, 11, 0, true), w(5, 12, 1, true), w(5, 13, 1, true),
		}},
		"a stale term": {"write with token 5 was accepted: true, after token 6 was seen", []Event{
			r(6, 11, 0, true), w(5, 12, 1, true),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := CheckElection(c.history); err != nil {
				got = err.Error()
			}
			if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
				t.Errorf("got %q, want %q", got, c.wrong)
			}
		})
	}
}

func TestCheckTold(t *testing.T) {
	busy, late, wrongCause := lost("a", 900, 100), lost("a", 900, 100), lost("a", 90, 100)
	busy.Value, late.Value, wrongCause.OK = tooLate, tooLate+1, false
	for name, c := range map[string]struct {
		event Event
		wrong string
	}{
		"in time":                   {lost("a", 90, 100), ""},
		"late, like anything there": {busy, ""},
		"late":                      {late, "worker 0 was told 800ns too late"},
		"for another reason":        {wrongCause, "wrong cause"},
		"not lost at all":           {Event{Op: Read, Value: tooLate + 1}, ""},
	} {
		got := ""
		if err := CheckTold([]Event{c.event}); err != nil {
			got = err.Error()
		}
		if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: got %q, want %q", name, got, c.wrong)
		}
	}
}

// The sweep and the linearizability checker answer the same question about overlaps; each
// has to find them without the other.
func TestLinearizabilityFindsOverlapsToo(t *testing.T) {
	all, err := grants([]Event{l("a", 0, 10, 5, 100), l("b", 40, 50, 6, 200), u("b", 60, 70, true),
		u("a", 80, 90, true)})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkLinearizable(all, nil); err == nil {
		t.Error("two holders at once were found linearizable")
	}
}

func TestHistoryRoundTrip(t *testing.T) {
	var out bytes.Buffer
	h := NewHistory(&out)
	want := []Event{l("a", 0, 10, 5, 100),
		{Op: Lock, Worker: 3, Call: 1, Return: 2, Err: "no quorum"}, r(5, 7, 0, true)}
	for _, e := range want {
		h.Add(e)
	}
	again := NewHistory(&bytes.Buffer{})
	if err := again.ReadHistory(&out); err != nil {
		t.Fatal(err)
	}
	got, err := again.Events()
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if err := again.ReadHistory(strings.NewReader("no JSON\n")); err == nil {
		t.Error("a broken line was read")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, fmt.Errorf("no space left") }

func TestHistoryTellsOfLostLines(t *testing.T) {
	h := NewHistory(full{})
	h.Add(Event{Op: Lock})
	if _, err := h.Events(); err == nil {
		t.Error("the history could not be written, and said nothing")
	}
}
