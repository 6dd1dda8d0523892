package goredis_test

import (
	"context"
	"math/big"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock/internal/test/redistest"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// answered starts commands on a server that answers the first of them, and what is sent in its
// place, as given, and returns the outcomes. The connection is closed then.
func answered(t *testing.T, answer string, protocol int, commands ...*pool.Command) []received {
	t.Helper()
	var served sync.WaitGroup
	client := redis.NewClient(&redis.Options{
		Protocol: protocol, DialerRetries: 1, DisableIdentity: true, MaxRetries: -1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			served.Go(func() {
				redistest.Answer(theirs, func(command []string) (string, bool) {
					switch strings.ToUpper(command[0]) {
					case "SET", "EVALSHA", "EVAL":
						return answer, false
					case "HELLO":
						return "-ERR unknown command\r\n", true
					}
					return "+OK\r\n", true
				})
			})
			return ours, nil
		},
	})
	p := goredis.NewPool(client)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	outcomes := make([]received, len(commands))
	told := make(chan int, 2*len(commands))
	for i, c := range commands {
		p.Start(ctx, c, receiver(func(reply any, err error) {
			outcomes[i] = received{reply, err}
			told <- i
		}))
	}
	for range commands {
		<-told
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	served.Wait()
	if len(told) > 0 {
		t.Error("an outcome was told twice")
	}
	return outcomes
}

type receiver func(reply any, err error)

func (r receiver) Receive(reply any, err error) { r(reply, err) }

// lesson L96: what is neither OK nor null is neither a grant nor a refusal.
func TestOnlyOKIsAGrant(t *testing.T) {
	for answer, want := range map[string]any{
		"+OK\r\n":               true,
		"$2\r\nOK\r\n":          true,
		"$-1\r\n":               false,
		"_\r\n":                 false,
		"+QUEUED\r\n":           nil,
		"+ok\r\n":               nil,
		"+\r\n":                 nil,
		"$0\r\n\r\n":            nil,
		":1\r\n":                nil,
		":0\r\n":                nil,
		"#t\r\n":                nil,
		"#f\r\n":                nil,
		",1\r\n":                nil,
		"*0\r\n":                nil,
		"*1\r\n$2\r\nOK\r\n":    nil,
		"-ERR OK\r\n":           nil,
		"%1\r\n+OK\r\n+OK\r\n":  nil,
		"$1\r\nO\r\nK\r\n":      nil,
		"+OK":                   nil,
		"":                      nil,
		"OK\r\n":                nil,
		"$2\r\nOK":              nil,
		">2\r\n+a\r\n+b\r\n+OK": nil,
	} {
		got := answered(t, answer, 3, pool.SetNX("k", "v", time.Second))[0]
		if want == nil {
			if got.err == nil || got.reply == true {
				t.Errorf("%q = %v, %v, want an error", answer, got.reply, got.err)
			}
		} else if got.reply != want || got.err != nil {
			t.Errorf("%q = %v, %v, want %v", answer, got.reply, got.err, want)
		}
	}
}

// FuzzAnswers: whatever a server writes, a command has one outcome, of a type that was promised;
// and a lock is granted by OK alone.
func FuzzAnswers(f *testing.F) {
	for _, answer := range []string{
		"+OK\r\n", "$2\r\nOK\r\n", "$-1\r\n", "_\r\n", ":1\r\n", "*2\r\n:1\r\n$1\r\nx\r\n",
		"-NOSCRIPT No matching script.\r\n",
		"+QUEUED\r\n", "#t\r\n", "%1\r\n+a\r\n+b\r\n", "=6\r\ntxt:OK\r\n",
		">2\r\n+a\r\n+b\r\n+OK\r\n", "|1\r\n+a\r\n+b\r\n+OK\r\n",
		"*-1\r\n", "$-2\r\n", "(1\r\n", ",nan\r\n", "!3\r\nERR\r\n", "-MOVED 1 127.0.0.1:1\r\n",
		"-READONLY no\r\n", "$2\r\nOK", "",
	} {
		for protocol := range 2 {
			f.Add(answer, protocol == 1)
		}
	}
	long := regexp.MustCompile(`[0-9]{6}`) // go-redis makes room for as much as a server announces
	script := &pool.Script{Name: "x", Source: "return 1",
		ID: "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"}
	f.Fuzz(func(t *testing.T, answer string, resp3 bool) {
		if long.MatchString(answer) {
			t.Skip()
		}
		protocol := 2
		if resp3 {
			protocol = 3
		}
		set := answered(t, answer, protocol, pool.SetNX("k", "v", time.Second))[0]
		granted, isBool := set.reply.(bool)
		if !isBool && set.err == nil {
			t.Errorf("SET NX = %T %v, %v, want a bool", set.reply, set.reply, set.err)
		}
		if granted && (set.err != nil || !strings.Contains(answer, "OK")) {
			t.Errorf("%q was a grant, with the error %v", answer, set.err)
		}
		both := answered(t, answer, protocol, pool.Eval(script, []string{"k"}, "v"),
			pool.Eval(script, []string{"k"}, "v"))
		for _, got := range both {
			if got.err == nil && !promised(got.reply) || got.err != nil && got.reply != nil {
				t.Errorf("%q = %T %v, %v, which is none of the promised types", answer, got.reply,
					got.reply, got.err)
			}
		}
	})
}

// promised reports whether a reply is what pool.Pool promises of RESP2, or what RESP3 has beyond
// that.
func promised(reply any) bool {
	switch r := reply.(type) {
	case []any:
		for _, v := range r {
			if _, isError := v.(error); !isError && !promised(v) {
				return false
			}
		}
		return true
	case nil, int64, string, bool, float64, map[any]any:
		return true
	}
	_, isBig := reply.(*big.Int)
	return isBig
}
