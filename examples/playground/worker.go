package main

import (
	"context"
	"errors"
	"net"
	"net/rpc"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
	"github.com/redlock-go/redlock/pool/goredis"
)

// A program that has these in its environment is a process of the playground.
const (
	processEnv = "PLAYGROUND_PROCESS" // its name
	nodesEnv   = "PLAYGROUND_NODES"   // their addresses
)

// worker is a process: one client of the nodes.
type worker struct {
	name  string
	locks *redlock.Redlock
	desk  *rpc.Client
	round int
}

// stdio is the connection to the playground.
type stdio struct{}

func (stdio) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (stdio) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (stdio) Close() error                { return os.Stdin.Close() }

// runProcess is the program of a process. It ends with the playground.
func runProcess(name, addrs string) {
	signal.Ignore(os.Interrupt) // the playground has heard it, too
	logging.Disable()           // the errors of the locks say the same
	var pools []pool.Pool
	for _, addr := range strings.Split(addrs, ",") {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{
			Addr:          addr,
			DialerRetries: 1, // redlock tries again
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err == nil {
					_, err = conn.Write([]byte(name + "\n"))
				}
				return conn, err
			},
		})))
	}
	w := &worker{name: name, locks: redlock.New(pools...), desk: rpc.NewClient(stdio{})}
	go func() {
		w.call("Desk.Over", 0, new(bool)) // which never returns
	}()
	for w.round = 1; ; w.round++ {
		var job Job
		w.call("Desk.Next", w.round, &job)
		w.tell(Report{State: waiting})
		done, err := w.do(job)
		result := Result{Round: w.round, Done: done}
		if err != nil {
			result.Error = err.Error()
		}
		w.call("Desk.Done", result, new(bool))
		time.Sleep(job.Rest)
	}
}

// call asks the playground for something, and ends the process if that is no more. It returns what
// the playground refuses.
func (w *worker) call(method string, args, reply any) error {
	err := w.desk.Call(method, args, reply)
	var refused rpc.ServerError
	if err != nil && !errors.As(err, &refused) {
		os.Exit(0)
	}
	return err
}

// tell reports, and waits until the playground knows.
func (w *worker) tell(r Report) {
	r.Round = w.round
	_ = w.call("Desk.Tell", r, new(bool))
}

// do does one job, and reports whether it was done.
func (w *worker) do(job Job) (done bool, err error) {
	opts := []redlock.Option{redlock.WithOwner(w.name), redlock.WithExpiry(job.Expiry),
		redlock.WithNodeTimeout(job.Expiry / 4), redlock.WithTries(redlock.Unlimited),
		redlock.WithEvents(w.events())}
	if job.Fencing {
		opts = append(opts, redlock.WithFencing())
	}
	if job.Guard {
		opts = append(opts, redlock.WithRestartGuard(job.Expiry))
	}
	if job.Reads {
		opts = append(opts, redlock.WithShared())
	}
	ctx, locks := context.Background(), w.locks.With(opts...)
	update := func(ctx context.Context, items ...string) (err error) {
		done, err = w.update(ctx, job, items)
		return err
	}
	switch job.Kind {
	case slots:
		err = locks.DoAny(ctx, job.Names, func(ctx context.Context, slot string) error {
			return update(ctx, slot)
		})
	case names:
		err = locks.DoAll(ctx, job.Names, func(ctx context.Context) error {
			return update(ctx, job.Names...)
		})
	default:
		err = locks.Do(ctx, job.Names[0], func(ctx context.Context) error {
			return update(ctx, job.Names[0])
		})
	}
	return done, err
}

// update reads the items, works, and writes back each value plus 1. A reader only reads.
func (w *worker) update(ctx context.Context, job Job, items []string) (done bool, err error) {
	w.tell(Report{State: holding})
	values := make([]int, len(items))
	defer w.call("Desk.Leave", 0, new(bool))
	for i, item := range items {
		use := Use{Item: item, Token: redlock.FencingTokenOf(ctx, item), Reads: job.Reads}
		if err := w.call("Desk.Read", use, &values[i]); err != nil {
			return false, err
		}
	}
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-time.After(job.Work):
	}
	if ctx.Err() != nil || job.Reads {
		return ctx.Err() == nil, context.Cause(ctx)
	}
	w.tell(Report{State: writing})
	time.Sleep(job.Write)
	for i, item := range items {
		use := Use{Item: item, Token: redlock.FencingTokenOf(ctx, item), Value: values[i] + 1}
		if err := w.call("Desk.Write", use, new(bool)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// events report what becomes of locks. They do not wait for the playground.
func (w *worker) events() *redlock.Events {
	round := w.round
	report := func(r Report) {
		r.Round = round
		w.desk.Go("Desk.Tell", r, new(bool), nil)
	}
	return &redlock.Events{
		Acquire: func(ctx context.Context, _ redlock.Acquiring) (context.Context,
			func(redlock.Acquired)) {
			return ctx, func(a redlock.Acquired) {
				if a.Outcome == redlock.OutcomeOK {
					report(Report{Lock: Lease{Name: a.Name, Until: a.Until, Token: a.Token}})
				}
			}
		},
		Extend: func(ctx context.Context, _ redlock.Extending) (context.Context,
			func(redlock.Extended)) {
			return ctx, func(e redlock.Extended) {
				if e.Outcome == redlock.OutcomeOK {
					report(Report{Lock: Lease{Name: e.Name, Until: e.Until}})
				}
			}
		},
		End: func(e redlock.Ended) { report(Report{Lock: Lease{Name: e.Name}, Ended: true}) },
		Lost: func(e redlock.Ended) {
			report(Report{State: lost, Lock: Lease{Name: e.Name}, Text: e.Err.Error()})
		},
		Node: func(c redlock.NodeCall) {
			if c.Err != nil && c.Command == "acquire" {
				report(Report{Node: c.Node + 1, Text: c.Err.Error()})
			}
		},
	}
}
