// Package redlockasynq lets one of many replicas schedule the periodic tasks of asynq.
//
// Every replica may run a server that processes tasks: a task in the queue is given to one of them.
// A scheduler puts the tasks there, and two schedulers put each task there twice. With
// [WhileLeading] the scheduler runs where an election was won, and nowhere else.
package redlockasynq

import "context"

// Scheduler is what asynq's PeriodicTaskManager and Scheduler have in common.
type Scheduler interface {
	// Start starts the scheduler, and returns.
	Start() error
	// Shutdown ends the scheduler, and waits until it has ended.
	Shutdown()
}

// WhileLeading returns a function for the method Run of a redlock.Election. The function starts a
// scheduler, and shuts it down when the context is done, which is when the lead ends.
//
// Neither scheduler of asynq starts again after Shutdown. So newScheduler makes one for each term.
// It may be called many times, one call after the other. If it fails, or Start does, the function
// returns the error, and Run ends with it.
//
// Shutdown waits for a task that is being put into the queue, and the next leader does not wait
// for that. Where two copies of a task do harm, asynq refuses the second one: by its option
// Unique while the first one waits or runs, by TaskID and Retention also after that.
func WhileLeading[S Scheduler](
	newScheduler func() (S, error),
) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		s, err := newScheduler()
		if err != nil {
			return err
		}
		if ctx.Err() != nil { // somebody else may lead by now
			return nil
		}
		if err := s.Start(); err != nil {
			return err
		}
		defer s.Shutdown()
		<-ctx.Done()
		return nil
	}
}
