package robfigcron_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integrations/robfigcron"
	"github.com/redlock-go/redlock/pool"
)

func ExampleWrapper() {
	var nodes []pool.Pool // of package pool/goredis, for instance
	locks := redlock.New(nodes...)
	defer locks.Close()
	logger := cron.PrintfLogger(log.New(os.Stderr, "cron: ", log.LstdFlags))

	scheduler := cron.New()
	once := robfigcron.Wrapper(logger, locks, "report", redlock.WithMinHold(30*time.Second))
	report := robfigcron.ContextFunc(func(ctx context.Context) {
		// work until ctx is done
	})
	if _, err := scheduler.AddJob("* * * * *", cron.NewChain(once).Then(report)); err != nil {
		log.Print(err)
	}
	scheduler.Start()
	<-scheduler.Stop().Done()
}
