package redistest

import (
	"sync"
	"testing"
	"time"
)

// Pulse measures how long servers and the machine keep a client waiting. A test uses it to tell a
// fault of what it tests from a machine that is too busy for it.
type Pulse struct {
	mu    sync.Mutex
	begun time.Time     // of the beat under way
	worst time.Duration // since the last call of Worst
}

// beat is the pause between two beats.
const beat = 5 * time.Millisecond

// TakePulse pings the servers over connections of its own, one after another and 200 times a
// second, until the test ends.
func TakePulse(t testing.TB, servers ...*Server) *Pulse {
	t.Helper()
	conns := make([]*Conn, len(servers))
	for i, s := range servers {
		conns[i] = s.Dial()
	}
	p := &Pulse{begun: time.Now()}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(beat):
			}
			for i, c := range conns {
				if _, err := c.Do("PING"); err != nil {
					t.Errorf("redistest: pulse of %s: %v", servers[i].Addr(), err)
					return
				}
			}
			p.next()
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return p
}

// next ends a beat and begins the next one.
func (p *Pulse) next() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.worst = max(p.worst, p.late())
	p.begun = time.Now()
}

// late is how much longer than the pause between two beats the beat under way has taken. The
// caller holds mu.
func (p *Pulse) late() time.Duration { return time.Since(p.begun) - beat }

// Worst returns how late the latest beat since the last call of Worst was, the one under way
// included.
func (p *Pulse) Worst() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	worst := max(p.worst, p.late())
	p.worst = 0
	return worst
}
