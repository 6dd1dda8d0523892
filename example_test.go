package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/embedded"
	"github.com/redlock-go/redlock/internal/test/sim"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// The examples run on simulated nodes; ExampleNew shows how to reach real ones. What a program
// does with errors that do not matter to an example is left out.

func nodes() []pool.Pool { return sim.NewNodes(3).Pools("example") }

func ExampleNew() {
	servers, _ := embedded.Start(3)
	defer servers.Close()

	var nodes []pool.Pool
	for _, addr := range servers.Addrs() { // "10.0.0.1:6379" and so on
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		nodes = append(nodes, goredis.NewPool(client))
	}
	rl := redlock.New(nodes...)
	defer rl.Close()

	m := rl.NewMutex("invoice:42")
	if err := m.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locked", m.Name())
	m.Unlock()
	// Output: locked invoice:42
}

// A derived Redlock has other defaults. Both share their nodes.
func ExampleRedlock_With() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	short := rl.With(redlock.WithKeyPrefix("billing:"), redlock.WithExpiry(2*time.Second))

	m := short.NewMutex("invoice:42") // the key is billing:invoice:42
	fmt.Println(m.Lock())
	fmt.Println(time.Until(m.Until()) < 2*time.Second)
	m.Unlock()
	// Output:
	// <nil>
	// true
}

// A mutex is the handle of one owner. Two owners of the same name exclude each other, also in one
// process.
func ExampleRedlock_NewMutex() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	ada := rl.NewMutex("printer", redlock.WithExpiry(time.Minute))
	grace := rl.NewMutex("printer")

	fmt.Println(ada.TryLock())
	fmt.Println(errors.Is(grace.TryLock(), redlock.ErrTaken))
	ada.Unlock()
	fmt.Println(grace.TryLock())
	grace.Unlock()
	// Output:
	// <nil>
	// true
	// <nil>
}

func ExampleMutex_Lock() {
	rl := redlock.New(nodes()...)
	defer rl.Close()

	m := rl.NewMutex("invoice:42")
	if err := m.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	defer m.Unlock()
	fmt.Println("to be trusted for a little less than 8s:",
		time.Until(m.Until()) < redlock.DefaultExpiry)
	// Output: to be trusted for a little less than 8s: true
}

// With Unlimited tries, the context alone says how long to wait.
func ExampleMutex_LockContext() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	other := rl.NewMutex("invoice:42")
	other.Lock()
	defer other.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := rl.NewMutex("invoice:42", redlock.WithTries(redlock.Unlimited)).LockContext(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(errors.Is(err, redlock.ErrFailed)) // any failed acquisition
	// Output:
	// true
	// true
}

func ExampleMutex_TryLock() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	other := rl.NewMutex("report")
	other.Lock()
	defer other.Unlock()

	switch err := rl.NewMutex("report").TryLock(); {
	case err == nil:
		fmt.Println("writing the report")
	case errors.Is(err, redlock.ErrTaken):
		fmt.Println("somebody else writes the report")
	default:
		fmt.Println(err)
	}
	// Output: somebody else writes the report
}

// Unlock tells whether the lock was held to the end.
func ExampleMutex_Unlock() {
	rl := redlock.New(nodes()...)
	defer rl.Close()

	m := rl.NewMutex("invoice:42")
	if err := m.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Unlock())

	brief := rl.NewMutex("invoice:43", redlock.WithExpiry(300*time.Millisecond),
		redlock.WithNodeTimeout(300*time.Millisecond))
	if err := brief.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	time.Sleep(310 * time.Millisecond) // too long
	ok, err := brief.Unlock()
	fmt.Println(ok, errors.Is(err, redlock.ErrExpired))

	ok, err = brief.Unlock()
	fmt.Println(ok, errors.Is(err, redlock.ErrNotHeld))
	// Output:
	// true <nil>
	// false true
	// false true
}

func ExampleMutex_Extend() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	m := rl.NewMutex("import")
	m.Lock()
	defer m.Unlock()

	for part := range 3 {
		fmt.Println("importing part", part)
		before := m.Until()
		if ok, err := m.Extend(); !ok {
			fmt.Println("stopped:", err)
			return
		}
		fmt.Println("longer:", m.Until().After(before))
	}
	// Output:
	// importing part 0
	// longer: true
	// importing part 1
	// longer: true
	// importing part 2
	// longer: true
}

