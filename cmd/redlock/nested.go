package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
)

// heldVariable is the environment variable that lists the locks held by the redlock processes above
// a command. It has a hash of each lock's value, because the value is a secret.
const heldVariable = "REDLOCK_HELD"

func hashed(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:8])
}

// heldHere is the variable as the command of this job gets it.
func (j *job) heldHere() string {
	above := strings.Fields(j.tool.env(heldVariable))
	return heldVariable + "=" + strings.Join(append(above, hashed(j.locked.Value())), " ")
}

// heldAbove returns an error if the lock is one of them: to wait for it would be to wait for
// oneself. The nodes are asked only if there are such locks.
func (j *job) heldAbove(ctx context.Context) error {
	above := strings.Fields(j.tool.env(heldVariable))
	if len(above) == 0 {
		return nil
	}
	in, err := j.locks.With(redlock.WithNodeTimeout(3*time.Second)).Inspect(ctx, j.name)
	if err != nil || !slices.Contains(above, hashed(in.Value)) {
		return nil
	}
	return fmt.Errorf("%q is held by the redlock that runs this command, which would wait for "+
		"itself", j.name)
}
