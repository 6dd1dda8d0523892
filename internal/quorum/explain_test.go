package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlock-go/redlock/pool"
)

// silent is a pool that never answers, and may know why.
type silent struct {
	pool.Pool
	explain func() error
	to      chan pool.Receiver
}

func (s *silent) Start(_ context.Context, _ *pool.Command, to pool.Receiver) { s.to <- to }

func (s *silent) Explain() error { return s.explain() }

// lesson L74: the outcome of a node that did not answer says why, if the client knows.
func TestATimeoutSaysWhyTheNodeDoesNotAnswer(t *testing.T) {
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		explain func() error
		text    string
	}{
		"known":   {func() error { return refused }, "no answer within 100ms: connection refused"},
		"unknown": {func() error { return nil }, "no answer within 100ms"},
		"panic": {func() error { panic(refused) },
			"no answer within 100ms: the client panicked: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &silent{explain: c.explain, to: make(chan pool.Receiver, 1)}
				tracker := NewTracker()
				nodes := Nodes([]pool.Pool{s}, tracker)
				command := Command{Command: pool.SetNX("k", "v", time.Second), Read: func(
					*pool.Command, any, error) (Reply, error) {
					return Reply{}, nil
				}}
				r := startRound(t.Context(), Pipelines(nodes),
					plan{Command: command, Kind: Ask, Need: 1, Budget: 100 * time.Millisecond})
				to := <-s.to
				_, _ = r.Wait(t.Context())
				err := r.Outcomes()[0].Err
				assert.EqualError(t, err, c.text)
				assert.ErrorIs(t, err, ErrTimeout)
				assert.Equal(t, name != "unknown", errors.Is(err, refused))
				to.Receive(nil, context.DeadlineExceeded)
			})
		})
	}
}

// A client may tell an outcome while it holds what Explain waits for.
func TestARoundAsksForAnExplanationWithoutItsMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mutex := make(chan bool) // is unlocked by who receives
		s := &silent{explain: func() error { mutex <- true; return nil },
			to: make(chan pool.Receiver, 1)}
		nodes := Nodes([]pool.Pool{s}, NewTracker())
		command := Command{Command: pool.SetNX("k", "v", time.Second),
			Read: func(*pool.Command, any, error) (Reply, error) { return said(1), nil }}
		r := startRound(t.Context(), Pipelines(nodes),
			plan{Command: command, Kind: Ask, Need: 1, Budget: 100 * time.Millisecond})
		to := <-s.to
		time.Sleep(100 * time.Millisecond) // the round expires now
		synctest.Wait()
		to.Receive(true, nil)
		_, _ = r.Wait(t.Context())
		<-mutex
		synctest.Wait()
		assert.Equal(t, Outcomes{{Reply: said(1)}}, r.Outcomes(),
			"the answer came before the explanation")
	})
}