// Until asks the clock, Valid asks the nodes as well.
func ExampleMutex_Valid() {
	nodes := sim.NewNodes(3)
	rl := redlock.New(nodes.Pools("example")...)
	defer rl.Close()
	m := rl.NewMutex("invoice:42")
	m.Lock()
	fmt.Println(m.Valid())

	for _, n := range nodes {
		n.Flush() // an operator's mistake
	}
	ok, err := m.Valid()
	fmt.Println(ok, errors.Is(err, redlock.ErrExpired))
	// Output:
	// true <nil>
	// false true
}

// A held lock is extended until it is unlocked. When it cannot be trusted any more, its context
// ends.
func ExampleMutex_Hold() {
	nodes := sim.NewNodes(3)
	rl := redlock.New(nodes.Pools("example")...)
	defer rl.Close()
	m := rl.NewMutex("import", redlock.WithExpiry(2*time.Second))

	held, err := m.Hold(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Unlock()
	select {
	case <-held.Done():
	case <-time.After(4 * time.Second):
		fmt.Println("still held after twice the expiry")
	}

	nodes[0].Crash()
	nodes[1].Crash()
	<-held.Done()
	fmt.Println("lost:", errors.Is(context.Cause(held), redlock.ErrLost))
	// Output:
	// still held after twice the expiry
	// lost: true
}

// At the limit the context ends, and the lock goes on for a while, so that the work can be
// brought to an end under it.
func ExampleWithMaxHold() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	m := rl.NewMutex("import",
		redlock.WithExpiry(2*time.Second), redlock.WithMaxHold(2*time.Second))

	held, err := m.Hold(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	<-held.Done() // the work takes too long
	fmt.Println(context.Cause(held))
	fmt.Println(m.Unlock())
	// Output:
	// redlock: "import" lost: held for the maximum of 2s
	// true <nil>
}

// If the lock cannot be extended, the context ends while the lock still excludes others.
func ExampleWithMargin() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	m := rl.NewMutex("import", redlock.WithMargin(2*time.Second))

	held, err := m.Hold(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	select {
	case <-held.Done(): // wind down: two seconds are left
	case <-time.After(10 * time.Millisecond): // the work
	}
	fmt.Println(m.Unlock())
	// Output: true <nil>
}

// Run calls the function whenever this process is elected. The term is a fencing token: hand it to
// the store that the leader writes to.
func ExampleElection_Run() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	election := rl.NewElection("scheduler", redlock.WithOwner("pod-7"))

	err := election.Run(context.Background(), func(ctx context.Context) error {
		leader, err := election.Leader(ctx)
		if err != nil {
			return err
		}
		fmt.Println(leader.Owner, "leads:", leader.Self)
		fmt.Println("this is its term:", leader.Term == redlock.FencingToken(ctx))
		return nil // or, as a rule, when ctx is done
	})
	fmt.Println(err)
	// Output:
	// pod-7 leads: true
	// this is its term: true
	// <nil>
}

// Observe tells who leads, and each change of that.
func ExampleElection_Observe() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	election := rl.NewElection("scheduler",
		redlock.WithOwner("pod-7"), redlock.WithExpiry(time.Second))
	if _, err := election.Campaign(context.Background()); err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for leader, err := range election.Observe(ctx) {
		if err != nil {
			fmt.Println("nobody knows:", err)
			continue
		}
		if leader.TTL == 0 {
			fmt.Println("nobody leads")
			break
		}
		fmt.Println(leader.Owner, "leads")
		if err := election.Resign(ctx); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// pod-7 leads
	// nobody leads
}

// The lock stays taken until a minute after it was granted. A replica whose clock is late does not
// run the job a second time.
func ExampleWithMinHold() {
	rl := redlock.New(nodes()...).With(redlock.WithTries(2), redlock.WithMinHold(time.Minute))
	defer rl.Close()

	for replica := range 3 {
		err := rl.Do(context.Background(), "report", func(context.Context) error {
			fmt.Println("replica", replica, "runs the job")
			return nil
		})
		if errors.Is(err, redlock.ErrTaken) {
			fmt.Println("replica", replica, "has nothing to do")
		}
	}
	// Output:
	// replica 0 runs the job
	// replica 1 has nothing to do
	// replica 2 has nothing to do
}

