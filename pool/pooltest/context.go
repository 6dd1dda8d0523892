package pooltest

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock/pool"
)

var contextTests = []test{
	{"sends nothing when the context has ended", func(s *suite) { // lesson L41
		canceled, cancel := context.WithCancel(s.ctx)
		cancel()
		late, cancel := context.WithDeadline(s.ctx, time.Now().Add(-time.Second))
		defer cancel()
		k, n := s.key("k"), s.key("n")
		for _, ctx := range []context.Context{canceled, late} {
			for range 20 {
				if ok, err := s.pool.SetNX(ctx, k, "v", expiry); ok || !errors.Is(err, ctx.Err()) {
					s.Errorf("SetNX = %v, %v, want false and %v", ok, err, ctx.Err())
				}
				if reply, err := s.pool.Eval(ctx, count, []string{n}); reply != nil ||
					!errors.Is(err, ctx.Err()) {
					s.Errorf("Eval = %v, %v, want nil and %v", reply, err, ctx.Err())
				}
			}
		}
		s.want("the key of SetNX", s.eval(same, []string{k}, "v"), int64(-1))
		s.want("runs of the script, this one included", s.eval(count, []string{n}), int64(1))
	}},

	{"keeps its connections usable when contexts end", func(s *suite) {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for j := range 10 {
					ctx, cancel := context.WithTimeout(s.ctx,
						time.Duration(rand.IntN(2000))*time.Microsecond)
					text := strconv.Itoa(i) + "/" + strconv.Itoa(j)
					reply, err := s.pool.Eval(ctx, echo, nil, text)
					if err == nil && reply != text {
						s.Errorf("echo of %q = %#v: another call's reply", text, reply)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		for i := range 50 {
			s.want("echo afterwards", s.eval(echo, nil, strconv.Itoa(i)), strconv.Itoa(i))
		}
	}},

	{"is not disturbed by the end of an earlier call's context", func(s *suite) {
		for i := range 20 {
			ctx, cancel := context.WithCancel(s.ctx)
			if _, err := s.pool.SetNX(ctx, s.key(strconv.Itoa(i)), "v", expiry); err != nil {
				s.Fatal(err)
			}
			cancel()
			s.want("echo", s.eval(echo, nil, "x"), "x")
		}
	}},
}

var concurrencyTests = []test{
	{"gives a contended key to exactly one", func(s *suite) { // lesson L10
		for round := range 10 {
			var granted atomic.Int32
			var wg sync.WaitGroup
			for i := range 32 {
				wg.Go(func() {
					ok, err := s.pool.SetNX(s.ctx, s.key(strconv.Itoa(round)), strconv.Itoa(i),
						expiry)
					if err != nil {
						s.Error(err)
					}
					if ok {
						granted.Add(1)
					}
				})
			}
			wg.Wait()
			if n := granted.Load(); n != 1 {
				s.Errorf("%d of 32 concurrent SetNX were granted, want 1", n)
			}
		}
	}},

	{"gives every caller its own reply", func(s *suite) {
		script := s.script("echo", "return {ARGV[1], KEYS[1]}")
		bad := s.script("error", "return redis.error_reply('ERR ' .. ARGV[1])")
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				for j := range 10 {
					text := strconv.Itoa(i) + "/" + strconv.Itoa(j)
					k := s.key(text)
					if ok, err := s.pool.SetNX(s.ctx, k, text, expiry); err != nil || !ok {
						s.Errorf("SetNX(%s) = %v, %v", text, ok, err)
					}
					reply, err := s.pool.Eval(s.ctx, script, []string{k}, text)
					if r, _ := reply.([]any); err != nil || len(r) != 2 || r[0] != text ||
						r[1] != k {
						s.Errorf("echo of %s = %v, %v", text, reply, err)
					}
					if _, err := s.pool.Eval(s.ctx, bad, []string{k}, text); err == nil ||
						!contains(err, text) {
						s.Errorf("error of %s = %v", text, err)
					}
					if reply, err := s.pool.Eval(s.ctx, release, []string{k}, text); err != nil ||
						reply != int64(1) {
						s.Errorf("release of %s = %v, %v", text, reply, err)
					}
				}
			})
		}
		wg.Wait()
	}},

	{"runs an unknown script once for each of many callers", func(s *suite) { // lesson L39
		fresh := s.script("count", count.Source)
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				if _, err := s.pool.Eval(s.ctx, fresh, []string{s.key("n")}); err != nil {
					s.Error(err)
				}
			})
		}
		wg.Wait()
		s.want("runs, this one included", s.eval(fresh, []string{s.key("n")}), int64(33))
	}},
}

