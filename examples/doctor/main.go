// Command doctor looks at the Redis nodes of a deployment. It reports what makes locks on them
// unsafe or unavailable, and what to do about it.
//
//	go run ./examples/doctor -addrs 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379 -lock invoice:42
//
// A node is host:port or a URL with user, password and TLS: rediss://user:password@10.0.0.1:6379.
// Other users of the machine can see a program's arguments. Put nodes with passwords into the
// environment variable REDLOCK_NODES, which has the form of -addrs. The doctor never prints a
// password.
//
// The doctor tries on each node whether locks can live there. For that it writes a key of its own
// and deletes it again, see Redlock.Check. The flags -prefix, -fencing, -fence-per-name and -guard
// are the options of your program. The doctor also tries what they need, and leaves a counter with
// -fencing. Without any nodes it looks at three embedded ones.
//
// The exit status is 1 if there is a critical finding, and 2 if the nodes could not be checked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	status, err := command(ctx, os.Stdout, os.Stderr, os.Args[1:], os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "doctor:", err)
	}
	os.Exit(status)
}

// command runs the doctor with the arguments and the environment of a command line.
func command(
	ctx context.Context, stdout, stderr io.Writer, args []string, env func(string) string,
) (status int, err error) {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addrs := flags.String("addrs", "", "comma-separated `nodes`, host:port or URLs; "+
		"if empty, those of REDLOCK_NODES or three embedded ones")
	guard := flags.Duration("guard", 0,
		"the `maxTTL` of WithRestartGuard in your program, if it uses that")
	prefix := flags.String("prefix", "",
		"the `prefix` of WithKeyPrefix in your program, if it uses that")
	fencing := flags.Bool("fencing", false, "whether your program uses WithFencing")
	perName := flags.Bool("fence-per-name", false, "whether your program uses WithFencePerName")
	lock := flags.String("lock", "", "also tell who holds the lock of this `name`")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil:
		return 2, nil // it has been printed
	}
	if *addrs == "" {
		*addrs = env("REDLOCK_NODES")
	}
	return run(ctx, stdout, *addrs, *lock, options(*guard, *prefix, *fencing, *perName)...)
}

// options are those of the program that uses the nodes, as far as they matter.
func options(guard time.Duration, prefix string, fencing, perName bool) []redlock.Option {
	// The time distinguishes a slow node from one that does not answer.
	opts := []redlock.Option{redlock.WithKeyPrefix(prefix),
		redlock.WithNodeTimeout(3 * time.Second)}
	if fencing {
		opts = append(opts, redlock.WithFencing())
	}
	if perName {
		opts = append(opts, redlock.WithFencePerName())
	}
	if guard > 0 {
		opts = append(opts, redlock.WithRestartGuard(guard))
	}
	return opts
}

func run(
	ctx context.Context, w io.Writer, addrs, lock string, opts ...redlock.Option,
) (status int, err error) {
	pools, closeNodes, err := openNodes(addrs, 3)
	if err != nil {
		return 2, err
	}
	defer closeNodes()
	locks := redlock.New(pools...).With(opts...)
	defer locks.Close()
	return examine(ctx, w, locks, lock)
}

// examine prints a report on the nodes, and who holds a lock, if that has a name.
func examine(
	ctx context.Context, w io.Writer, locks *redlock.Redlock, lock string,
) (status int, err error) {
	report, err := locks.Check(ctx)
	if err != nil {
		return 2, err
	}
	fmt.Fprint(w, report)
	if lock != "" {
		in, err := locks.Inspect(ctx, lock)
		if err != nil {
			return 2, err
		}
		fmt.Fprintf(w, "\n%v", in)
	}
	if report.Worst() == doctor.Critical {
		return 1, nil
	}
	return 0, nil
}
