package main

import (
	"context"
	"encoding/json"
	"fmt"
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

// candidate is one process's view of an election.
type candidate interface {
	Campaign(ctx context.Context) error
	Resign(ctx context.Context) error
}

// news is what a candidate says, in nanoseconds since the epoch; 0 is nothing.
type news struct {
	Elected, Resigned int64
	who               int
}

// candidateMain is the program of a candidate. It stands for election, and says when it was
// elected. With an order it resigns, and says when. With another one it stands again. It ends when
// it is killed.
func candidateMain(r roll, orders *json.Decoder, answers *json.Encoder) error {
	c, err := contenderNamed(r.Who).stand(r.Addrs)
	for ctx, order := context.Background(), ""; err == nil; err = orders.Decode(&order) {
		if err := c.Campaign(ctx); err != nil {
			return err
		}
		_ = answers.Encode(news{Elected: time.Now().UnixNano()})
		if err := orders.Decode(&order); err != nil {
			return err
		}
		resigned := time.Now().UnixNano()
		if err := c.Resign(ctx); err != nil {
			return err
		}
		_ = answers.Encode(news{Resigned: resigned})
	}
	return err
}

// election measures how long nobody leads after a leader resigns, and after it is killed. The
// contenders take turns with each.
func (s *suite) election() {
	var all []*slate
	for _, c := range s.pick(func(c *contender) bool { return c.stand != nil }) {
		on, err := addrs(s.servers[:electionNodes]), error(nil)
		if c.open == nil {
			on, err = startEtcd(s.scope, electionNodes)
		}
		e := &slate{contender: c, addrs: on, news: make(chan news, 8)}
		defer e.dismiss()
		for i := 0; err == nil && i < len(e.all); i++ {
			err = e.start(i)
		}
		if err == nil {
			_, err = e.elected()
		}
		if err != nil {
			s.warn("%s, election: %v", c.name, err)
			return
		}
		all = append(all, e)
	}
	s.say("election: %d resign, %d are killed", s.Resigns, s.Kills)
	for i := range s.Resigns + s.Kills {
		metric, how := afterResign, (*slate).resign
		if i >= s.Resigns {
			metric, how = afterKill, (*slate).kill
		}
		for _, e := range all {
			// Until the others wait, and to some time between two renewals.
			time.Sleep(50*time.Millisecond + rand.N(electionExpiry/4))
			d, err := how(e)
			if err != nil {
				s.warn("%s, election, %s: %v", e.name, metric, err)
				continue
			}
			s.report.put(key{Section: electionPart, Who: e.name, Nodes: electionNodes,
				Workers: candidateCount}, metric, millis(d))
		}
	}
}

// slate is the candidates of a contender.
type slate struct {
	*contender
	addrs  []string
	all    [candidateCount]*helper
	leader int
	news   chan news
}

// start starts a candidate.
func (e *slate) start(i int) error {
	c, err := start(job{Candidate: &roll{Who: e.name, Addrs: e.addrs}})
	if err != nil {
		return err
	}
	e.all[i] = c
	go func() { // ends when the candidate does
		for n := (news{who: i}); c.answers.Decode(&n) == nil; n = (news{who: i}) {
			e.news <- n
		}
	}()
	return nil
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

// elected waits for the next leader, and returns since when it leads.
func (e *slate) elected() (int64, error) {
	n, err := e.next()
	e.leader = n.who
	return n.Elected, err
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
	old, killed := e.leader, time.Now().UnixNano()
	if err := e.all[old].cmd.Process.Kill(); err != nil {
		return 0, err
	}
	elected, err := e.elected()
	if err != nil {
		return 0, err
	}
	e.all[old].dismiss()
	return time.Duration(elected - killed), e.start(old)
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
	pools, _ := dialAll(addrs, dialGoredis)
	rl := redlock.New(pools...).With(redlock.WithExpiry(electionExpiry))
	return ourCandidate{rl.NewElection("scheduler")}, nil
}
