package batch

import "time"

// A call waits for others, or it goes by itself. The first makes larger batches, which cost less;
// the second is sooner there. So it depends on how many there are, and on how fast they come.

const (
	// few is how many calls may be under way before others wait for a batch to return. Two callers
	// came at random times to a node half a millisecond away. With 1, they took 1.43 times as long
	// as without sharing. With 3 they take as long as that. With 8, eight callers who come back at
	// once would take 1.3 times as long on five nodes, because there are more batches.
	few = 3
	// fewAlone is how many where the group has one node, and so a caller waits for nothing else:
	// as many as there may be batches. Sixteen callers came at random times. With 7, they took 1.1
	// to 1.3 times as long on loopback as without sharing, and up to 1.1 times half a millisecond
	// away. With 16 they take 0.9 to 1.1 times as long.
	fewAlone = maxWorkers
	// crowdBatches is how many batches of a crowd are under way. The server has one of them while
	// the client tells the outcomes of the other. With 3, locks of eight callers took 1.2 times as
	// long, and 1.2 times the processor time, because each batch wakes somebody. With 1 they took
	// 1.6 times as long, because client and server take turns.
	crowdBatches = 2
	// crowdPart is the part of a crowd on several nodes that goes at least: a fourth. Without that,
	// locks of 8, 16 and 64 callers on five nodes took 1.08, 1.07 and 1.04 times as long. With a
	// half, those of eight on three nodes take 1.04 to 1.1 times as long as with a fourth. A caller
	// who waits has an open call on half of the nodes at least. So some node has calls of half of
	// the crowd, or of a fourth if a minority of up to seven nodes is silent. These go, and the
	// other nodes' calls after them.
	crowdPart = 4
	// A crowd is more than fewCallers, whose calls come as fast as crowdCalls in crowdTime. Eight
	// callers who come back at once make 400 calls in that time on loopback, and 16 who come at
	// random times make 60. Six callers who come back at once took 1.1 to 1.4 times as long as a
	// crowd.
	fewCallers = 7
	crowdCalls = 128
	crowdTime  = 4 * time.Millisecond
)

// crowd is how many calls come. The Batcher's mu guards it.
type crowd struct {
	size  int       // the most calls at a time, queued or under way; 0 if there is no crowd
	since time.Time // when the count began
	calls int       // sent since then
	most  int       // at a time since then
}

// decide says whether there is a crowd, and begins to count anew.
func (c *crowd) decide(now time.Time) {
	size := 0
	if c.most > fewCallers && now.Sub(c.since) <= crowdTime {
		size = c.most
	}
	*c = crowd{size: size, since: now}
}

// look forgets a crowd that sends too little to be one.
func (c *crowd) look(now time.Time) {
	if now.Sub(c.since) > crowdTime {
		c.decide(now)
	}
}

// noteCalls notes how many calls there are. The caller holds mu.
func (b *Batcher[T]) noteCalls() { b.crowd.most = max(b.crowd.most, len(b.queue)+b.underWay) }

// noteSent notes that calls are sent. The caller holds mu.
func (b *Batcher[T]) noteSent(calls int) {
	if b.crowd.calls += calls; b.crowd.calls >= crowdCalls {
		b.crowd.decide(time.Now())
	}
}

// isCrowdFor reports whether a call is one of a crowd of callers of one node. The caller holds mu.
func (b *Batcher[T]) isCrowdFor(c *Call[T]) bool { return c.command.Alone && b.crowd.size > 0 }

// isReadyFor reports whether the queue goes at once, which has so many calls, among them this one.
// That is so if little is under way, and enough of a crowd is there. A crowd of callers of one node
// goes in equal batches, each with half of it. With batches of what is there, which were of 1 and 7
// calls in turn, locks of eight callers took 1.15 times as long. When any number of calls went as
// soon as nothing was under way, a fourth of the batches had one call. Locks of 8 callers took 1.03
// to 1.07 times as long, and those of 64 took 1.05 to 1.11 times. On several nodes a crowd goes in
// one batch after the other. Without that, locks of eight callers on five nodes took 1.05 to 1.1
// times as long, and those of 64 up to 1.05 times. The caller holds mu.
func (b *Batcher[T]) isReadyFor(c *Call[T], queued int) bool {
	alone, crowd, sending := c.command.Alone, b.crowd.size, len(b.sending)
	switch {
	case crowd == 0 && alone:
		return b.underWay < fewAlone
	case crowd == 0:
		return b.underWay < few
	case alone:
		return sending < crowdBatches && queued >= crowd/crowdBatches
	}
	return sending == 0 && queued >= crowd/crowdPart
}

// limit is how many calls of the queue the next batch has at most. The caller holds mu.
func (b *Batcher[T]) limit() int {
	if !b.isCrowdFor(b.queue[0]) {
		return maxCalls
	}
	return min(maxCalls, (b.crowd.size+crowdBatches-1)/crowdBatches)
}
