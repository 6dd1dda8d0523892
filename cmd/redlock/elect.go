package main

import (
	"errors"
	"fmt"

	"github.com/redlock-go/redlock"
)

// elect runs a command whenever this process is elected, until the command ends by itself.
func (t *tool) elect(args []string) (int, error) {
	c := t.lockFlags("elect")
	owner := c.set.String("owner", "", "a `text` that status and watch show for the leader")
	return c.with(args, c.check, func() (int, error) {
		j := c.job(redlock.WithTries(redlock.Unlimited), redlock.WithOwner(*owner),
			redlock.WithFencePerName()) // as NewElection
		for {
			status, err := j.whenGranted(0)
			if !errors.Is(err, redlock.ErrLost) {
				return status, err
			}
			t.say("elect", fmt.Errorf("standing for election again: %w", err))
		}
	})
}
