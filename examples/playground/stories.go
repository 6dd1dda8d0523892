package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// story is a piece that plays by itself.
type story struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	settings settings
	cast     []string // the processes
	expires  bool     // it waits for the end of a lease; elsewhere leases are long
	act      func(s *stage) verdict
}

// verdict is what has come of a story.
type verdict struct {
	sentence string
	ok       bool // it is what was expected
}

var stories = []story{
	{"node", "A node dies", settings{What: mutex}, []string{"Ada", "Grace", "Radia"}, false,
		aNodeDies},
	{"majority", "A majority dies", settings{What: mutex}, []string{"Ada", "Grace"}, true,
		aMajorityDies},
	{"pause", "A holder is paused past its lease, without fencing",
		settings{What: mutex}, []string{"Ada", "Grace", "Radia"}, true,
		aHolderIsPaused},
	{"pause-fenced", "A holder is paused past its lease, with fencing",
		settings{What: mutex, Fencing: true}, []string{"Ada", "Grace", "Radia"}, true,
		aHolderIsPaused},
	{"restart", "A node restarts empty, without the restart guard",
		settings{What: mutex},
		[]string{"Ada", "Grace"}, false, aNodeRestartsEmpty},
	{"restart-guarded", "A node restarts empty, with the restart guard",
		settings{What: mutex, Guard: true}, []string{"Ada", "Grace"}, false, aNodeRestartsEmpty},
	{"queue", "A queue of ten", settings{What: mutex}, people, false, aQueueOfTen},
	{"readers", "Readers and writers", settings{What: readers},
		[]string{"Ada", "Barbara", "Carol", "Grace", "Radia"}, false, readersAndWriters},
}

// stage is where a story is played. Its methods panic with over when ctx ends.
type stage struct {
	*world
	ctx context.Context
}

// over is the panic by which a story ends before its end.
type over struct{ cause error }

// world makes the world in which a story is played.
func (st story) world(p pace) (*world, error) {
	if !st.expires {
		p.expiry *= 5
	}
	return newWorld(st.settings, p, st.cast...)
}

// perform plays a story in its world. The error is that of ctx, or of the system.
func (st story) perform(ctx context.Context, w *world) (v verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			ended, ok := p.(over)
			if !ok {
				panic(p)
			}
			err = fmt.Errorf("%s: after %q: %w", st.Title, w.told().Says, ended.cause)
		}
		w.tell(func(p *play) {
			if err != nil {
				v.sentence = err.Error()
			}
			p.Sentence, p.Failed = v.sentence, !v.ok
		})
	}()
	w.tell(func(p *play) { p.Story = st.ID })
	return st.act(&stage{w, ctx}), nil
}

func (w *world) told() play {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.play
}

// says tells the visitor what happens now, and leaves time to read it.
func (s *stage) says(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.tell(func(p *play) { p.Says = text })
	s.log("%s", text)
	select {
	case <-s.ctx.Done():
		panic(over{context.Cause(s.ctx)})
	case <-time.After(s.pace.beat):
	}
}

