package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlock-go/redlock"
)

// look is how often a candidate looks whether it leads.
const look = time.Millisecond

// elect stands for election until ctx is done. Leaders of terms with even numbers are made by
// Run, the others by Campaign.
func (w *worker) elect(ctx context.Context) error {
	c := &candidate{worker: w, e: w.rl.NewElection(lockName), since: Now()}
	done := make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() { c.watch(done) })
	defer func() {
		close(done)
		looks.Wait()
	}()
	for ctx.Err() == nil {
		c.err = nil
		var err error
		if c.term%2 == 0 {
			err = c.e.Run(ctx, c.lead)
		} else {
			err = c.campaign(ctx)
		}
		// Whether it could resign, or was cancelled, is not the question.
		if c.err != nil {
			return errors.Join(c.err, err)
		}
	}
	return nil
}

// candidate is a worker that wants to lead.
type candidate struct {
	*worker
	e     *redlock.Election
	term  int                             // how many it has begun
	since int64                           // when it began to stand
	err   error                           // what ends the worker
	held  atomic.Pointer[context.Context] // of the last term
}

// leading asks the election, or is as a library would be that trusts its timers: see Round.
func (c *candidate) leading() bool {
	if !c.Blind {
		return c.e.Leading()
	}
	held := c.held.Load()
	return held != nil && (*held).Err() == nil
}

// campaign is what Run does, without another term after a loss.
func (c *candidate) campaign(ctx context.Context) error {
	held, err := c.e.Campaign(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.lead(held), c.e.Resign(context.Background()))
}

// lead is a term: it raises the numbers by one, as a turn does, with the term as the token.
func (c *candidate) lead(held context.Context) error {
	grant := fmt.Sprintf("%d.%d.%d", c.Worker, c.Life, c.term)
	c.term++
	c.held.Store(&held)
	e := Event{Op: Elected, Worker: c.Worker, Grant: grant, Call: c.since, Return: Now(), OK: true,
		Token: redlock.FencingToken(held)}
	c.history.Add(e)
	work := time.Duration(1+c.rnd.Int64N(20)) * time.Millisecond
	if c.rnd.IntN(c.LongHolds) == 0 {
		work = c.Expiry/2 + time.Duration(c.rnd.Int64N(int64(c.LongWork-c.Expiry/2)))
	}
	err := c.work(held, grant, e.Token, work)
	if err != nil && !errors.Is(err, errStale) {
		c.err = err
	}
	c.since = Now()
	return c.err
}

// watch looks whether the candidate leads, until done is closed, and notes each time that it does.
func (c *candidate) watch(done <-chan struct{}) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		e := Event{Op: Leads, Worker: c.Worker, Grant: fmt.Sprintf("%d.%d", c.Worker, c.Life),
			Call: Now(), OK: true, Token: c.e.Term()}
		leads := c.leading()
		e.Return = Now()
		if leads && c.e.Term() == e.Token { // in one term
			c.history.Add(e)
		}
	}
}
