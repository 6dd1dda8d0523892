package main

import (
	"errors"
	"fmt"

	"github.com/redlock-go/redlock"
)

// elect runs a command whenever this process is elected, until the command ends by itself.
func (t *tool) elect(args []string) (int, error) {
	c := t.lockFlags("elect", "-name NAME", "the `name` of the lock")
	check := func() error {
		if len(c.names) > 1 {
			return fmt.Errorf("needs one -name, not %d", len(c.names))
		}
		return c.check()
	}
	return c.with(args, check, func() (int, error) {
		j := c.job(redlock.WithTries(redlock.Unlimited),
			redlock.WithFencePerName()) // as NewElection
		for {
			status, err := j.whenGranted(0)
			if !errors.Is(err, redlock.ErrLost) || j.ended {
				return status, err
			}
			t.say("elect", fmt.Errorf("standing for election again: %w", err))
		}
	})
}
