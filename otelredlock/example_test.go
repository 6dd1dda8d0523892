package otelredlock_test

import (
	"fmt"
	"log"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/otelredlock"
	"github.com/redlock-go/redlock/pool"
)

func ExampleEvents() {
	events, err := otelredlock.Events()
	if err != nil {
		log.Fatal(err)
	}
	var pools []pool.Pool // one for each node
	locks := redlock.New(pools...).With(redlock.WithEvents(events))
	defer locks.Close()

	fmt.Println(events.Acquire != nil)
	// Output: true
}
