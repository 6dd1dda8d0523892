package batch

// A call waits for a batch to return, or it goes by itself. The first makes larger batches, which
// cost less; the second is sooner there. So it depends on how many have come.

const (
	// few is how many calls may be under way before others wait for a batch to return. Two callers
	// came at random times to a node half a millisecond away. With 1, they took 1.43 times as long
	// as without sharing. With 3 they take as long as that. With 8, eight callers who come back at
	// once would take 1.3 times as long on five nodes, because there are more batches.
	few = 3
	// fewAlone is few where the group has one node, and so a caller waits for nothing else. Eight
	// callers came at random times to a node half a millisecond away. With 3, they took 1.16 to
	// 1.21 times as long as without sharing. With 7 they take as long as that. Seven who come back
	// at once take 1.1 times as long on loopback as peers that do not share.
	fewAlone = 7
	// crowdBatches is how many batches may be under way to such a node in a crowd: when more than
	// fewAlone calls have come. Eight callers who come back at once take 0.75 to 0.95 of the time
	// that they take with a call in each batch, and 64 take 0.83. With 2, 16 who come at random
	// times would take up to 1.15 times as long, because they wait.
	crowdBatches = 4
)

// isQuietFor reports whether so little is under way that this call need not wait for a batch to
// return. The caller holds mu.
func (b *Batcher[T]) isQuietFor(c *Call[T]) bool {
	switch {
	case !c.command.Alone:
		return b.underWay() < few
	case b.isCrowded():
		return len(b.sending) < crowdBatches
	}
	return b.underWay() < fewAlone
}

// underWay is how many calls are under way. The caller holds mu.
func (b *Batcher[T]) underWay() (n int) {
	for _, w := range b.sending {
		n += len(w.calls)
	}
	return n
}

// isCrowded reports whether there were more than fewAlone calls at a time lately: since the look
// before the last one. The caller holds mu.
func (b *Batcher[T]) isCrowded() bool { return max(b.crowd, b.before) > fewAlone }
