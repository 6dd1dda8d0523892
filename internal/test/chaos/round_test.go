package chaos

import (
	"testing"
	"testing/synctest"
	"time"
)

// What the machine takes is not counted, but for as long as a look may be late.
func TestStopwatch(t *testing.T) {
	for _, c := range []struct {
		name         string
		each, passed time.Duration // a look each, and what has passed after 100
	}{
		{"looks in time", rest, 100 * rest},
		{"looks a little late", 3 * rest / 2, 150 * rest},
		{"a machine that stands still", time.Minute, 200 * rest},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s stopwatch
				if passed := s.look(); passed != 0 {
					t.Errorf("%v at the first look", passed)
				}
				for range 100 {
					time.Sleep(c.each)
					s.look()
				}
				if s.passed != c.passed {
					t.Errorf("%v after 100 looks, one each %v; want %v", s.passed, c.each, c.passed)
				}
			})
		})
	}
}
