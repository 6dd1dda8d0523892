package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/sim"
)

// These are the recipes of docs/recipes.md, which says what each promises.

// Crawlers in any number of processes load at most eight pages at a time.
func Example_crawler() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	permits := redlock.Slots("crawler", 8)
	var loading, most, pages atomic.Int64
	load := func(context.Context) error {
		if now := loading.Add(1); now > most.Load() {
			most.Store(now)
		}
		time.Sleep(5 * time.Millisecond)
		loading.Add(-1)
		pages.Add(1)
		return nil
	}

	var crawlers sync.WaitGroup
	for range 20 {
		crawlers.Go(func() {
			err := rl.DoAny(context.Background(), permits,
				func(ctx context.Context, _ string) error { return load(ctx) },
				redlock.WithTries(redlock.Unlimited))
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	crawlers.Wait()
	fmt.Println(pages.Load(), "pages, at most eight at a time:", most.Load() <= 8)
	// Output: 20 pages, at most eight at a time: true
}

// Two processes move money between the same accounts in opposite directions. They take turns, and
// each account refuses a holder that was paused for too long.
func Example_transfer() {
	shared := sim.NewNodes(3)
	type account struct{ amount, fence uint64 }
	bank := map[string]*account{"account:3": {amount: 100}, "account:7": {amount: 100}}
	var database sync.Mutex // a transaction
	move := func(ctx context.Context, from, to string) error {
		database.Lock()
		defer database.Unlock()
		for _, name := range []string{from, to} {
			token := redlock.FencingTokenOf(ctx, name)
			if token < bank[name].fence {
				return errors.New("somebody else holds the lock by now")
			}
			bank[name].fence = token
		}
		bank[from].amount--
		bank[to].amount++
		return nil
	}

	var processes sync.WaitGroup
	for i, names := range [][]string{{"account:3", "account:7"}, {"account:7", "account:3"}} {
		processes.Go(func() {
			rl := redlock.New(shared.Pools(fmt.Sprint("process ", i))...).
				With(redlock.WithFencing())
			defer rl.Close()
			for range 10 {
				err := rl.DoAll(context.Background(), names, func(ctx context.Context) error {
					return move(ctx, names[0], names[1])
				})
				if err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	processes.Wait()
	fmt.Println(bank["account:3"].amount, bank["account:7"].amount)
	// Output: 100 100
}

// The readers of a catalogue, in two processes, all read at the same time. Nobody reads while it is
// changed.
func Example_catalogue() {
	shared := sim.NewNodes(3)
	var prices, names int // the version of each part, which have to agree
	read := func(context.Context) error {
		if prices != names {
			return errors.New("read during a write")
		}
		return nil
	}
	write := func(context.Context) error {
		prices++
		time.Sleep(5 * time.Millisecond)
		names++
		return nil
	}

	var all, together sync.WaitGroup
	together.Add(8)
	for i := range 2 {
		rl := redlock.New(shared.Pools(fmt.Sprint("process ", i))...)
		defer rl.Close()
		for range 4 {
			all.Go(func() {
				beside := func(ctx context.Context) error {
					together.Done()
					together.Wait() // for all who read
					return read(ctx)
				}
				err := rl.Do(context.Background(), "catalogue", beside, redlock.WithShared())
				if err != nil {
					fmt.Println(err)
				}
			})
		}
		all.Go(func() {
			together.Wait()
			if err := rl.Do(context.Background(), "catalogue", write); err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	fmt.Println("version", prices, names)
	// Output: version 2 2
}

// Many need a result that is expensive. The first computes it, and the others wait for it.
func Example_computeOnce() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	var cache sync.Map // that all processes share
	var computed atomic.Int64
	report := func(ctx context.Context) (any, error) {
		text, ok := cache.Load("report")
		if ok {
			return text, nil
		}
		err := rl.Do(ctx, "report", func(context.Context) error {
			if text, ok = cache.Load("report"); ok {
				return nil // computed during the wait
			}
			computed.Add(1)
			text = "42 orders"
			cache.Store("report", text)
			return nil
		})
		return text, err
	}

	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			if text, err := report(context.Background()); err != nil || text != "42 orders" {
				fmt.Println(text, err)
			}
		})
	}
	callers.Wait()
	fmt.Println("computed", computed.Load(), "time")
	// Output: computed 1 time
}

// At most two calls of a service begin in any 200 ms. An Unlock leaves the slot taken for the rest
// of that time.
func Example_startsPerTime() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	const d = 200 * time.Millisecond
	slots := redlock.Slots("service", 2)

	began := time.Now()
	for range 5 {
		slot, err := rl.LockAny(context.Background(), slots, redlock.WithMinHold(d))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("begin")
		slot.Unlock()
	}
	fmt.Println("five, in no less than 400 ms:", time.Since(began) >= 2*d)
	// Output:
	// begin
	// begin
	// begin
	// begin
	// begin
	// five, in no less than 400 ms: true
}

// Of three replicas two lead, each a share of its own. A third takes over from one that resigns.
func Example_leaders() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	shares := redlock.Slots("scheduler", 2)
	ctx, stop := context.WithCancel(context.Background())
	led, resign := make(chan string), make(chan bool)
	var replicas sync.WaitGroup
	for range 3 {
		replicas.Go(func() {
			err := rl.DoAny(ctx, shares, func(ctx context.Context, share string) error {
				led <- share
				select {
				case <-resign:
				case <-ctx.Done(): // the share is lost
				}
				return nil
			}, redlock.WithTries(redlock.Unlimited))
			if err != nil {
				fmt.Println(err)
			}
		})
	}

	first, second := <-led, <-led
	fmt.Println("one share each:", first != second)
	select {
	case <-led:
		fmt.Println("a third leader")
	case <-time.After(50 * time.Millisecond):
		fmt.Println("the third waits")
	}
	resign <- true
	third := <-led
	fmt.Println("the third leads:", third == first || third == second)
	stop()
	replicas.Wait()
	// Output:
	// one share each: true
	// the third waits
	// the third leads: true
}
