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

// dialFrom connects from an address of one's own, within a quarter of a second.
func dialFrom(from net.IP, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 250 * time.Millisecond}
	return d.Dial("tcp", addr)
}

// ask sends ECHO mark and waits a quarter of a second for an answer.
func ask(c net.Conn, mark string) error {
	if _, err := fmt.Fprintf(c, "ECHO %s\r\n", mark); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(250 * time.Millisecond))
	_, err := c.Read(make([]byte, 64))
	return err
}
