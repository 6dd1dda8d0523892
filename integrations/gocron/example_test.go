package redlockgocron_test

import (
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlock-go/redlock"
	redlockgocron "github.com/redlock-go/redlock/integrations/gocron"
	"github.com/redlock-go/redlock/pool"
)

func ExampleLocker() {
	var nodes []pool.Pool // of package pool/goredis, for instance
	locks := redlock.New(nodes...)
	defer locks.Close()

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(
		redlockgocron.Locker(locks, redlock.WithMinHold(30*time.Second))))
	if err != nil {
		log.Print(err)
		return
	}
	report := func() {}
	_, err = scheduler.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(report),
		gocron.WithName("report")) // the name of the lock
	if err != nil {
		log.Print(err)
		return
	}
	scheduler.Start()
	_ = scheduler.Shutdown()
}
