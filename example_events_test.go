package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/redlock-go/redlock"
)

func ExampleWithEvents() {
	locks := redlock.New(nodes()...).With(redlock.WithEvents(&redlock.Events{
		End: func(e redlock.Ended) { fmt.Println(e.Name, "ended:", e.Reason) },
		Overrun: func(o redlock.Overrun) {
			fmt.Println(o.Name, "was used after its end:", o.By)
		},
	}))
	defer locks.Close()

	work := func(context.Context) error { return nil }
	if err := locks.Do(context.Background(), "report", work); err != nil {
		fmt.Println(err)
	}
	// Output: report ended: released
}

func ExampleLogEvents() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug, // Warn tells of trouble only
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { // times differ
			if a.Key == slog.TimeKey || a.Key == "took" {
				return slog.Attr{}
			}
			return a
		},
	}))
	locks := redlock.New(nodes()...).With(redlock.WithEvents(redlock.LogEvents(logger)))
	defer locks.Close()

	work := func(context.Context) error { return nil }
	if err := locks.Do(context.Background(), "report", work); err != nil {
		fmt.Println(err)
	}
	// Output:
	// level=DEBUG msg="redlock: lock acquired" lock=report attempts=1 queued=false
	// level=DEBUG msg="redlock: lock released" lock=report
}
