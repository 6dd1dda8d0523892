package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/redlock-go/redlock"
)

// heldVariable is the environment variable that lists the locks held by the redlock processes above
// a command. It has a hash of each lock's value, because the value is a secret, or of the owner if
// the lock is shared.
const heldVariable = "REDLOCK_HELD"

func hashed(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:8])
}

// heldHere is the variable as the command of this job gets it.
func (j *job) heldHere() string {
	held := strings.Fields(j.tool.env(heldVariable))
	for _, m := range j.locked {
		held = append(held, hashed(cmp.Or(j.reader, m.Value())))
	}
	return heldVariable + "=" + strings.Join(held, " ")
}

// heldAbove returns an error if a lock is one of them, or if all are of which one is enough: to
// wait for that would be to wait for oneself. The nodes are asked only if there are such locks.
func (j *job) heldAbove(ctx context.Context) error {
	above := strings.Fields(j.tool.env(heldVariable))
	if len(above) == 0 || j.any && len(above) < len(j.names) {
		return nil
	}
	reads := func(r redlock.Reader) bool { return slices.Contains(above, hashed(r.Owner)) }
	locks := j.locks.With(redlock.WithNodeTimeout(min(answerTime, j.expiry)))
	for i, name := range j.names {
		in, err := locks.Inspect(ctx, name)
		held := err == nil &&
			(slices.Contains(above, hashed(in.Value)) || slices.ContainsFunc(in.Readers, reads))
		switch {
		case held && (!j.any || i == len(j.names)-1):
			return fmt.Errorf("%q is held by the redlock that runs this command, which would wait "+
				"for itself", name)
		case !held && j.any:
			return nil
		}
	}
	return nil
}
