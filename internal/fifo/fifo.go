// Package fifo is a line of waiters, first come, first served.
package fifo

import "sync"

// Queue is a line of waiters. The zero value is an empty line. It is safe for concurrent use
// and must not be copied.
type Queue struct {
	mu    sync.Mutex // guards the list
	first *Place
	last  *Place
	n     int
}

// Place is a place in a Queue. It is safe for concurrent use.
type Place struct {
	queue      *Queue
	head       chan struct{} // closed when at the head
	prev, next *Place
	left       bool
}

// Join takes the last place.
func (q *Queue) Join() *Place {
	p := &Place{queue: q, head: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.n++
	if q.last == nil {
		q.first, q.last = p, p
		close(p.head)
		return p
	}
	p.prev, q.last.next = q.last, p
	q.last = p
	return p
}

// Len returns how many are in the line.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n
}

// Head returns a channel that is closed when everybody before p has left, whether p
// is still in the line or not.
func (p *Place) Head() <-chan struct{} { return p.head }

// Leave ends the place, wherever in the line it is. What the one who leaves the head did
// before Leave happens before its successor finds itself at the head. Leaving again does nothing.
func (p *Place) Leave() {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	q.n--
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		q.last = p.prev
	}
	if p.prev != nil {
		p.prev.next = p.next
		return
	}
	q.first = p.next
	if q.first != nil {
		close(q.first.head)
	}
}
