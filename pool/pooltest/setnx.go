package pooltest

import (
	"strings"
	"time"
)

var setNXTests = []test{
	{"sets a free key and says so", func(s *suite) {
		if !s.lock(s.key("k"), "v", expiry) {
			s.Error("SetNX of a free key = false, want true")
		}
		s.want("the key holds the value", s.eval(same, []string{s.key("k")}, "v"), int64(1))
	}},

	{"refuses a taken key without an error and leaves it as it was", func(s *suite) {
		k := s.key("k")
		s.lock(k, "first", time.Minute)
		for _, value := range []string{"second", "first", ""} {
			if s.lock(k, value, time.Hour) {
				s.Errorf("SetNX of a taken key with %q = true, want false", value)
			}
		}
		s.want("the key holds the first value", s.eval(same, []string{k}, "first"), int64(1))
		if ms := s.eval(pttl, []string{k}).(int64); ms > time.Minute.Milliseconds() {
			s.Errorf("a refused SetNX moved the expiry to %d ms", ms)
		}
	}},

	{"takes any type of key for taken", func(s *suite) { // lesson L46
		s.eval(list, []string{s.key("k")})
		if s.lock(s.key("k"), "v", expiry) {
			s.Error("SetNX of a key that is a list = true, want false")
		}
	}},

	{"sets a key again after its release", func(s *suite) {
		k := s.key("k")
		for i := range 3 {
			if !s.lock(k, "v", expiry) {
				s.Fatalf("SetNX number %d = false, want true", i+1)
			}
			s.want("release", s.eval(release, []string{k}, "v"), int64(1))
		}
	}},

	// The node's clock ticks while the test looks, so it looks often where there is something to
	// round: a rounded expiry shows itself sooner or later, a correct one never does.
	{"cuts the expiry to whole milliseconds", func(s *suite) { // lesson L8
		for d, looks := range map[time.Duration]int{
			1999*time.Millisecond + 999_999*time.Nanosecond: 50,
			1999 * time.Millisecond:                         10,
			1500*time.Millisecond + 500*time.Microsecond:    50,
			48 * time.Hour: 10,
		} {
			var most int64
			for range looks {
				k := s.key("k")
				s.lock(k, "v", d)
				most = max(most, s.eval(take, []string{k}).(int64))
			}
			if most > d.Milliseconds() {
				s.Errorf("expiry %v: PTTL is up to %d ms, want at most %d", d, most,
					d.Milliseconds())
			}
			if most < d.Milliseconds()-500 {
				s.Errorf("expiry %v: PTTL is never more than %d ms", d, most)
			}
		}
	}},

	{"accepts one millisecond", func(s *suite) {
		if !s.lock(s.key("k"), "v", time.Millisecond) {
			s.Error("SetNX of a free key for 1ms = false, want true")
		}
	}},

	{"sets nothing for less than one millisecond", func(s *suite) { // lesson L8
		for _, d := range []time.Duration{999 * time.Microsecond, 0, -time.Second} {
			if ok, err := s.pool.SetNX(s.ctx, s.key("k"), "v", d); err == nil {
				s.Errorf("SetNX for %v = %v without an error", d, ok)
			}
			s.want("the key", s.eval(same, []string{s.key("k")}, "v"), int64(-1))
		}
	}},

	{"keeps keys and values byte by byte", func(s *suite) { // lesson L44
		for _, text := range hardStrings {
			k := s.key("k:" + text)
			if !s.lock(k, text, expiry) {
				s.Errorf("SetNX of key %.40q = false, want true", k)
			}
			s.want("another value than "+label(text), s.eval(same, []string{k}, text+"x"), int64(0))
			if text != "" {
				s.want("a prefix of "+label(text), s.eval(same, []string{k}, text[:len(text)-1]),
					int64(0))
			}
			s.want("another key than "+label(text), s.eval(same, []string{k + "\x00"}, text),
				int64(-1))
			// An embedded node takes long to look after a key of a million bytes.
			s.want("release of the value "+label(text), s.eval(release, []string{k}, text),
				int64(1))
		}
	}},
}

// hardStrings are those that a careless client changes, cuts or rejects.
var hardStrings = []string{
	"", " ", "0", "nil", "OK", "%s%d", "*1\r\n$4\r\nPING\r\n",
	"a\x00b", "\x00", "\xff\xfe\x80", "line\nline\r\n", "tab\t\"quoted\" 'too' \\n",
	"ключ-锁-🔒", "e\u0301", "{tag}", "}{", "*?[a-z]",
	strings.Repeat("long ", 200_000),
}

func label(text string) string {
	if len(text) > 20 {
		return text[:20] + "…"
	}
	return text
}
