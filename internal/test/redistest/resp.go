package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// replyTimeout bounds every wait for a server, and so how long a broken test takes to fail.
const replyTimeout = 30 * time.Second

// Error is an error reply, as the server worded it.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Conn is a connection that speaks RESP2, for tests that need one of their own: to leave a command
// hanging, or to be cut. A client would connect anew and repeat commands by itself. It is not safe
// for concurrent use, except Close.
type Conn struct {
	c net.Conn
	r *bufio.Reader
}

// Dial opens a connection to addr.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, replyTimeout)
	if err != nil {
		return nil, err
	}
	return &Conn{c: c, r: bufio.NewReader(c)}, nil
}

// Close closes the connection; a Receive under way fails.
func (c *Conn) Close() error { return c.c.Close() }

// Do sends a command and returns its reply, see Receive.
func (c *Conn) Do(args ...string) (any, error) {
	if err := c.Send(args...); err != nil {
		return nil, err
	}
	return c.Receive()
}

// Send sends a command and does not wait for the reply.
func (c *Conn) Send(args ...string) error {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	_ = c.c.SetWriteDeadline(time.Now().Add(replyTimeout))
	_, err := c.c.Write(b)
	return err
}

// Receive waits for the next reply, half a minute at most. It returns a string, an int64, nil or
// an []any of them; an error reply is an Error, inside an array too.
func (c *Conn) Receive() (any, error) {
	_ = c.c.SetReadDeadline(time.Now().Add(replyTimeout))
	v, err := readReply(c.r)
	if err != nil {
		return nil, err
	}
	if e, ok := v.(Error); ok {
		return nil, e
	}
	return v, nil
}

func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("redistest: bad reply line %q", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	if kind == '+' {
		return rest, nil
	}
	if kind == '-' {
		return Error(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("redistest: bad reply line %q", line)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0 && (kind == '$' || kind == '*'):
		return nil, nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		return string(b[:n]), nil
	case kind == '*':
		a := make([]any, n)
		for i := range a {
			if a[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return a, nil
	}
	return nil, fmt.Errorf("redistest: bad reply line %q", line)
}

// control is a connection that is opened when it is needed and again after it broke.
type control struct {
	addr     string
	password string
	mu       sync.Mutex
	conn     *Conn
}

func (c *control) do(args ...string) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		conn, err := Dial(c.addr)
		if err != nil {
			return nil, err
		}
		if c.password != "" {
			if _, err := conn.Do("AUTH", c.password); err != nil {
				_ = conn.Close()
				return nil, err
			}
		}
		c.conn = conn
	}
	v, err := c.conn.Do(args...)
	var reply Error
	if err != nil && !errors.As(err, &reply) {
		_ = c.conn.Close()
		c.conn = nil
	}
	return v, err
}

func (c *control) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
