package redistest

import (
	"bufio"
	"io"
	"net"
)

// Answer speaks for a server on conn. It reads commands, and writes what reply returns for each,
// byte for byte. After a reply that reports false it closes conn, and it returns when conn is
// closed.
func Answer(conn net.Conn, reply func(command []string) (string, bool)) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		sent, err := readReply(r) // a command is an array of strings
		if err != nil {
			return
		}
		var command []string
		parts, _ := sent.([]any)
		for _, part := range parts {
			text, _ := part.(string)
			command = append(command, text)
		}
		answer, more := reply(command)
		if _, err := io.WriteString(conn, answer); err != nil || !more {
			return
		}
	}
}
