package redistest

import (
	"os"
	"os/exec"
	"runtime"
)

// process is a running child and the goroutine that waits for it.
type process struct {
	*os.Process
	exited chan struct{} // closed when the child has ended and been waited for
}

// start runs cmd. The goroutine that forks the child stays on its thread until the
// child has ended, because the kernel sends the death signal when the parent
// *thread* ends, and the runtime may end a thread at any time.
func start(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = dieWithParent()
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.Process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed or stopped: how it ended says nothing
			close(p.exited)
		}
	}()
	return p, <-started
}

// running reports whether the child has not ended yet.
func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the child, frozen or not, and returns when it is gone.
func (p *process) kill() {
	_ = p.Kill() // fails only if it has ended already
	<-p.exited
}
