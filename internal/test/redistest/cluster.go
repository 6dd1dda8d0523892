package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// StartCluster starts a cluster of n masters, which share the slots evenly. When it returns, what
// each of them publishes reaches the subscribers of all.
func StartCluster(t testing.TB, n int) []*Server {
	t.Helper()
	servers := Start(t, n, Args("--cluster-enabled", "yes"))
	for i, s := range servers {
		const slots = 16384
		first, last := i*slots/n, (i+1)*slots/n-1
		s.Must("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(first), fmt.Sprint(last))
		host, port, err := net.SplitHostPort(s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range servers[:i] { // gossip takes seconds
			other.Must("CLUSTER", "MEET", host, port)
		}
	}
	size := fmt.Sprintf("cluster_size:%d\r\n", n)
	for _, s := range servers {
		s.poll("the cluster to come to be", func() error {
			info := s.Must("CLUSTER", "INFO").(string)
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, size) {
				return fmt.Errorf("CLUSTER INFO: %s", info)
			}
			return nil
		})
	}
	for _, to := range servers {
		awaitMessages(t, servers, to)
	}
	return servers
}

// awaitMessages waits until what each server of a cluster publishes reaches the subscribers of one.
// The state of a cluster does not tell: a server drops what it has no connection for yet.
func awaitMessages(t testing.TB, servers []*Server, to *Server) {
	t.Helper()
	sub := to.Dial()
	defer sub.Close()
	if _, err := sub.Do("SUBSCRIBE", "reached"); err != nil {
		t.Fatal(err)
	}
	for _, from := range servers {
		to.poll("messages of "+from.Addr(), func() error {
			from.Must("PUBLISH", "reached", from.Addr())
			if err := sub.Send("PING"); err != nil {
				return err
			}
			for reached := false; ; {
				reply, err := sub.Receive()
				if err != nil {
					return err
				}
				switch parts, _ := reply.([]any); {
				case len(parts) == 3 && parts[2] == from.Addr():
					reached = true
				case len(parts) == 2 && reached: // PONG
					return nil
				case len(parts) == 2:
					return fmt.Errorf("a message of %s did not arrive", from.Addr())
				}
			}
		})
	}
}
