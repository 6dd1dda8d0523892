package main

import (
	"io"
	"net"
	"sync"
	"time"
)

// link is a connection of a process to a node.
type link struct {
	node    *node
	process string
	client  net.Conn
	from    io.Reader // what the client sends
	server  net.Conn
	broken  bool // guarded by the node
}

// packet is what has arrived at some time.
type packet struct {
	data []byte
	at   time.Time
}

// run carries bytes in both directions until one side closes.
func (l *link) run() {
	var both sync.WaitGroup
	both.Go(func() { l.carry(l.from, l.server, true) })
	both.Go(func() { l.carry(l.server, l.client, false) })
	both.Wait()
}

// carry copies what has been read as soon as it may pass. It reads on meanwhile: a node that is
// frozen or cut off blocks nobody.
func (l *link) carry(from io.Reader, to io.WriteCloser, toNode bool) {
	packets := make(chan packet, 1024)
	go func() {
		defer close(packets)
		for {
			data := make([]byte, 4096)
			n, err := from.Read(data)
			if n > 0 {
				packets <- packet{data[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range packets {
		if l.await(p.at, toNode) {
			_, _ = to.Write(p.data) // an error ends the reading on the other side
		}
	}
	_ = to.Close()
}

// await waits until a packet arrives. It reports false if the connection is broken.
func (l *link) await(sent time.Time, toNode bool) bool {
	n := l.node
	for {
		n.mu.Lock()
		broken, changed := l.broken, n.changed
		held := n.Cut[l.process] || n.Frozen && toNode
		travels := time.Until(sent.Add(n.Delay / 2))
		n.mu.Unlock()
		switch {
		case broken:
			return false
		case held:
			<-changed
		case travels > 0:
			select {
			case <-changed:
			case <-time.After(travels):
			}
		default:
			if toNode {
				n.tick()
			}
			return true
		}
	}
}

// reset breaks the connection as a server does that dies. What is on its way is lost.
func (l *link) reset() {
	l.broken = true
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}
