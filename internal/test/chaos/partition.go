package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// partitions drops packets between pairs of addresses, each direction by itself,
// with a table of its own in nftables.
type partitions struct {
	nft, table string
	cuts       map[string]int // how many cuts a pair has that are not joined
}

// tables counts the tables of this process. A test may have several rounds, each with its own.
var tables atomic.Int64

// newPartitions returns an error that says why there can be none: no nftables, no root. The table
// goes with the test. A test process that is killed leaves it behind, where it does no harm: its
// pairs have addresses that no other run takes. "nft delete table" removes it.
func newPartitions(t testing.TB) (*partitions, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not root")
	}
	nft, err := exec.LookPath("nft")
	if err != nil {
		nft = "/usr/sbin/nft" // not on every PATH
	}
	table := fmt.Sprintf("inet redlock_chaos_%d_%d", os.Getpid(), tables.Add(1))
	p := &partitions{nft: nft, table: table, cuts: map[string]int{}}
	err = p.run(fmt.Sprintf(`add table %[1]s
		add set %[1]s cut { type ipv4_addr . ipv4_addr; }
		add chain %[1]s out { type filter hook output priority 0; policy accept; }
		add rule %[1]s out ip saddr . ip daddr @cut drop`, p.table))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := p.run("delete table " + p.table); err != nil {
			t.Error(err)
		}
	})
	return p, nil
}

// cut drops what from sends to to, until join.
func (p *partitions) cut(from, to net.IP) error {
	pair := fmt.Sprintf("%s . %s", from, to)
	if p.cuts[pair]++; p.cuts[pair] > 1 {
		return nil
	}
	return p.run(fmt.Sprintf("add element %s cut { %s }", p.table, pair))
}

// join ends one cut; the last one lets the packets through again.
func (p *partitions) join(from, to net.IP) error {
	pair := fmt.Sprintf("%s . %s", from, to)
	if p.cuts[pair]--; p.cuts[pair] > 0 {
		return nil
	}
	return p.run(fmt.Sprintf("delete element %s cut { %s }", p.table, pair))
}

// sources returns n addresses to connect from that no other run on this machine uses. To cut one of
// them off from a server cuts off nobody else.
func sources(n int) []net.IP {
	net2, net3 := byte(1+rand.IntN(250)), byte(rand.IntN(250))
	all := make([]net.IP, n)
	for i := range all {
		all[i] = net.IPv4(127, net2, net3, byte(10+i)).To4()
	}
	return all
}

func (p *partitions) run(script string) error {
	cmd := exec.Command(p.nft, "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("chaos: nft: %w: %s", err, out)
	}
	return nil
}
