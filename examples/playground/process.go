package main

import (
	"fmt"
	"io"
	"maps"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// process is a child process with a client of its own.
type process struct {
	name     string
	world    *world
	cmd      *exec.Cmd
	finished sync.WaitGroup
	over     chan struct{} // closed when the child has ended

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	job     Job
	left    int // jobs to do, or -1 for no end
	round   int
	busy    bool  // with a job
	stop    *halt // before its next write, or nil
	lane
}

// lane is what is known of a process.
type lane struct {
	State   string           `json:"state"`
	Since   time.Time        `json:"since"`
	Paused  bool             `json:"paused"`
	Dead    bool             `json:"dead"`
	Locks   map[string]Lease `json:"-"`
	Past    []Lease          `json:"leases"`  // also those that it has, the oldest first
	States  []span           `json:"states"`  // up to now
	Updates int              `json:"updates"` // jobs done
	Trouble string           `json:"trouble"` // what has failed last
	Failed  []int            `json:"-"`       // commands by node
}

// span is a state that was.
type span struct {
	State string    `json:"state"`
	From  time.Time `json:"from"`
}

// memory is how many spans and leases are shown.
const memory = 120

// halt makes a process wait just before it writes, when it has looked at its context.
type halt struct{ reached, resume chan struct{} }

// startProcess starts a child that runs this program.
func startProcess(w *world, name string, addrs []string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, world: w, cmd: exec.Command(exe), over: make(chan struct{}),
		changed: make(chan struct{}),
		lane: lane{Locks: map[string]Lease{}, Past: []Lease{},
			Failed: make([]int, len(addrs)+1)}}
	p.show(idle)
	p.cmd.Env = append(os.Environ(), processEnv+"="+name, nodesEnv+"="+strings.Join(addrs, ","))
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Desk", &Desk{p}); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.finished.Go(func() {
		server.ServeConn(pipe{out, in})
	})
	return p, nil
}

// pipe is the connection to a child.
type pipe struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p pipe) Write(b []byte) (int, error) { return p.in.Write(b) }

func (p pipe) Close() error {
	_ = p.in.Close()
	return p.ReadCloser.Close()
}

// show changes the state that is shown, unless the process is paused or dead. The caller holds mu.
func (p *process) show(state string) {
	switch {
	case p.Dead:
		state = dead
	case p.Paused:
		state = paused
	default:
		p.State = state
	}
	if n := len(p.States); n > 0 && p.States[n-1].State == state {
		return
	}
	p.States = append(p.States, span{state, time.Now()})
	p.Since = time.Now()
	if len(p.States) > memory {
		p.States = p.States[len(p.States)-memory:]
	}
}

// update changes what is guarded, and wakes who waits for that.
func (p *process) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// look returns what is known of the process.
func (p *process) look() lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lane
	l.Locks, l.Failed = maps.Clone(l.Locks), slices.Clone(l.Failed)
	l.Past, l.States = slices.Clone(l.Past), slices.Clone(l.States)
	return l
}

// work gives the process a job to do so many times, or without end if that is -1.
func (p *process) work(job Job, times int) {
	p.update(func() { p.job, p.left = job, times })
}

// rest lets the process end what it does, and do no more.
func (p *process) rest() { p.update(func() { p.left = 0 }) }

// free reports whether the process has nothing to do.
func (p *process) free() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Dead || p.left == 0 && !p.busy
}

// halt makes the process wait before its next write.
func (p *process) halt() *halt {
	h := &halt{make(chan struct{}), make(chan struct{})}
	p.update(func() { p.stop = h })
	return h
}

// pause stops the process by a signal, or lets it go on. It does not notice.
func (p *process) pause(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Dead || p.Paused == on {
		return nil
	}
	if err := suspend(p.cmd.Process, on); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.Paused = on
	p.show(p.State)
	return nil
}

