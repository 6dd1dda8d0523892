package chaos

import (
	"strings"
	"testing"
)

// on makes the events those of a lock of that name.
func on(name string, events ...Event) []Event {
	for i := range events {
		events[i].Name = name
	}
	return events
}

// s makes the events those of readers.
func s(events ...Event) []Event {
	for i := range events {
		events[i].Shared = true
	}
	return events
}

func TestCheckSeveral(t *testing.T) {
	join := func(parts ...[]Event) (all []Event) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	lock := func(parts ...[]Event) []Event { return on(lockName, join(parts...)...) }
	alone := func(events ...Event) []Event { return events }
	const illegal = "not linearizable as a "
	for name, c := range map[string]struct {
		history []Event
		wrong   []string // parts of the error; none for a valid history
	}{
		"empty": {},
		"readers together, with tokens in any order": {history: lock(
			s(l("a", 0, 10, 6, 100), r(6, 11, 0, true), l("b", 5, 20, 5, 100), r(5, 21, 0, true)),
			alone(u("a", 30, 40, true), u("b", 35, 45, true), l("w", 10, 46, 7, 150),
				r(7, 47, 0, true), w(7, 48, 1, true), u("w", 50, 60, true)),
			s(l("c", 55, 65, 8, 150), r(8, 66, 1, true)))},
		"a reader beside a writer": {
			wrong:   []string{"two holders: a until 100, and b", illegal + "reg"},
			history: lock(alone(l("a", 0, 10, 5, 100)), s(l("b", 20, 30, 6, 120)))},
		"a writer beside a reader": {
			wrong:   []string{"two holders: a until 100, and b", illegal + "reg"},
			history: lock(s(l("a", 0, 10, 5, 100)), alone(l("b", 20, 30, 6, 120)))},
		"a writer beside the second of two readers": {
			wrong: []string{"two holders: b until 100, and w", illegal + "reg"},
			history: lock(s(l("a", 0, 10, 5, 100), l("b", 0, 10, 6, 100)),
				alone(u("a", 20, 30, true), l("w", 20, 40, 7, 140)))},
		"two writers": {wrong: []string{"two holders", illegal + "reg"},
			history: lock(alone(l("a", 0, 10, 5, 100), l("b", 20, 30, 6, 120)))},
		"a reader that has not seen what was written": {wrong: []string{illegal + "reg"},
			history: lock(alone(l("a", 0, 10, 5, 100), r(5, 11, 0, true), w(5, 12, 1, true),
				u("a", 20, 30, true)), s(l("b", 35, 40, 6, 100), r(6, 41, 0, true)))},
		"a write under a read": {wrong: []string{illegal + "reg"}, history: lock(
			s(l("a", 0, 10, 5, 100), r(5, 11, 0, true), r(5, 30, 1, true)))},
		"a stale read refused": {history: lock(s(l("a", 0, 10, 5, 100)),
			alone(l("w", 90, 101, 6, 200), r(6, 102, 0, true)), s(r(5, 110, 0, false)))},
		"a stale read accepted": {wrong: []string{illegal + "reg"}, history: lock(
			s(l("a", 0, 10, 5, 100)), alone(l("w", 90, 101, 6, 200), r(6, 102, 0, true)),
			s(r(5, 110, 0, true)))},
		"a token not above a writer's": {
			wrong: []string{"token 5 of grant b is not above 5 of grant a", illegal + "reg"},
			history: lock(alone(l("a", 0, 10, 5, 100), u("a", 20, 30, true)),
				s(l("b", 40, 50, 5, 150)))},
		"a writer's token not above a reader's": {
			wrong: []string{"token 4 of grant b is not above 5 of grant a", illegal + "reg"},
			history: lock(s(l("a", 0, 10, 5, 100)), alone(u("a", 20, 30, true),
				l("b", 40, 50, 4, 150)))},
		"both slots, then each": {history: join(
			on(slots[0], l("a", 0, 10, 5, 100), u("a", 20, 30, true), l("c", 25, 35, 6, 150)),
			on(slots[1], l("b", 0, 10, 5, 100), u("b", 20, 30, true), l("d", 25, 35, 6, 150)))},
		"one slot twice": {wrong: []string{"two holders: a until 100, and b"}, history: on(slots[0],
			l("a", 0, 10, 5, 100), l("b", 20, 30, 6, 120))},
		"more than the permits": {wrong: []string{illegal + "semaphore"}, history: join(
			on(slots[0], l("a", 0, 10, 5, 100)), on(slots[1], l("b", 0, 10, 5, 100)),
			on("another", l("c", 20, 30, 5, 100)))},
		"another slot's lock is no obstacle": {history: join(on(lockName, l("a", 0, 10, 5, 100)),
			on(slots[0], l("b", 0, 10, 5, 100)), on(slots[1], l("c", 0, 10, 5, 100)))},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckSeveral(c.history)
			if len(c.wrong) == 0 && err != nil {
				t.Error(err)
			}
			for _, want := range c.wrong {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("want %q, got %v", want, err)
				}
			}
		})
	}
}
