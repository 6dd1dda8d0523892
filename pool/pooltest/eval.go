package pooltest

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"

	"github.com/redlock-go/redlock/pool"
)

var evalTests = []test{
	{"returns replies in the promised types", func(s *suite) { // lesson L37
		for _, c := range []struct {
			source string
			want   any
		}{
			{"return 0", int64(0)},
			{"return 1", int64(1)},
			{"return -1", int64(-1)},
			{"return 300", int64(300)},
			{"return 9007199254740991", int64(1<<53 - 1)},
			{"return -9007199254740991", int64(-1<<53 + 1)},
			{"return 3.99", int64(3)},
			{"return true", int64(1)},
			{"return false", nil},
			{"return nil", nil},
			{"", nil},
			{"return ''", ""},
			{"return '1'", "1"},
			{"return 'a\\0b\\255'", "a\x00b\xff"},
			{"return {ok = 'FINE'}", "FINE"},
			{"return {}", []any{}},
			{"return {1, 'two', {3, ''}, false, 5}",
				[]any{int64(1), "two", []any{int64(3), ""}, nil, int64(5)}},
		} {
			script := s.script(c.source, c.source)
			if got := s.eval(script, nil); !reflect.DeepEqual(got, c.want) {
				s.Errorf("%q = %#v, want %#v", c.source, got, c.want)
			}
			// Once more, now by EVALSHA alone.
			if got := s.eval(script, nil); !reflect.DeepEqual(got, c.want) {
				s.Errorf("%q for the second time = %#v, want %#v", c.source, got, c.want)
			}
		}
	}},

	{"returns an error reply as an error that says it", func(s *suite) { // lesson L43
		for _, text := range []string{
			"ERR redlock: something",
			"MISCONF Errors writing to the AOF file: No space left on device",
			"READONLY You can't write against a read only replica.",
			"OOM command not allowed when used memory > 'maxmemory'.",
			"NOPERM this user has no permissions to run the 'eval' command",
			"LOADING Redis is loading the dataset in memory",
			"MASTERDOWN Link with MASTER is down",
			"CUSTOM",
		} {
			script := s.script("error", fmt.Sprintf("return redis.error_reply(%q)", text))
			for range 2 {
				reply, err := s.pool.Eval(s.ctx, script, nil)
				// Some clients cut off the general code, and keep those that mean something.
				if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(text, "ERR ")) {
					s.Errorf("an error reply %q came as %#v, %v", text, reply, err)
				}
				if reply != nil {
					s.Errorf("an error reply %q came with the reply %#v, want nil", text, reply)
				}
			}
		}
	}},

	{"returns the error of a command in a script", func(s *suite) { // lesson L46
		s.eval(list, []string{s.key("k")})
		reply, err := s.pool.Eval(s.ctx, release, []string{s.key("k")}, "v")
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			s.Errorf("GET of a list = %#v, %v, want an error with WRONGTYPE", reply, err)
		}
	}},

	{"works after an error reply", func(s *suite) {
		bad := s.script("error", "return redis.error_reply('ERR bad')")
		for range 20 {
			_, _ = s.pool.Eval(s.ctx, bad, nil)
			s.want("echo", s.eval(echo, nil, "hello"), "hello")
		}
	}},

	{"gives the script its keys and arguments", func(s *suite) {
		joined := s.script("join", "return #KEYS .. ' ' .. table.concat(KEYS, ',') .. ' ' .. "+
			"#ARGV .. ' ' .. table.concat(ARGV, ',')")
		a, b := s.key("a"), s.key("b")
		for _, c := range []struct {
			keys []string
			args []any
			want string
		}{
			{nil, nil, "0  0 "},
			{[]string{a}, nil, "1 " + a + " 0 "},
			{nil, []any{"x"}, "0  1 x"},
			{[]string{a, b}, []any{"x", "", "z"}, "2 " + a + "," + b + " 3 x,,z"},
			{[]string{b, a}, []any{int64(-7), 12, int64(math.MaxInt64), int64(math.MinInt64)},
				"2 " + b + "," + a + " 4 -7,12,9223372036854775807,-9223372036854775808"},
		} {
			s.want("join", s.eval(joined, c.keys, c.args...), c.want)
		}
	}},

	{"passes arguments byte by byte", func(s *suite) {
		for _, text := range hardStrings {
			if got := s.eval(echo, nil, text); got != text {
				s.Errorf("echo of %.40q = %T of %d bytes, want the string of %d", text, got,
					len(fmt.Sprint(got)), len(text))
			}
		}
	}},

	{"does not change what it is given", func(s *suite) {
		keys, args := []string{s.key("a"), s.key("b")}, []any{"x", 1}
		s.eval(s.script("nothing", "return 1"), keys, args...)
		if !reflect.DeepEqual(keys, []string{s.key("a"), s.key("b")}) ||
			!reflect.DeepEqual(args, []any{"x", 1}) {
			s.Errorf("Eval changed its arguments to %q, %v", keys, args)
		}
	}},

	// A lock asks all its nodes with the same slices at the same time.
	{"shares keys and arguments with other calls", func(s *suite) { // lesson L94
		keys, args := append(make([]string, 0, 10), s.key("a"), s.key("b")),
			append(make([]any, 0, 10), "x", 1)
		script := s.script("join", "return KEYS[1] .. ' ' .. KEYS[2] .. ' ' .. ARGV[1] .. ' ' .. "+
			"ARGV[2]")
		want := s.key("a") + " " + s.key("b") + " x 1"
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 10 {
					if reply, err := s.pool.Eval(s.ctx, script, keys, args...); reply != want ||
						err != nil {
						s.Errorf("Eval = %v, %v, want %q: it has changed what other calls use as "+
							"well", reply, err, want)
						return
					}
				}
			})
		}
		wg.Wait()
		if !reflect.DeepEqual(keys[:3], []string{s.key("a"), s.key("b"), ""}) ||
			!reflect.DeepEqual(args[:3], []any{"x", 1, nil}) {
			s.Errorf("Eval changed its arguments to %q, %v, or wrote behind them", keys[:3],
				args[:3])
		}
	}},

	{"deletes only by the whole value", func(s *suite) { // lessons L37, L44
		k := s.key("k")
		s.lock(k, "abcdef", expiry)
		for _, foreign := range []string{"abc", "abcdefg", "ABCDEF", "", "bcdef"} {
			s.want("release with "+foreign, s.eval(release, []string{k}, foreign), int64(0))
		}
		s.want("release", s.eval(release, []string{k}, "abcdef"), int64(1))
		s.want("release again", s.eval(release, []string{k}, "abcdef"), int64(0))
	}},

	{"runs a script the node does not know, once", func(s *suite) { // lesson L39
		for i := range 3 {
			k := s.key("k") + fmt.Sprint(i)
			fresh := s.script("count", count.Source)
			s.want("the first run", s.eval(fresh, []string{k}), int64(1))
			s.want("the second run", s.eval(fresh, []string{k}), int64(2))
		}
	}},

	{"survives SCRIPT FLUSH between any two operations", func(s *suite) { // lesson L39
		d := s.doer()
		k, n := s.key("k"), s.key("n")
		flush := func() {
			if _, err := d.Do(s.ctx, "SCRIPT", "FLUSH"); err != nil {
				s.Fatal(err)
			}
		}
		for i := range 3 {
			flush()
			if !s.lock(k, "v", expiry) {
				s.Error("SetNX after SCRIPT FLUSH = false, want true")
			}
			s.want("count", s.eval(count, []string{n}), int64(2*i+1))
			flush()
			s.want("count", s.eval(count, []string{n}), int64(2*i+2))
			flush()
			s.want("release", s.eval(release, []string{k}, "v"), int64(1))
		}
	}},

	{"returns the error of a script the node does not know", func(s *suite) {
		script := s.script("error", "return redis.error_reply('ERR bad')")
		if reply, err := s.pool.Eval(s.ctx, script, nil); err == nil ||
			!strings.Contains(err.Error(), "bad") {
			s.Errorf("Eval = %#v, %v, want the script's error", reply, err)
		}
		broken := s.script("broken", "this is not Lua")
		if reply, err := s.pool.Eval(s.ctx, broken, nil); err == nil || pool.IsNoScript(err) {
			s.Errorf("Eval of what is not Lua = %#v, %v, want the compiler's error", reply, err)
		}
	}},
}