// kill ends the process at once, and returns when it is gone.
func (p *process) kill() {
	gone := false
	p.update(func() {
		gone = p.Dead
		p.Dead, p.Paused = true, false
		p.Locks = map[string]Lease{}
		p.show(dead)
	})
	if gone {
		return
	}
	close(p.over)
	_ = p.cmd.Process.Kill()
	p.finished.Wait()
	_ = p.cmd.Wait()
	p.world.resource.leave(p.name)
}

// Desk is where a process reports, gets its jobs, and uses the resource.
type Desk struct{ p *process }

// Over returns when the process is killed.
func (d *Desk) Over(_ int, _ *bool) error {
	<-d.p.over
	return nil
}

// Next waits for a job.
func (d *Desk) Next(round int, job *Job) error {
	p := d.p
	for {
		p.mu.Lock()
		if p.left != 0 {
			p.round, p.busy, *job = round, true, p.job
			p.mu.Unlock()
			return nil
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-p.over:
			return nil
		}
	}
}

// Tell takes a report. One that the process writes is answered when it may go on.
func (d *Desk) Tell(r Report, _ *bool) error {
	p, stop := d.p, (*halt)(nil)
	p.update(func() { p.note(r, &stop) })
	if stop != nil {
		close(stop.reached)
		select {
		case <-stop.resume:
		case <-p.over:
		}
	}
	return nil
}

// note notes a report. The caller holds mu.
func (p *process) note(r Report, stop **halt) {
	name := r.Lock.Name
	held, ok := p.Locks[name]
	switch {
	case r.Round != p.round || p.Dead: // of a job that is over
		return
	case r.Node > 0:
		p.Failed[r.Node]++
		p.Trouble = fmt.Sprintf("node %d: %s", r.Node, r.Text)
	case r.Ended:
		delete(p.Locks, name)
		p.until(name, time.Now())
	case r.State == lost:
		p.world.log("%s has lost the lock %s.", p.name, name)
	case name != "" && !ok:
		r.Lock.From = time.Now()
		p.Locks[name] = r.Lock
		p.Past = append(p.Past, r.Lock)
		if len(p.Past) > memory {
			p.Past = p.Past[1:]
		}
	case name != "" && r.Lock.Until.After(held.Until):
		held.Until = r.Lock.Until
		p.Locks[name] = held
		p.until(name, held.Until)
	}
	switch r.State {
	case holding:
		p.world.granted(p.name)
	case writing:
		*stop, p.stop = p.stop, nil
	}
	if r.State != "" {
		p.show(r.State)
	}
}

// until changes the end of the last lease of that name. One that has ended before its release did
// so then. The caller holds mu.
func (p *process) until(name string, end time.Time) {
	for i, l := range slices.Backward(p.Past) {
		if l.Name == name {
			if end.After(l.Until) == (p.Locks[name].Name != "") {
				p.Past[i].Until = end
			}
			return
		}
	}
}

// Read uses the resource for the first time under a lock.
func (d *Desk) Read(u Use, value *int) (err error) {
	*value, err = d.p.world.resource.read(d.p.name, u)
	return d.refused(u, err)
}

// Write changes the resource.
func (d *Desk) Write(u Use, _ *bool) error {
	return d.refused(u, d.p.world.resource.write(u))
}

func (d *Desk) refused(u Use, err error) error {
	if err != nil {
		d.p.world.log("%s is refused by %s, which has seen a greater token.", d.p.name, u.Item)
	}
	return err
}

// Leave ends the use of the resource.
func (d *Desk) Leave(_ int, _ *bool) error {
	d.p.world.resource.leave(d.p.name)
	return nil
}

// Done takes the result of a job. A job that was not done is done again.
func (d *Desk) Done(r Result, _ *bool) error {
	p := d.p
	p.update(func() {
		p.busy, p.Locks, p.Trouble = false, map[string]Lease{}, r.Error
		if r.Done {
			p.Updates++
			p.left = max(p.left-1, min(p.left, 0))
		}
		if p.State != lost { // the page shows that until the process asks again
			p.show(idle)
		}
	})
	return nil
}
