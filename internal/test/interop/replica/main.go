// Replica locks and unlocks until its standard input ends. It is built with each of two versions of
// redlock: see TestRollingUpgrade. So this file uses nothing that only one of them has.
//
//	replica id resource node node node
//
// Each turn asks the resource, a Redis server, whether it may be. A line tells for how many
// microseconds somebody waited for the turn, that nodes were slow, or what was wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// kind is how a caller asks for a lock.
type kind struct {
	name    string
	options []redlock.Option
	patient time.Duration // how long the caller waits, or 0
	reads   bool
}

var kinds = []kind{
	{name: "waits"},
	{name: "waits"},
	{name: "tries", options: []redlock.Option{redlock.WithTries(1)}},
	{name: "hurries", patient: 20 * time.Millisecond},
}

// enter lets somebody in at the resource, or says why it may not be there. A writer's token is
// greater than all before, a reader's than that of every writer before.
//
//	KEYS: writer, readers, greatest token, a writer's greatest token
//	ARGV: who, token, "reads" or ""
var enter = redis.NewScript(`
	local writer, reads, token = redis.call('GET', KEYS[1]), ARGV[3] == 'reads', tonumber(ARGV[2])
	local before = tonumber(redis.call('GET', KEYS[reads and 4 or 3]) or 0)
	if writer then return 'beside ' .. writer end
	if not reads and redis.call('SCARD', KEYS[2]) > 0 then return 'beside readers' end
	if token <= before then return 'token ' .. token .. ' after ' .. before end
	if reads then redis.call('SADD', KEYS[2], ARGV[1])
	else redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[4], token) end
	redis.call('SET', KEYS[3], math.max(token, tonumber(redis.call('GET', KEYS[3]) or 0)))
	return ''`)

var leave = redis.NewScript(`
	redis.call('SREM', KEYS[2], ARGV[1])
	if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end`)

func main() {
	id, resource := os.Args[1], redis.NewClient(&redis.Options{Addr: os.Args[2]})
	var pools []pool.Pool
	for _, addr := range os.Args[3:] {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redlock.New(pools...).With(redlock.WithExpiry(4*time.Second),
		redlock.WithTries(redlock.Unlimited), redlock.WithFencing())
	over := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-time.After(rand.N(4 * time.Millisecond)):
				}
				turn(locks, resource, fmt.Sprintf("%s.%d.%d", id, i, n))
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(over)
	all.Wait()
	if err := locks.Close(); err != nil {
		fmt.Println("close:", err)
	}
}

// turn takes one turn.
func turn(locks *redlock.Redlock, resource *redis.Client, who string) {
	k, name := kinds[rand.N(len(kinds))], []string{"hot", "hot", "warm", "mild"}[rand.N(4)]
	ctx := context.Background()
	if k.patient > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.patient)
		defer cancel()
	}
	keys := []string{name + " writer", name + " readers", name + " token", name + " written"}
	how := ""
	if k.reads {
		how = "reads"
	}
	asked := time.Now()
	err := locks.Do(ctx, name, func(held context.Context) error {
		waited, token := time.Since(asked), redlock.FencingToken(held)
		wrong, err := enter.Run(context.Background(), resource, keys, who, token, how).Text()
		if err != nil {
			return err
		}
		if wrong != "" {
			fmt.Println("wrong:", who, k.name, name, wrong)
		}
		time.Sleep(rand.N(3 * time.Millisecond))
		fmt.Println("turn", waited.Microseconds())
		if err := leave.Run(context.Background(), resource, keys, who).Err(); !errors.Is(err,
			redis.Nil) {
			return err
		}
		return nil
	}, k.options...)
	refused := k.name != "waits" && (errors.Is(err, redlock.ErrTaken) ||
		errors.Is(err, context.DeadlineExceeded))
	switch {
	case err == nil, refused:
	case errors.Is(err, redlock.ErrNoQuorum): // nodes were slow
		fmt.Println("slow")
	default:
		fmt.Println("wrong:", who, k.name, name, err)
	}
}
