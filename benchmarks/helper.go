package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// The program runs itself again for each helper, with helperEnv set to its job as JSON. They talk
// in lines of JSON. A helper ends with its standard input.
const helperEnv = "REDLOCK_BENCHMARK_HELPER"

// job is what a helper is: one of these.
type job struct {
	Crew, Candidate *roll
	Etcd            *member
	Team            *team
}

// help is the program of a helper.
func help(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	switch {
	case j.Crew != nil:
		return crewMain(*j.Crew, orders, answers)
	case j.Candidate != nil:
		return candidateMain(*j.Candidate, orders, answers)
	case j.Team != nil:
		return teamMain(*j.Team, orders, answers)
	default:
		return etcdMain(*j.Etcd, orders, answers)
	}
}

// helper is the other end of one, in the main program.
type helper struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	send    *json.Encoder
	answers *json.Decoder
}

// start starts a helper, in a session of its own.
func start(j job) (*helper, error) {
	text, _ := json.Marshal(j) // only strings and numbers
	h := &helper{cmd: exec.Command("/proc/self/exe")}
	if j.Team != nil && j.Team.NPM {
		cmd, err := npmTeam()
		if err != nil {
			return nil, err
		}
		h.cmd = cmd
	}
	h.cmd.Env = append(os.Environ(), helperEnv+"="+string(text))
	h.cmd.Stderr = os.Stderr
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if h.orders, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	h.send, h.answers = json.NewEncoder(h.orders), json.NewDecoder(out)
	return h, h.cmd.Start()
}

// startAll starts helpers, and waits until all have said that they are ready.
func startAll(jobs []job) (all []*helper, err error) {
	for _, j := range jobs {
		h, err := start(j)
		if err != nil {
			return all, err
		}
		all = append(all, h)
	}
	for _, h := range all {
		if err := h.answers.Decode(new(string)); err != nil {
			return all, err
		}
	}
	return all, nil
}

// dismiss ends the helper.
func (h *helper) dismiss() {
	_ = h.orders.Close()
	t := time.AfterFunc(grace, func() { _ = h.cmd.Process.Kill() })
	defer t.Stop()
	_ = h.cmd.Wait()
}
