package redlockasynq_test

import (
	"context"
	"log"

	"github.com/hibiken/asynq"

	"github.com/redlock-go/redlock"
	redlockasynq "github.com/redlock-go/redlock/integrations/asynq"
	"github.com/redlock-go/redlock/pool"
)

// reports are the periodic tasks: an [asynq.PeriodicTaskConfigProvider].
type reports struct{}

func (reports) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	return []*asynq.PeriodicTaskConfig{{
		Cronspec: "* * * * *", Task: asynq.NewTask("report", nil),
	}}, nil
}

func ExampleWhileLeading() {
	var nodes []pool.Pool // of package pool/goredis, for instance
	locks := redlock.New(nodes...)
	defer locks.Close()

	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a program would wait for a signal
	election := locks.NewElection("scheduler", redlock.WithOwner("pod-7"))
	options := asynq.PeriodicTaskManagerOpts{
		RedisConnOpt:               asynq.RedisClientOpt{Addr: "10.0.0.9:6379"},
		PeriodicTaskConfigProvider: reports{},
	}
	err := election.Run(ctx, redlockasynq.WhileLeading(func() (*asynq.PeriodicTaskManager, error) {
		return asynq.NewPeriodicTaskManager(options)
	}))
	if err != nil {
		log.Print(err)
	}
}