// await waits for a condition.
func (s *stage) await(what func() bool) {
	for !what() {
		select {
		case <-s.ctx.Done():
			panic(over{context.Cause(s.ctx)})
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *stage) must(err error) {
	if err != nil {
		panic(over{err})
	}
}

// reached waits until a process that halts is about to write.
func (s *stage) reached(h *halt) {
	select {
	case <-h.reached:
	case <-s.ctx.Done():
		panic(over{context.Cause(s.ctx)})
	}
}

func (s *stage) updates() int {
	t, _ := s.resource.sum()
	return t.Updates
}

// awaitUpdates waits until there have been so many.
func (s *stage) awaitUpdates(n int) { s.await(func() bool { return s.updates() >= n }) }

// curtain lets all processes end what they do, and returns what the resource says then.
func (s *stage) curtain() (totals, item) {
	for _, p := range s.processes {
		p.rest()
	}
	s.await(func() bool {
		return !slices.ContainsFunc(s.processes, func(p *process) bool { return !p.free() })
	})
	t, items := s.resource.sum()
	return t, items[0]
}

// count is a number and its noun.
func count(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func lostUpdates(t totals) string { return count(t.Lost, "update") + " lost" }

func aNodeDies(s *stage) verdict {
	s.runFreely()
	s.says("Three processes take turns. Each reads the counter, works, and writes it back plus 1.")
	s.awaitUpdates(3)
	s.nodes[1].stop()
	before := s.updates()
	s.says("Node 2 dies. Four of five nodes go on: the quorum is three.")
	s.awaitUpdates(before + 6)
	t, _ := s.curtain()
	return verdict{fmt.Sprintf("%s after node 2 had died, %s.", count(t.Updates-before, "update"),
		lostUpdates(t)), t.Lost == 0}
}

func aMajorityDies(s *stage) verdict {
	ada, grace := s.processes[0], s.processes[1]
	long := s.job(0)
	long.Work = time.Hour
	ada.work(long, 1)
	s.await(func() bool { return ada.look().State == holding })
	grace.work(s.job(1), 1)
	s.says("Ada works for an hour. Her lock is extended again and again. Grace waits.")
	before := len(s.granteds())
	for _, n := range s.nodes[:3] {
		n.stop()
	}
	ada.work(s.job(0), 1) // when she asks again
	s.says("Three of five nodes die. Ada's lock can no longer be extended.")
	s.await(func() bool { return ada.look().State != holding })
	s.says("Ada's context has ended with her lease: she has stopped, and asks for the lock again.")
	refused := func(p *process) bool { l := p.look(); return l.State == waiting && l.Failed[1] > 0 }
	s.await(func() bool { return refused(ada) && refused(grace) })
	meanwhile := len(s.granteds()) - before
	s.says("Both ask, and nobody is granted the lock: two nodes are no quorum.")
	for _, n := range s.nodes[:3] {
		n.start(false)
	}
	s.says("The nodes are back, with the keys that they had.")
	t, _ := s.curtainAfter(2)
	return verdict{fmt.Sprintf("%s while three of five nodes were down, %s after that, %s.",
		count(meanwhile, "lock")+" granted", count(t.Updates, "update"), lostUpdates(t)),
		meanwhile == 0 && t.Updates == 2 && t.Lost == 0}
}

// curtainAfter is the end after so many updates.
func (s *stage) curtainAfter(updates int) (totals, item) {
	s.awaitUpdates(updates)
	return s.curtain()
}

func aHolderIsPaused(s *stage) verdict {
	ada, grace, radia := s.processes[0], s.processes[1], s.processes[2]
	halt := ada.halt()
	ada.work(s.job(0), 1)
	s.reached(halt)
	s.must(ada.pause(true))
	close(halt.resume)
	s.says("Ada has read 0, and has seen that she holds the lock. " +
		"Before she writes, she is paused.")
	grace.work(s.job(1), 1)
	radia.work(s.job(2), 1)
	s.says("Grace and Radia wait for the end of her lease.")
	s.awaitUpdates(2)
	s.says("Her lease is over, and the two have updated the counter: it is 2.")
	again := ada.halt()
	s.must(ada.pause(false))
	s.says("Ada goes on, and notices nothing: she writes 0 plus 1.")
	if !s.Fencing {
		close(again.resume)
		t, it := s.curtainAfter(3)
		return verdict{fmt.Sprintf("%s, and the counter is %d: %s.", count(t.Updates, "update"),
			it.Value, lostUpdates(t)), t.Lost == 2}
	}
	s.await(func() bool { t, _ := s.resource.sum(); return t.Refused > 0 })
	s.says("Her token is lower than those of Grace and Radia. " +
		"The resource refuses it, and she asks for the lock again.")
	close(again.resume)
	t, it := s.curtainAfter(3)
	return verdict{fmt.Sprintf("%s refused, %s, and the counter is %d: %s.",
		count(t.Refused, "write"), count(t.Updates, "update"), it.Value, lostUpdates(t)),
		t.Refused == 1 && t.Lost == 0}
}

func aNodeRestartsEmpty(s *stage) verdict {
	ada, grace := s.processes[0], s.processes[1]
	s.nodes[3].cut(ada.name, true)
	s.nodes[4].cut(ada.name, true)
	halt := ada.halt()
	ada.work(s.job(0), 1)
	s.reached(halt)
	s.says("Ada is cut off from nodes 4 and 5, and holds the lock on the other three. " +
		"She has read 0.")
	s.nodes[2].start(true)
	s.says("Node 3 restarts, and has lost Ada's key.")
	grace.work(s.job(1), 1)
	if s.Guard {
		s.await(func() bool { return grace.look().Failed[3] > 0 })
		s.says("Grace asks. Node 3 has not been up for longer than a lease, and does not vote.")
	} else {
		s.awaitUpdates(1)
		s.says("Grace was granted the lock by nodes 3, 4 and 5, while Ada holds it, too. " +
			"The counter is 1.")
	}
	close(halt.resume)
	s.says("Ada writes 0 plus 1.")
	s.awaitUpdates(2)
	t, items := s.resource.sum()
	expected := t.Most == 2 && t.Lost == 1
	if s.Guard {
		expected = t.Most == 1 && t.Lost == 0
	}
	return verdict{fmt.Sprintf("%s at once, %s, and the counter is %d: %s.",
		count(t.Most, "holder"), count(t.Updates, "update"), items[0].Value, lostUpdates(t)),
		expected}
}

func aQueueOfTen(s *stage) verdict {
	first := s.processes[0]
	halt := first.halt()
	first.work(s.job(0), 1)
	s.reached(halt)
	s.says("%s holds the lock. The others come, one after the other.", first.name)
	quorum, lock := len(s.nodes)/2+1, s.locks()[0]
	for i, p := range s.processes[1:] {
		p.work(s.job(i), 1)
		s.await(func() bool {
			n := 0
			for _, node := range s.nodes {
				if node.queue(lock) > i {
					n++
				}
			}
			return n >= quorum
		})
	}
	s.says("Nine stand in the queue that the nodes keep. %s releases the lock.", first.name)
	close(halt.resume)
	t, _ := s.curtainAfter(len(s.processes))
	ordered := 0
	for i, name := range s.granteds() {
		if i < len(s.processes) && name == s.processes[i].name {
			ordered++
		}
	}
	return verdict{fmt.Sprintf("%d of %d were served in the order in which they came, %s.", ordered,
		len(s.processes), lostUpdates(t)), ordered == len(s.processes) && t.Lost == 0}
}

func readersAndWriters(s *stage) verdict {
	s.runFreely()
	s.says("Ada, Barbara and Carol only read, and share the lock. Grace and Radia write.")
	s.await(func() bool {
		t, _ := s.resource.sum()
		return t.Updates >= 4 && t.Reads >= 9 && t.Readers >= 2
	})
	t, _ := s.curtain()
	return verdict{fmt.Sprintf("%s by up to %d at once, %s, and %s beside a writer: %s.",
		count(t.Reads, "read"), t.Readers, count(t.Updates, "write"), none(t.Beside),
		lostUpdates(t)), t.Beside == 0 && t.Lost == 0}
}

func none(n int) string {
	if n == 0 {
		return "nobody"
	}
	return count(n, "time") + " somebody"
}
