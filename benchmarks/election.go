package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/redlock-go/redlock"
)

const (
	electionPart   = "election"
	electionNodes  = 3               // or members of etcd
	candidateCount = 3               // processes that stand for election
	electionExpiry = 2 * time.Second // the least that etcd has
	afterResign    = "ms after Resign"
	afterKill      = "ms after kill -9"
)

// The program runs itself again for each candidate, with candidateEnv set. They talk in lines of
// JSON: a roll; then the candidate stands for election, and says when it was elected; and with
// each order it resigns, says when, and with another one it stands again.
const candidateEnv = "REDLOCK_BENCHMARK_CANDIDATE"

// candidate is one process's view of an election.
type candidate interface {
	Campaign(ctx context.Context) error
	Resign(ctx context.Context) error
}

// news is what a candidate says, in nanoseconds since the epoch; 0 is nothing.
type news struct {
	Elected, Resigned int64
	who               int
	err               error
}

// candidateMain is the program of a candidate.
func candidateMain(in io.Reader, out io.Writer) error {
	lines, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var b roll
	if err := lines.Decode(&b); err != nil {
		return err
	}
	who := contenderNamed(b.Who)
	if who == nil || who.stand == nil {
		return fmt.Errorf("%q cannot stand for election", b.Who)
	}
	c, err := who.stand(b.Addrs)
	if err != nil {
		return err
	}
	ctx, order := context.Background(), ""
	for {
		if err := c.Campaign(ctx); err != nil {
			return err
		}
		if err := answers.Encode(news{Elected: time.Now().UnixNano()}); err != nil {
			return err
		}
		if err := lines.Decode(&order); err != nil {
			return nil // the end
		}
		resigned := time.Now().UnixNano()
		if err := c.Resign(ctx); err != nil {
			return err
		}
		if err := answers.Encode(news{Resigned: resigned}); err != nil {
			return err
		}
		if err := lines.Decode(&order); err != nil {
			return nil
		}
	}
}

// election measures how long nobody leads after a leader resigns, and after it is killed. The
// contenders take turns with each.
func (s *suite) election() {
	var all []*slate
	defer func() {
		for _, e := range all {
			e.dismiss()
		}
	}()
	for _, c := range s.pick(func(c *contender) bool { return c.stand != nil }) {
		on, err := addrs(s.servers[:electionNodes]), error(nil)
		if c.open == nil {
			on, err = startEtcd(s.scope, electionNodes)
		}
		e := &slate{contender: c, addrs: on, news: make(chan news, 8)}
		all = append(all, e)
		if err == nil {
			err = e.begin()
		}
		if err != nil {
			s.warn("%s, election: %v", c.name, err)
			return
		}
	}
	s.say("election: %d resign, %d are killed", s.Resigns, s.Kills)
	for range s.Resigns {
		s.handOn(all, afterResign, (*slate).resign)
	}
	for range s.Kills {
		s.handOn(all, afterKill, (*slate).kill)
	}
}

// handOn changes the leader of each slate, and reports how long nobody led.
func (s *suite) handOn(all []*slate, metric string, how func(*slate) (time.Duration, error)) {
	for _, e := range all {
		// Until the others wait, and to some time between two renewals.
		time.Sleep(50*time.Millisecond + rand.N(electionExpiry/4))
		d, err := how(e)
		if err != nil {
			s.warn("%s, election, %s: %v", e.name, metric, err)
			continue
		}
		s.report.add(key{Section: electionPart, Who: e.name, Nodes: electionNodes,
			Workers: candidateCount, Metric: metric}, millis(d))
	}
}

// slate is the candidates of a contender.
type slate struct {
	*contender
	addrs  []string
	all    [candidateCount]*crew
	leader int
	news   chan news
}

// begin starts the candidates, and waits until one leads.
func (e *slate) begin() error {
	for i := range e.all {
		if err := e.start(i); err != nil {
			return err
		}
	}
	n, err := e.next()
	e.leader = n.who
	return err
}

// start starts a candidate.
func (e *slate) start(i int) error {
	c, err := again(candidateEnv, "1")
	if err != nil {
		return err
	}
	e.all[i] = c
	go func() { // ends when the candidate does
		for {
			n := news{who: i}
			if n.err = c.answers.Decode(&n); n.err != nil {
				return
			}
			e.news <- n
		}
	}()
	return c.send.Encode(roll{Who: e.name, Addrs: e.addrs})
}

// next waits for what a candidate says.
func (e *slate) next() (news, error) {
	select {
	case n := <-e.news:
		return n, nil
	case <-time.After(grace):
		return news{}, fmt.Errorf("nobody says anything for %v", grace)
	}
}

// resign lets the leader resign, and waits for the next one.
func (e *slate) resign() (time.Duration, error) {
	old := e.all[e.leader]
	if err := old.send.Encode("resign"); err != nil {
		return 0, err
	}
	var elected, resigned int64
	for range 2 { // in any order
		n, err := e.next()
		if err != nil {
			return 0, err
		}
		if n.Elected != 0 {
			elected, e.leader = n.Elected, n.who
		} else {
			resigned = n.Resigned
		}
	}
	return time.Duration(elected - resigned), old.send.Encode("stand")
}

// kill kills the leader, waits for the next one, and starts another candidate in its place.
func (e *slate) kill() (time.Duration, error) {
	old := e.leader
	if err := e.all[old].cmd.Process.Kill(); err != nil {
		return 0, err
	}
	killed := time.Now()
	n, err := e.next()
	if err != nil {
		return 0, err
	}
	e.all[old].dismiss()
	e.leader = n.who
	return time.Duration(n.Elected - killed.UnixNano()), e.start(old)
}

// dismiss ends the candidates.
func (e *slate) dismiss() {
	for _, c := range e.all {
		if c != nil {
			_ = c.cmd.Process.Kill()
			c.dismiss()
		}
	}
}

// ourCandidate is redlock's.
type ourCandidate struct{ *redlock.Election }

func (c ourCandidate) Campaign(ctx context.Context) error {
	_, err := c.Election.Campaign(ctx)
	return err
}

func standGoredis(addrs []string) (candidate, error) {
	rl := openGoredis(addrs).rl
	return ourCandidate{rl.NewElection("scheduler", redlock.WithExpiry(electionExpiry))}, nil
}
