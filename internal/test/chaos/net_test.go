package chaos

import (
	"fmt"
	"net"
	"time"
)

// addrIP is the IP address of "host" or "host:port".
func addrIP(addr string) net.IP {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		addr = host
	}
	return net.ParseIP(addr)
}

// How long dialFrom and ask wait: for what is to come through, however busy the machine is, and for
// what is not.
const (
	comesThrough = 10 * time.Second
	isDropped    = 250 * time.Millisecond
)

// dialFrom connects from an address of one's own.
func dialFrom(from net.IP, addr string, within time.Duration) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: within}
	return d.Dial("tcp", addr)
}

// ask sends ECHO mark and waits for an answer.
func ask(c net.Conn, mark string, within time.Duration) error {
	if _, err := fmt.Fprintf(c, "ECHO %s\r\n", mark); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := c.Read(make([]byte, 64))
	return err
}
