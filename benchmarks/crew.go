package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A crew is one operating-system process full of clients, each with connections of its own and
// one waiter. Waiters that share a runtime would wake each other more cheaply than processes do.
//
// The program runs itself again for each crew, with crewEnv set. They talk in lines of JSON: a
// roll, then shifts, each answered by its log.
const crewEnv = "REDLOCK_BENCHMARK_CREW"

// roll says who is in a crew.
type roll struct {
	Who     string
	Addrs   []string
	Waiters int
}

// shift is one stretch of work.
type shift struct {
	Start time.Time     // for all crews
	For   time.Duration // how long the waiters come back again and again; 0: each comes once
	Hold  time.Duration
	Most  time.Duration // after which waiters who come once give up
}

// shiftLog is what a crew did in a shift.
type shiftLog struct {
	Turns [][]turn // by waiter; the last may lack its grant
	CPU   time.Duration
	Err   string // the first
}

// turn is one Lock and Unlock, in nanoseconds since the epoch; 0 is never.
type turn struct{ Asked, Granted, Released int64 }

// crewMain is the program of a crew.
func crewMain(in io.Reader, out io.Writer) error {
	lines, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var r roll
	if err := lines.Decode(&r); err != nil {
		return err
	}
	c := contenderNamed(r.Who)
	if c == nil {
		return fmt.Errorf("there is no contender %q", r.Who)
	}
	lockers := make([]locker, r.Waiters)
	for i := range lockers {
		l, err := c.open(r.Addrs, expiry)
		if err != nil {
			return err
		}
		defer l.Close()
		lockers[i] = l
	}
	if err := warm(lockers); err != nil {
		return err
	}
	if err := answers.Encode("ready"); err != nil {
		return err
	}
	for {
		var s shift
		switch err := lines.Decode(&s); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
		if s.For == 0 {
			for i, l := range lockers {
				if f, ok := l.(stranger); ok {
					lockers[i] = f.forget()
				}
			}
		}
		if err := answers.Encode(s.work(lockers)); err != nil {
			return err
		}
	}
}

// leaving is for how long waiters who come back go on after the end of their shift. What they do
// to give up their wait is not counted: with 256 of them, that was one command in fifteen.
const leaving = 200 * time.Millisecond

// stranger is a locker that knows something of locks it has had. One that comes once knows nothing.
type stranger interface{ forget() locker }

// warm opens the lockers' connections.
func warm(lockers []locker) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	room := make(chan struct{}, 16) // or the dials time out
	failed := make(chan error, len(lockers))
	for i, l := range lockers {
		room <- struct{}{}
		go func() {
			defer func() { <-room }()
			unlock, err := l.Lock(ctx, fmt.Sprintf("warm:%d:%d", os.Getpid(), i))
			if err == nil {
				err = unlock()
			}
			failed <- err
		}()
	}
	for range lockers {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// work is a shift of all waiters.
func (s shift) work(lockers []locker) shiftLog {
	time.Sleep(time.Until(s.Start))
	before := cpuTime()
	most := s.For + leaving
	if s.For == 0 {
		most = s.Most
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	var (
		log = shiftLog{Turns: make([][]turn, len(lockers))}
		mu  sync.Mutex // guards log.Err
		wg  sync.WaitGroup
	)
	for i, l := range lockers {
		wg.Go(func() {
			for ctx.Err() == nil {
				t := turn{Asked: time.Now().UnixNano()}
				unlock, err := l.Lock(ctx, "contended")
				if err == nil {
					t.Granted = time.Now().UnixNano()
					preciseSleep(s.Hold)
					t.Released = time.Now().UnixNano()
					err = unlock()
				}
				log.Turns[i] = append(log.Turns[i], t)
				if err != nil && ctx.Err() == nil {
					mu.Lock()
					if log.Err == "" {
						log.Err = err.Error()
					}
					mu.Unlock()
				}
				if s.For == 0 && t.Granted != 0 {
					return
				}
			}
		})
	}
	if s.For > 0 {
		time.Sleep(time.Until(s.Start.Add(s.For)))
		log.CPU = cpuTime() - before
	}
	wg.Wait()
	if s.For == 0 {
		log.CPU = cpuTime() - before
	}
	return log
}

// crew is the other end of one, in the main program.
type crew struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	send    *json.Encoder
	answers *json.Decoder
}

// again starts this program again with a variable set, in a session of its own.
func again(variable, value string) (*crew, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &crew{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), variable+"="+value)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.orders, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.send, c.answers = json.NewEncoder(c.orders), json.NewDecoder(out)
	return c, nil
}

// hire starts a crew. It is ready when ready has returned.
func hire(r roll) (*crew, error) {
	c, err := again(crewEnv, "1")
	if err != nil {
		return nil, err
	}
	if err := c.send.Encode(r); err != nil {
		c.dismiss()
		return nil, err
	}
	return c, nil
}

// ready waits until the crew has its connections.
func (c *crew) ready() error {
	var word string
	return c.answers.Decode(&word)
}

// dismiss ends the crew.
func (c *crew) dismiss() {
	_ = c.orders.Close()
	t := time.AfterFunc(grace, func() { _ = c.cmd.Process.Kill() })
	defer t.Stop()
	_ = c.cmd.Wait()
}

// together lets all crews work the same shift. It calls atEnd at its end.
func together(crews []*crew, s shift, atEnd func()) ([]shiftLog, error) {
	s.Start = time.Now().Add(50 * time.Millisecond)
	for _, c := range crews {
		if err := c.send.Encode(s); err != nil {
			return nil, err
		}
	}
	if s.For > 0 {
		time.Sleep(time.Until(s.Start.Add(s.For)))
		atEnd()
	}
	logs := make([]shiftLog, len(crews))
	for i, c := range crews {
		if err := c.answers.Decode(&logs[i]); err != nil {
			return nil, err
		}
	}
	if s.For == 0 {
		atEnd()
	}
	return logs, nil
}
