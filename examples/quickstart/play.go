package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// play says when nodes fail: after a fifth of the turns one is stopped for good, after two fifths
// another one, which comes back after three. As many fail as leave a quorum: of three nodes only
// the latter.
type play struct {
	nodes *nodes
	show  *account
	total int
	first int // the node that is stopped for good, or -1
	other int // the node that comes back, or -1

	begun    atomic.Int64
	restored chan struct{} // closed when other is back

	mu      sync.Mutex // guards what follows, and keeps the scenes in order
	scene   int
	stopped time.Time // when other was
}

func newPlay(nodes *nodes, show *account, total int) *play {
	p := &play{nodes: nodes, show: show, total: total, first: -1, other: -1,
		restored: make(chan struct{})}
	n := len(nodes.list)
	spare := n - (n/2 + 1)
	if spare >= 2 {
		p.first = 1
	}
	if spare >= 1 {
		p.other = n - 2
	}
	return p
}

// await lets a turn begin: the last two fifths only after the restart.
func (p *play) await(ctx context.Context) error {
	if int(p.begun.Add(1)) <= p.total*3/5 {
		return ctx.Err()
	}
	select {
	case <-p.restored:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// goOn plays what is due after so many turns.
func (p *play) goOn(ctx context.Context, turns int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.scene == 0 && turns >= p.total/5 {
		p.scene++
		if p.first >= 0 {
			p.show.note(p.nodes.stop(p.first), p.first)
		}
	}
	if p.scene == 1 && turns >= p.total*2/5 {
		p.scene++
		p.stopped = time.Now()
		if p.other >= 0 {
			p.show.note(p.nodes.stop(p.other), p.other)
		}
	}
	if p.scene == 2 && turns >= p.total*3/5 {
		p.scene++
		defer close(p.restored)
		if p.other < 0 {
			return nil
		}
		// A node that lost its keys must stay away until every lock that it may have forgotten has
		// expired, or it could grant one of them again.
		select {
		case <-time.After(time.Until(p.stopped.Add(expiry))):
		case <-ctx.Done():
			return ctx.Err()
		}
		how, err := p.nodes.restart(p.other)
		p.show.note(how, p.other)
		return err
	}
	return nil
}