var doTests = []test{
	{"sends a command and returns its reply", func(s *suite) {
		d := s.doer()
		k := s.key("k")
		for _, c := range []struct {
			args []any
			want any
		}{
			{[]any{"PING"}, "PONG"},
			{[]any{"SET", k, "v", "PX", 30000}, "OK"},
			{[]any{"GET", k}, "v"},
			{[]any{"get", k}, "v"},
			{[]any{"EXISTS", k}, int64(1)},
			{[]any{"DEL", k}, int64(1)},
			{[]any{"GET", k}, nil},
		} {
			got, err := d.Do(s.ctx, c.args...)
			if err != nil {
				s.Errorf("Do(%v): %v", c.args, err)
			}
			s.want("reply", got, c.want)
		}
	}},

	{"returns an error reply as an error", func(s *suite) {
		d := s.doer()
		s.eval(list, []string{s.key("k")})
		if reply, err := d.Do(s.ctx, "GET", s.key("k")); err == nil || !contains(err, "WRONGTYPE") {
			s.Errorf("GET of a list = %v, %v, want an error with WRONGTYPE", reply, err)
		}
	}},

	// Check reads CONFIG GET, which is a map where the client speaks RESP3.
	{"returns a map in one of the promised types", func(s *suite) { // lesson L89
		d := s.doer()
		k := s.key("k")
		want := map[string]string{"a": "1", "b": "", "c": "x y"}
		if _, err := d.Do(s.ctx, "HSET", k, "a", "1", "b", "", "c", "x y"); err != nil {
			s.Fatal(err)
		}
		if _, err := d.Do(s.ctx, "PEXPIRE", k, 30000); err != nil {
			s.Error(err)
		}
		reply, err := d.Do(s.ctx, "HGETALL", k)
		if got, ok := texts(reply); err != nil || !ok || !maps.Equal(got, want) {
			s.Errorf("HGETALL = %#v, %v, want %v as a map[string]string, a map[string]any, a "+
				"map[any]any or a []any of keys and values", reply, err, want)
		}
	}},

	{"refuses to send no command", func(s *suite) {
		if reply, err := s.doer().Do(s.ctx); err == nil {
			s.Errorf("Do() = %v without an error", reply)
		}
	}},

	{"sends nothing when the context has ended", func(s *suite) {
		d := s.doer()
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		if reply, err := d.Do(ctx, "SET", s.key("k"), "v", "PX", 30000); !errors.Is(err,
			context.Canceled) {
			s.Errorf("Do = %v, %v, want %v", reply, err, context.Canceled)
		}
		s.want("the key", s.eval(same, []string{s.key("k")}, "v"), int64(-1))
	}},
}

// texts reads a map of strings, of one of the types that pool.Doer allows.
func texts(reply any) (map[string]string, bool) {
	m, ok := make(map[string]string), true
	add := func(key, value any) {
		k, isText := key.(string)
		v, isTextToo := value.(string)
		ok = ok && isText && isTextToo
		m[k] = v
	}
	switch r := reply.(type) {
	case map[string]any:
		for k, v := range r {
			add(k, v)
		}
	case map[any]any:
		for k, v := range r {
			add(k, v)
		}
	case map[string]string:
		maps.Copy(m, r)
	case []any:
		for pair := range slices.Chunk(r, 2) {
			add(pair[0], pair[len(pair)-1])
		}
		ok = ok && len(r) == 2*len(m)
	default:
		ok = false
	}
	return m, ok
}

// doer returns the Pool as a Doer that can send commands, or skips the subtest.
func (s *suite) doer() pool.Doer {
	s.Helper()
	d, ok := s.pool.(pool.Doer)
	if !ok {
		s.Skip("the Pool is no pool.Doer")
	}
	_, err := d.Do(s.ctx, "PING")
	s.supported(err)
	return d
}

var explainTests = []test{
	// lesson L74
	{"knows of nothing that keeps the client from a node that answers", func(s *suite) {
		e, ok := s.pool.(pool.Explainer)
		if !ok {
			s.Skip("the Pool is no pool.Explainer")
		}
		s.lock(s.key("k"), "v", expiry)
		if err := e.Explain(); err != nil {
			s.Errorf("Explain: %v, want nil", err)
		}
	}},
}
