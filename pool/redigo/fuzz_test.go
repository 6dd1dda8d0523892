package redigo_test

import (
	"context"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/redigo"
)

// answered returns a Pool of a server that answers each command as given, and closes the
// connection.
func answered(t *testing.T, answer string) *redigo.Pool {
	t.Helper()
	var served sync.WaitGroup
	inner := &redis.Pool{DialContext: func(context.Context) (redis.Conn, error) {
		ours, theirs := net.Pipe()
		served.Go(func() {
			redistest.Answer(theirs, func([]string) (string, bool) { return answer, false })
		})
		return redis.NewConn(ours, time.Minute, time.Minute), nil
	}}
	t.Cleanup(func() {
		if err := inner.Close(); err != nil {
			t.Error(err)
		}
		served.Wait()
	})
	return redigo.NewPool(inner)
}

// lesson L96: what is neither OK nor null is neither a grant nor a refusal.
func TestOnlyOKIsAGrant(t *testing.T) {
	for answer, want := range map[string]any{
		"+OK\r\n":              true,
		"$2\r\nOK\r\n":         true,
		"$-1\r\n":              false,
		"*-1\r\n":              false,
		"+QUEUED\r\n":          nil,
		"+ok\r\n":              nil,
		"+\r\n":                nil,
		"$0\r\n\r\n":           nil,
		":1\r\n":               nil,
		":0\r\n":               nil,
		"*0\r\n":               nil,
		"*1\r\n$2\r\nOK\r\n":   nil,
		"-ERR OK\r\n":          nil,
		"_\r\n":                nil, // RESP3, which redigo does not speak
		"#t\r\n":               nil,
		"%1\r\n+OK\r\n+OK\r\n": nil,
		"$1\r\nO\r\nK\r\n":     nil,
		"+OK":                  nil,
		"":                     nil,
		"OK\r\n":               nil,
		"$2\r\nOK":             nil,
	} {
		ok, err := answered(t, answer).SetNX(t.Context(), "k", "v", time.Second)
		if want == nil {
			if err == nil || ok {
				t.Errorf("%q = %v, %v, want an error", answer, ok, err)
			}
		} else if ok != want || err != nil {
			t.Errorf("%q = %v, %v, want %v", answer, ok, err, want)
		}
	}
}

// FuzzAnswers: whatever a server writes, a reply has a type that was promised; and a lock is
// granted by OK alone.
func FuzzAnswers(f *testing.F) {
	for _, answer := range []string{
		"+OK\r\n", "$2\r\nOK\r\n", "$-1\r\n", ":1\r\n", "*2\r\n:1\r\n$1\r\nx\r\n",
		"-NOSCRIPT No matching script.\r\n",
		"+QUEUED\r\n", "*-1\r\n", "$-2\r\n", "-READONLY no\r\n", "*2\r\n-ERR\r\n*1\r\n$-1\r\n",
		"$2\r\nOK", "_\r\n", "",
	} {
		f.Add(answer)
	}
	long := regexp.MustCompile(`[0-9]{6}`) // redigo makes room for as much as a server announces
	script := &pool.Script{Name: "x", Source: "return 1",
		ID: "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"}
	f.Fuzz(func(t *testing.T, answer string) {
		if long.MatchString(answer) {
			t.Skip()
		}
		p := answered(t, answer)
		ok, err := p.SetNX(t.Context(), "k", "v", time.Second)
		if ok && (err != nil || !strings.Contains(answer, "OK")) {
			t.Errorf("%q was a grant, with the error %v", answer, err)
		}
		reply, err := p.Eval(t.Context(), script, []string{"k"}, "v")
		if err == nil && !promised(reply) || err != nil && reply != nil {
			t.Errorf("%q = %T %v, %v, which is none of the promised types", answer, reply, reply,
				err)
		}
	})
}

// promised reports whether a reply is what pool.Pool promises. An error may be inside an array.
func promised(reply any) bool {
	switch r := reply.(type) {
	case []any:
		for _, v := range r {
			if _, isError := v.(error); !isError && !promised(v) {
				return false
			}
		}
		return true
	case nil, int64, string:
		return true
	}
	return false
}
