package main

import (
	"context"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// proxy is a TCP proxy in front of one server that adds a delay to every round trip,
// half of it on the way there and half on the way back. It delays bytes, it does not
// slow them: what is sent while other bytes are under way arrives as much later. Toxiproxy
// would bring a server with an HTTP interface into the process that is measured.
type proxy struct {
	l      net.Listener
	target string
	oneWay time.Duration
	over   context.Context // when the proxy is closed, and with it every connection
	end    context.CancelFunc
	wg     sync.WaitGroup
}

// newProxy listens on a free loopback port until close.
func newProxy(target string, roundTrip time.Duration) *proxy {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	p := &proxy{l: l, target: target, oneWay: roundTrip / 2}
	p.over, p.end = context.WithCancel(context.Background())
	p.wg.Go(p.serve)
	return p
}

// behind calls f with the addresses of proxies in front of servers that make them so far away, or
// with those of the servers.
func behind(away time.Duration, servers []string, f func(addrs []string)) {
	if away > 0 {
		servers = slices.Clone(servers)
		for i, addr := range servers {
			p := newProxy(addr, away)
			defer p.close()
			servers[i] = p.addr()
		}
	}
	f(servers)
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// close ends the proxy and every connection through it, and waits for its goroutines.
func (p *proxy) close() {
	p.l.Close()
	p.end()
	p.wg.Wait()
}

func (p *proxy) serve() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		context.AfterFunc(p.over, func() { client.Close(); server.Close() })
		p.wg.Go(func() { p.pipe(server, client) })
		p.wg.Go(func() { p.pipe(client, server) })
	}
}

type chunk struct {
	due  time.Time
	data []byte
}

// pipe copies src to dst until one of them ends, and then closes both.
func (p *proxy) pipe(dst, src net.Conn) {
	queue := make(chan chunk, 1024)
	p.wg.Go(func() {
		var err error
		for c := range queue {
			if err == nil {
				preciseSleep(time.Until(c.due))
				_, err = dst.Write(c.data)
			}
		}
		dst.Close()
		src.Close()
	})
	defer close(queue)
	for {
		buf := make([]byte, 16<<10)
		n, err := src.Read(buf)
		if n > 0 {
			queue <- chunk{time.Now().Add(p.oneWay), buf[:n]}
		}
		if err != nil {
			return
		}
	}
}

// preciseSleep sleeps on a timer of the kernel. The runtime's own timers may be a millisecond late
// on an idle machine, which would be most of a 1 ms delay. A thread that sleeps in a system call
// would keep its processor from other goroutines, for up to 10 ms: with two processors, a Lock of
// 20 ms took 50 ms beside proxies that slept so.
func preciseSleep(d time.Duration) {
	if d <= 0 {
		return
	}
	fd := must(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC))
	timer := os.NewFile(uintptr(fd), "timer")
	defer timer.Close()
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(fd, 0, &at, nil); err != nil {
		panic(err)
	}
	must(timer.Read(make([]byte, 8)))
}
