// Command doctor looks at the Redis nodes of a deployment, and tells what makes locks on them unsafe or
// unavailable, and what to do about it.
//
//	go run ./examples/doctor -addrs 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379 -lock invoice:42
//
// It tries on each node whether locks can live there, for which it writes a key of its own and deletes it again; see
// Redlock.Check. -prefix, -fencing and -guard are the options of your program: what they need is tried, too. Without
// -addrs it looks at three embedded nodes, which have not much to tell. The exit status is 1 if there is a
// critical finding, and 2 if the nodes could not be checked.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/embedded"
)

func main() {
	addrs := flag.String("addrs", "", "comma-separated `host:port` of the nodes; if empty, three embedded ones")
	guard := flag.Duration("guard", 0, "the `maxTTL` of WithRestartGuard in your program, if it uses that")
	prefix := flag.String("prefix", "", "the `prefix` of WithKeyPrefix in your program, if it uses that")
	fencing := flag.Bool("fencing", false, "whether your program uses WithFencing")
	lock := flag.String("lock", "", "also tell who holds the lock of this `name`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	status, err := run(ctx, os.Stdout, *addrs, *lock, options(*guard, *prefix, *fencing)...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "doctor:", err)
	}
	os.Exit(status)
}

// options are those of the program that uses the nodes, as far as they matter.
func options(guard time.Duration, prefix string, fencing bool) []redlock.Option {
	opts := []redlock.Option{redlock.WithKeyPrefix(prefix)}
	if fencing {
		opts = append(opts, redlock.WithFencing())
	}
	if guard > 0 {
		opts = append(opts, redlock.WithRestartGuard(guard))
	}
	return opts
}

func run(ctx context.Context, w io.Writer, addrs, lock string, opts ...redlock.Option) (status int, err error) {
	pools, closePools, err := embedded.Open(addrs, 3)
	if err != nil {
		return 2, err
	}
	defer closePools()
	locks := redlock.New(pools...).With(opts...)
	defer locks.Close()

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
	if report.Worst() == redlock.Critical {
		return 1, nil
	}
	return 0, nil
}
