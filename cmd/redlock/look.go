package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
)

// status tells who holds a lock, or what is locked now.
func (t *tool) status(args []string) (int, error) {
	c := t.flags("status", "[NAME]")
	inJSON := c.set.Bool("json", false, "for scripts: one JSON object")
	check := func() error {
		if c.set.NArg() == 0 {
			return nil
		}
		return c.oneName()
	}
	return c.untilSignal(args, check, func(ctx context.Context) (int, error) {
		if c.set.NArg() == 0 {
			return c.list(ctx, *inJSON)
		}
		in, err := c.locks.Inspect(ctx, c.set.Arg(0))
		if err != nil {
			return statusOf(err), err
		}
		if *inJSON {
			t.printJSON(inspectionJSON(in))
		} else {
			t.print(in)
		}
		if in.Verdict == redlock.VerdictUnknown {
			return exitUnavailable, nil
		}
		return 0, nil
	})
}

// watch tells who holds a lock each time that changes.
func (t *tool) watch(args []string) (int, error) {
	c := t.flags("watch", "NAME")
	return c.untilSignal(args, c.oneName, func(ctx context.Context) (int, error) {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		seen := ""
		for t.unwritten == nil {
			in, err := c.locks.Inspect(ctx, c.set.Arg(0))
			if ctx.Err() != nil {
				return 0, nil
			}
			if err != nil {
				return statusOf(err), err
			}
			if now := whose(in); now != seen {
				seen = now
				t.print(fmt.Sprintf("%s %s", time.Now().Format(time.RFC3339), in))
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		return 0, nil
	})
}

// whose is what watch tells the changes of: who holds a lock, who shares it, and who waits.
func whose(in *redlock.Inspection) string {
	var readers []string
	for _, r := range in.Readers {
		readers = append(readers, r.Owner)
	}
	slices.Sort(readers) // their votes and times change all the time
	return fmt.Sprintf("%q %q %q %v", in.Verdict, in.Value, readers, in.Waiters)
}

// answerTime is how long a node may take for an answer, where that has to tell a slow node from one
// that does not answer.
const answerTime = 3 * time.Second

// doctor prints what is wrong with the nodes.
func (t *tool) doctor(args []string) (int, error) {
	c := t.flags("doctor", "")
	guard := c.set.Duration("guard", 0,
		"the `maxTTL` of WithRestartGuard in your program, if it uses that")
	fencing := c.set.Bool("fencing", false,
		"whether your program uses WithFencing; leaves a counter")
	expect := c.set.String("expect", "",
		"fail unless the nodes have this `fingerprint`, as another report has printed it")
	check := func() error {
		if c.set.NArg() > 0 {
			return fmt.Errorf("takes no arguments, not %q", c.set.Args())
		}
		return nil
	}
	return c.untilSignal(args, check, func(ctx context.Context) (int, error) {
		expiry := redlock.DefaultExpiry
		if *guard > 0 { // it is at least the expiry of the program
			expiry = min(expiry, *guard)
		}
		opts := []redlock.Option{redlock.WithExpiry(expiry),
			redlock.WithNodeTimeout(min(answerTime, expiry))}
		if *fencing {
			opts = append(opts, redlock.WithFencing())
		}
		if *guard != 0 {
			opts = append(opts, redlock.WithRestartGuard(*guard))
		}
		report, err := doctor.Check(ctx, c.locks.With(opts...))
		if err != nil {
			return statusOf(err), err
		}
		if got := report.Fingerprint(); *expect != "" && got != *expect {
			other := doctor.Finding{Severity: doctor.Critical, Code: "other-nodes",
				Problem: fmt.Sprintf("The fingerprint is %s, not %s.", got, *expect),
				Advice: "Name the same nodes everywhere, in the same way: " +
					"two names of a server make two fingerprints.",
			}
			report.Findings = slices.Insert(report.Findings, 0, other)
		}
		t.print(report)
		if report.Worst() == doctor.Critical {
			return 1, nil
		}
		return 0, nil
	})
}

// release deletes a lock that somebody else holds.
func (t *tool) release(args []string) (int, error) {
	c := t.flags("release", "-force NAME")
	force := c.set.Bool("force", false,
		"needed, because the holder does not learn of it before it extends the lock")
	check := func() error {
		if err := c.oneName(); err != nil {
			return err
		}
		if !*force {
			return errors.New("needs -force: it takes the lock from a holder that may be at work")
		}
		return nil
	}
	return c.untilSignal(args, check, func(ctx context.Context) (int, error) {
		return t.forceRelease(ctx, c.locks, c.set.Arg(0))
	})
}

func (t *tool) forceRelease(ctx context.Context, locks *redlock.Redlock, name string) (int, error) {
	in, err := locks.Inspect(ctx, name)
	if err != nil {
		return statusOf(err), err
	}
	values := map[string]bool{}
	for _, n := range in.Nodes {
		if n.Found {
			values[n.Value] = true
		}
	}
	for value := range values {
		// It fails for the values that only a minority has. What counts is what is there
		// afterwards.
		_, _ = locks.NewMutex(name, redlock.WithValue(value)).UnlockContext(ctx)
	}
	after, err := locks.Inspect(ctx, name)
	if err != nil {
		return statusOf(err), err
	}
	t.print(after)
	switch {
	case after.Verdict == redlock.VerdictUnknown:
		return exitUnavailable, nil
	case in.Verdict == redlock.VerdictUnknown && after.Verdict == redlock.VerdictHeld:
		return exitUnavailable, errors.New("not deleted: too few nodes answered in time, try again")
	case after.Verdict == redlock.VerdictShared:
		return exitTaken, errors.New("not deleted: readers share it, until their leases end")
	case after.Verdict == redlock.VerdictHeld && values[after.Value]:
		return exitTaken, errors.New("not deleted: a majority of the nodes still has it")
	}
	return 0, nil // free, or somebody else's by now
}
