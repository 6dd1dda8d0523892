package redlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// t stands for what go test gives to a test. The examples run outside of bubbles, in real time.
var t testing.TB = &recorder{}

// A client locks on nodes in memory.
func Example() {
	c := redlocktest.New(t, 5)
	locks := c.Redlock()

	m := locks.NewMutex("invoice:42")
	fmt.Println(m.Lock())
	owner, held := c.Holder("invoice:42")
	fmt.Println(held, owner == m.Value())
	m.Unlock()
	c.WantFree(t, "invoice:42")
	// Output:
	// <nil>
	// true true
}

// Somebody else has the lock.
func ExampleCluster_Take() {
	c := redlocktest.New(t, 5)
	c.Take("invoice:42", time.Minute)

	err := c.Redlock().NewMutex("invoice:42").TryLock()
	fmt.Println(errors.Is(err, redlock.ErrTaken))
	// Output: true
}

// The holder loses the lock, and finds that out when it unlocks.
func ExampleCluster_Steal() {
	c := redlocktest.New(t, 5)
	err := c.Redlock().Do(context.Background(), "invoice:42", func(context.Context) error {
		c.Steal("invoice:42")
		return nil
	})
	fmt.Println(errors.Is(err, redlock.ErrExpired))
	// Output: true
}

// One of two processes cannot reach a quorum.
func ExampleCluster_Cut() {
	c := redlocktest.New(t, 3)
	ada := c.Redlock(redlock.WithTries(1), redlock.WithNodeTimeout(50*time.Millisecond))
	grace := c.Redlock()
	c.Cut(ada, 1, 2)

	fmt.Println(errors.Is(ada.NewMutex("invoice:42").Lock(), redlock.ErrNoQuorum))
	fmt.Println(grace.NewMutex("invoice:42").Lock())
	c.Cut(ada) // from no node: that is over
	// Output:
	// true
	// <nil>
}

// Two nodes of five may be down, and three may not.
func ExampleNode_Down() {
	c := redlocktest.New(t, 5)
	locks := c.Redlock(redlock.WithTries(1))
	c.Node(0).Down()
	c.Node(1).Down()
	fmt.Println(locks.NewMutex("invoice:42").Lock())

	c.Node(2).Down()
	fmt.Println(errors.Is(locks.NewMutex("invoice:43").Lock(), redlock.ErrNoQuorum))
	// Output:
	// <nil>
	// true
}