// Close unlocks what is still held and ends all waiting. With a context it has a bound of the
// caller's.
func ExampleRedlock_CloseContext() {
	rl := redlock.New(nodes()...)
	held, err := rl.NewMutex("import").Hold(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(rl.CloseContext(ctx))
	fmt.Println(context.Cause(held))
	fmt.Println(errors.Is(rl.NewMutex("import").TryLock(), redlock.ErrClosed))
	// Output:
	// <nil>
	// redlock: lock released
	// true
}

// Do is the safest way: it extends the lock while the function runs, tells it of a loss, and
// always unlocks.
func ExampleRedlock_Do() {
	rl := redlock.New(nodes()...)
	defer rl.Close()

	err := rl.Do(context.Background(), "invoice:42", func(ctx context.Context) error {
		for _, step := range []string{"charge", "print", "send"} {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			fmt.Println(step)
		}
		return nil
	}, redlock.WithExpiry(10*time.Second))
	fmt.Println(err)
	// Output:
	// charge
	// print
	// send
	// <nil>
}

// A transfer holds both accounts, whichever comes first, and no other transfer waits for it in the
// opposite order.
func ExampleRedlock_DoAll() {
	rl := redlock.New(nodes()...)
	defer rl.Close()

	from, to := "account:7", "account:3"
	err := rl.DoAll(context.Background(), []string{from, to}, func(ctx context.Context) error {
		fmt.Println("transfer from", from, "to", to)
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// transfer from account:7 to account:3
	// <nil>
}

// Readers share a lock, and a writer has it alone: the read lock and the write lock of a RWMutex
// for all processes.
func ExampleWithShared() {
	rl := redlock.New(nodes()...)
	defer rl.Close()

	reader := rl.NewMutex("catalogue", redlock.WithShared())
	other := rl.NewMutex("catalogue", redlock.WithShared())
	writer := rl.NewMutex("catalogue")
	fmt.Println(reader.TryLock(), other.TryLock())
	fmt.Println(errors.Is(writer.TryLock(), redlock.ErrTaken))
	reader.Unlock()
	other.Unlock()
	fmt.Println(writer.TryLock())
	fmt.Println(errors.Is(reader.TryLock(), redlock.ErrTaken))
	// Output:
	// <nil> <nil>
	// true
	// <nil>
	// true
}

// A semaphore: all processes together make at most two reports at a time. A third one waits.
func ExampleRedlock_DoAny() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	ctx, slots := context.Background(), redlock.Slots("report", 2)

	first, _ := rl.LockAny(ctx, slots)
	err := rl.DoAny(ctx, slots, func(ctx context.Context, slot string) error {
		fmt.Println("another slot:", slot != first.Name())
		_, err := rl.LockAny(ctx, slots, redlock.WithTries(1))
		fmt.Println("a third one:", errors.Is(err, redlock.ErrTaken))
		return nil
	})
	fmt.Println(err)
	first.Unlock()
	// Output:
	// another slot: true
	// a third one: true
	// <nil>
}

// To keep a slot beyond one function, lock it, and unlock its mutex later.
func ExampleRedlock_LockAny() {
	rl := redlock.New(nodes()...)
	defer rl.Close()

	slot, err := rl.LockAny(context.Background(), redlock.Slots("worker", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer slot.Unlock()
	fmt.Println(slot.Name())
	// Output: worker#0
}

func ExampleSlots() {
	fmt.Println(redlock.Slots("report", 3))
	// Output: [report#0 report#1 report#2]
}

// Each of several locks has a token of its own.
func ExampleFencingTokenOf() {
	rl := redlock.New(nodes()...).With(redlock.WithFencing())
	defer rl.Close()

	names := []string{"account:3", "account:7"}
	rl.DoAll(context.Background(), names, func(ctx context.Context) error {
		for _, name := range names {
			fmt.Println(name, redlock.FencingTokenOf(ctx, name) > 0)
		}
		return nil
	})
	// Output:
	// account:3 true
	// account:7 true
}

// Locks are not reentrant: who has a lock and asks for it again would wait for itself. The error
// says so at once, where the context tells.
func Example_selfDeadlock() {
	rl := redlock.New(nodes()...)
	defer rl.Close()

	err := rl.Do(context.Background(), "report", func(ctx context.Context) error {
		return rl.Do(ctx, "report", func(context.Context) error { return nil })
	})
	fmt.Println(errors.Is(err, redlock.ErrSelf))
	// Output: true
}

// A store is claimed with the token before it is read. From then on it refuses the holder before,
// who was paused for too long.
func ExampleWithFencing() {
	rl := redlock.New(nodes()...).With(redlock.WithFencing())
	defer rl.Close()
	stock, seen := 10, uint64(0)
	admit := func(token uint64) bool { // the store's rule, for claims and for writes
		if token < seen {
			return false
		}
		seen = token
		return true
	}

	ada := rl.NewMutex("lamps", redlock.WithExpiry(300*time.Millisecond),
		redlock.WithNodeTimeout(300*time.Millisecond))
	if err := ada.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	old := ada.FencingToken()
	fmt.Println("Ada claims the lamps:", admit(old))
	adas := stock - 1
	time.Sleep(310 * time.Millisecond) // paused for longer than the lock lives

	grace := rl.NewMutex("lamps")
	if err := grace.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	defer grace.Unlock()
	fmt.Println("Grace claims the lamps:", admit(grace.FencingToken()))
	graces := stock - 1

	if ok := admit(old); ok { // or Grace's write would undo it
		stock = adas
	} else {
		fmt.Println("Ada is refused")
	}
	if admit(grace.FencingToken()) {
		stock = graces
	}
	fmt.Println("left:", stock)
	// Output:
	// Ada claims the lamps: true
	// Grace claims the lamps: true
	// Ada is refused
	// left: 9
}

// The function that Do calls has its token in the context. It claims with the token what it is
// going to read.
func ExampleFencingToken() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	// UPDATE page SET fence = $token WHERE id = 1 AND fence <= $token.
	claim := func(token uint64) bool {
		return token > 0
	}

	err := rl.Do(context.Background(), "page", func(ctx context.Context) error {
		if !claim(redlock.FencingToken(ctx)) {
			return errors.New("somebody else holds the lock by now")
		}
		fmt.Println("claimed, now read and write")
		return nil
	}, redlock.WithFencing())
	fmt.Println(err)
	// Output:
	// claimed, now read and write
	// <nil>
}

// Servers that may have forgotten locks grant none until those would have expired.
func ExampleWithRestartGuard() {
	nodes := sim.NewNodes(3)
	rl := redlock.New(nodes.Pools("example")...).
		With(redlock.WithRestartGuard(redlock.DefaultExpiry))
	defer rl.Close()
	for _, n := range nodes {
		n.Clock(1, time.Hour) // up for an hour
	}
	m := rl.NewMutex("invoice:42")
	fmt.Println(m.TryLock())
	defer m.Unlock()

	for _, n := range nodes[:2] {
		n.Crash()
		n.Restart(false) // empty
	}
	err := rl.NewMutex("invoice:42").TryLock()
	var guard *redlock.GuardError
	if errors.As(err, &guard) {
		fmt.Println("refused for some more seconds:", guard.Wait > time.Second)
	}
	// Output:
	// <nil>
	// refused for some more seconds: true
}

// One process hands a lock over to another by its value.
func ExampleWithValue() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	m := rl.NewMutex("upload:7")
	m.Lock()
	value := m.Value() // passed on, in a message for instance

	taken := rl.NewMutex("upload:7", redlock.WithValue(value))
	fmt.Println("until known:", !taken.Until().IsZero())
	if ok, err := taken.Extend(); !ok {
		fmt.Println(err)
	}
	fmt.Println("until known:", !taken.Until().IsZero())
	fmt.Println(taken.Unlock())
	// Output:
	// until known: false
	// until known: true
	// true <nil>
}

// A process that is about to be replaced gives its lock to the next one, which nobody can slip
// before. The old one is out from then on.
func ExampleMutex_Handoff() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	old := rl.NewMutex("import", redlock.WithFencing())
	if _, err := old.Hold(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	token := old.FencingToken()
	handoff, err := old.Handoff() // a secret: send it to the next process only
	if err != nil {
		fmt.Println(err)
		return
	}

	next := rl.NewMutex("import", redlock.WithFencing())
	held, err := next.Adopt(context.Background(), handoff)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("greater token:", redlock.FencingToken(held) > token)
	_, err = old.Unlock()
	fmt.Println(err)
	fmt.Println(next.Unlock())
	// Output:
	// greater token: true
	// redlock: "import" not released: not held
	// true <nil>
}

// A server that is late with a report does not pile up requests for it: of those that come while
// ten wait, it refuses the eleventh at once.
func ExampleWithMaxWaiters() {
	rl := redlock.New(nodes()...).With(redlock.WithMaxWaiters(10))
	defer rl.Close()

	handle := func(ctx context.Context) int {
		err := rl.Do(ctx, "report", func(context.Context) error { return nil })
		switch {
		case errors.Is(err, redlock.ErrTaken):
			return http.StatusTooManyRequests
		case err != nil:
			return http.StatusInternalServerError
		}
		return http.StatusOK
	}
	fmt.Println(handle(context.Background()))
	// Output: 200
}

// The value can tell people who holds a lock.
func ExampleWithGenValueFunc() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	host, _ := os.Hostname()

	m := rl.NewMutex("report", redlock.WithGenValueFunc(func() (string, error) {
		return host,
			nil
	}))
	m.Lock()
	fmt.Println(strings.HasPrefix(m.Value(), host+":"))
	m.Unlock()
	// Output: true
}

// A Lock that fails says whose the lock is.
func ExampleWithOwner() {
	rl := redlock.New(nodes()...)
	defer rl.Close()
	first := rl.NewMutex("report", redlock.WithOwner("pod-7"))
	second := rl.NewMutex("report", redlock.WithOwner("pod-8"))
	if err := first.Lock(); err != nil {
		fmt.Println(err)
		return
	}
	defer first.Unlock()

	err := second.TryLock()
	var failure *redlock.Error
	if errors.As(err, &failure) && errors.Is(err, redlock.ErrTaken) {
		fmt.Println(failure.Name, "is held by", failure.Owner)
	}
	// Output: report is held by pod-7
}

func ExampleWithRetryDelayFunc() {
	rl := redlock.New(nodes()...)
	defer rl.Close()

	patient := rl.NewMutex("report",
		redlock.WithTries(100),
		redlock.WithRetryDelayFunc(redlock.ExponentialDelay(20*time.Millisecond, time.Second)),
	)
	fmt.Println(patient.Lock())
	patient.Unlock()
	// Output: <nil>
}

func ExampleConstantDelay() {
	delay := redlock.ConstantDelay(100 * time.Millisecond)
	fmt.Println(delay(1), delay(2), delay(3))
	// Output: 100ms 100ms 100ms
}

func ExampleUniformDelay() {
	delay := redlock.UniformDelay(50*time.Millisecond, 250*time.Millisecond)
	for tries := 1; tries <= 3; tries++ {
		d := delay(tries)
		fmt.Println(d >= 50*time.Millisecond && d <= 250*time.Millisecond)
	}
	// Output:
	// true
	// true
	// true
}

func ExampleExponentialDelay() {
	delay := redlock.ExponentialDelay(10*time.Millisecond, 50*time.Millisecond)
	for i, limit := range []time.Duration{10, 20, 40, 50, 50} {
		fmt.Println(delay(i+1) <= limit*time.Millisecond)
	}
	// Output:
	// true
	// true
	// true
	// true
	// true
}

// errors.Is decides; the text and errors.As tell what each node did.
func ExampleError() {
	nodes := sim.NewNodes(3)
	rl := redlock.New(nodes.Pools("example")...)
	defer rl.Close()
	nodes[0].Crash()
	nodes[1].Crash()

	err := rl.NewMutex("invoice:42").TryLock()
	switch {
	case errors.Is(err, redlock.ErrTaken):
		fmt.Println("try later")
	case errors.Is(err, redlock.ErrNoQuorum):
		fmt.Println("look after Redis")
	}
	var node *redlock.NodeError
	if errors.As(err, &node) {
		fmt.Printf("node %d: %v\n", node.Node, node.Err)
	}
	// Output:
	// look after Redis
	// node 0: sim: connection refused
}

// A mistake in the options is an error on first use, before anything is sent.
func ExampleOptionError() {
	rl := redlock.New(nodes()...).With(redlock.WithExpiry(time.Second),
		redlock.WithNodeTimeout(2*time.Second))
	defer rl.Close()

	err := rl.NewMutex("invoice:42").Lock()
	var mistake *redlock.OptionError
	fmt.Println(errors.As(err, &mistake))
	fmt.Println(mistake)
	// Output:
	// true
	// redlock: WithNodeTimeout(2s): must be at most the expiry of 1s
}

func ExampleRedlock_Inspect() {
	nodes := sim.NewNodes(5)
	rl := redlock.New(nodes.Pools("example")...)
	defer rl.Close()
	for _, n := range nodes[:3] {
		n.Set("invoice:42", "web-3", 0)
	}
	nodes[4].Crash()

	in, err := rl.Inspect(context.Background(), "invoice:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(in.Verdict == redlock.VerdictHeld, in.Votes)
	fmt.Print(in)
	// Output:
	// true 3
	// lock "invoice:42": held by "w"… on 3 of 5 nodes, never expires
	//   node 0  "w"…, never expires
	//   node 1  "w"…, never expires
	//   node 2  "w"…, never expires
	//   node 3  no key
	//   node 4  sim: connection refused
}
