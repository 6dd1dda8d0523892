package sim_test

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe is a network connection in memory, for whole clients in a bubble. Bytes arrive in order,
// each write after a delay of its own, or never; also when the writer has closed its end in the
// meantime, as on a real network.
type pipe struct {
	in, out *stream
	fate    func() (delay time.Duration, lost bool) // of one write
}

// newPipe returns the two ends of a connection.
func newPipe(request, reply func() (time.Duration, bool)) (client, server *pipe) {
	a, b := newStream(), newStream()
	return &pipe{in: b, out: a, fate: request}, &pipe{in: a, out: b, fate: reply}
}

func (w *pipe) Read(p []byte) (int, error) { return w.in.read(p) }

func (w *pipe) Write(p []byte) (int, error) {
	if w.in.isClosed() {
		return 0, net.ErrClosed
	}
	delay, lost := w.fate()
	w.out.send(append([]byte(nil), p...), delay, lost)
	return len(p), nil
}

// Close ends reading here, and tells the other end after what was written before.
func (w *pipe) Close() error {
	w.in.close(net.ErrClosed)
	delay, lost := w.fate()
	w.out.send(nil, delay, lost)
	return nil
}

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}

func (w *pipe) LocalAddr() net.Addr                { return loopback }
func (w *pipe) RemoteAddr() net.Addr               { return loopback }
func (w *pipe) SetReadDeadline(t time.Time) error  { w.in.setDeadline(t); return nil }
func (w *pipe) SetWriteDeadline(t time.Time) error { return nil }
func (w *pipe) SetDeadline(t time.Time) error      { return w.SetReadDeadline(t) }

// stream is one direction of a wire.
type stream struct {
	mu       sync.Mutex
	news     chan struct{} // closed and replaced when something below changes
	data     []byte
	err      error // for the reader, when the data is used up
	deadline time.Time
	last     time.Time // when what was sent last arrives
	cut      bool      // something was lost: nothing that follows makes sense
}

func newStream() *stream { return &stream{news: make(chan struct{})} }

func (s *stream) changed() {
	close(s.news)
	s.news = make(chan struct{})
}

func (s *stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

func (s *stream) setDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	s.changed()
}

func (s *stream) close(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		s.changed()
	}
}

// send lets p arrive after delay, and after what was sent before; nil is the end.
func (s *stream) send(p []byte, delay time.Duration, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut = s.cut || lost; s.cut && p != nil {
		return
	}
	at := time.Now().Add(delay)
	if !at.After(s.last) {
		at = s.last.Add(1)
	}
	s.last = at
	time.AfterFunc(time.Until(at), func() {
		if p == nil {
			s.close(io.EOF)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.data = append(s.data, p...)
		s.changed()
	})
}

func (s *stream) read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		news, deadline := s.news, s.deadline
		switch {
		case s.err == net.ErrClosed:
			s.mu.Unlock()
			return 0, s.err
		case len(s.data) > 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			s.mu.Unlock()
			return n, nil
		case s.err != nil:
			s.mu.Unlock()
			return 0, s.err
		}
		s.mu.Unlock()
		if deadline.IsZero() {
			<-news
			continue
		}
		left := time.Until(deadline)
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		t := time.NewTimer(left)
		select {
		case <-news:
		case <-t.C:
		}
		t.Stop()
	}
}
