package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Process is a child of the test that ends with the test process, even if that is killed (Linux).
type Process struct {
	p      *os.Process
	exited chan struct{}
}

// StartProcess starts cmd. The goroutine that forks the child stays on its thread until the
// child has ended, because the kernel sends the death signal when the parent
// *thread* ends, and the runtime may end a thread at any time.
//
// The command's streams should be files (or nil): what the caller reads or writes elsewhere is not
// waited for.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = asService()
	p := &Process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.p = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed or stopped: how it ended says nothing
			close(p.exited)
		}
	}()
	return p, <-started
}

// PID returns the process id.
func (p *Process) PID() int { return p.p.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process (SIGKILL), frozen or not, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.p.Kill() // fails only if it has ended already
	<-p.exited
}

// Freeze stops the process (SIGSTOP) and returns when it stands still.
func (p *Process) Freeze() error {
	if err := p.p.Signal(sigFreeze); err != nil {
		return err
	}
	for end := time.Now().Add(replyTimeout); ; time.Sleep(time.Millisecond) {
		is, err := stopped(p.p.Pid)
		if err != nil || is {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d goes on after SIGSTOP", p.p.Pid)
		}
	}
}

// Thaw lets a frozen process go on (SIGCONT).
func (p *Process) Thaw() error { return p.p.Signal(sigThaw) }
