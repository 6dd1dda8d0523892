package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/doctor"
	"github.com/redlock-go/redlock/internal/test/embedded"
)

// nodes starts embedded nodes, and returns a Redlock on them.
func nodes(n int) (servers *embedded.Nodes, locks *redlock.Redlock, done func()) {
	servers, _ = embedded.Start(n)
	pools, closePools, _ := embedded.Open(strings.Join(servers.Addrs(), ","), 0)
	locks = redlock.New(pools...)
	return servers, locks, func() {
		_ = locks.Close()
		closePools()
		servers.Close()
	}
}

func ExampleCheck() {
	_, locks, done := nodes(2)
	defer done()

	report, err := doctor.Check(context.Background(), locks)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings {
		if f.Severity >= doctor.Warning {
			fmt.Printf("%s: %s\n%s\n", f.Severity, f.Problem, f.Advice)
		}
	}
	// Output:
	// warning: Both nodes are needed: when either is down, nothing can be locked.
	// Use three nodes.
}

// A program decides by the codes of the findings.
func Example() {
	servers, locks, done := nodes(3)
	defer done()
	servers.Stop(1)

	report, err := doctor.Check(context.Background(), locks)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings {
		switch {
		case f.Code == "refused":
			fmt.Println("start the servers of the nodes", f.Nodes)
		case f.Severity >= doctor.Warning:
			fmt.Println(f.Problem, f.Advice)
		}
	}
	// Output: start the servers of the nodes [1]
}

// A health page fails if nothing can be locked, or if locks are not safe.
func ExampleReport_Worst() {
	servers, locks, done := nodes(3)
	defer done()

	health := func(w http.ResponseWriter, r *http.Request) {
		report, err := doctor.Check(r.Context(), locks)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		case report.Worst() == doctor.Critical:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, report)
	}
	status := func() int {
		w := httptest.NewRecorder()
		health(w, httptest.NewRequest(http.MethodGet, "/health", nil))
		return w.Code
	}
	fmt.Println(status())
	servers.Stop(0)
	servers.Stop(1)
	fmt.Println(status())
	// Output:
	// 200
	// 503
}

func ExampleReport_String() {
	report := &doctor.Report{
		Quorum: 2,
		Nodes: []doctor.NodeReport{
			node(0, "10.0.0.1:6379"), node(1, "10.0.0.2:6379"), node(2, "10.0.0.3:6379"),
		},
		Findings: []doctor.Finding{{
			Severity: doctor.Warning,
			Code:     "restart",
			Nodes:    []int{0, 1, 2},
			Problem: "A restart forgets locks (persistence: RDB), and the node could grant them " +
				"again.",
			Advice: "Use WithRestartGuard with the longest expiry in use.",
		}},
	}
	fmt.Print(report)
	// Output:
	// 3 nodes, quorum 2: 0 critical, 1 warning, 0 notes
	// fingerprint 3-964f5939
	//
	// node  address        server        up       role    memory    persistence  clock
	// 0     10.0.0.1:6379  Redis 7.0.15  72h0m0s  master  no limit  RDB          +0.0ms ± 0.2ms
	// 1     10.0.0.2:6379  Redis 7.0.15  72h0m0s  master  no limit  RDB          +0.0ms ± 0.2ms
	// 2     10.0.0.3:6379  Redis 7.0.15  72h0m0s  master  no limit  RDB          +0.0ms ± 0.2ms
	//
	// WARNING (restart), nodes 0 (10.0.0.1:6379), 1 (10.0.0.2:6379), 2 (10.0.0.3:6379)
	//   A restart forgets locks (persistence: RDB), and the node could grant them again.
	//   -> Use WithRestartGuard with the longest expiry in use.
}

// node is the report of a healthy node.
func node(i int, addr string) doctor.NodeReport {
	return doctor.NodeReport{
		Node: i, Addr: addr, Server: "Redis 7.0.15", RunID: strings.Repeat(fmt.Sprint(i), 40),
		Mode: "standalone", Role: "master", Uptime: 72 * time.Hour, Eviction: "noeviction",
		Persistence: "RDB", ClockUncertainty: 200 * time.Microsecond,
	}
}

// Two programs that are to exclude each other compare their fingerprints.
func ExampleReport_Fingerprint() {
	of := func(addrs ...string) string {
		r := &doctor.Report{}
		for i, addr := range addrs {
			r.Nodes = append(r.Nodes, node(i, addr))
		}
		return r.Fingerprint()
	}
	here := of("10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379")
	there := of("10.0.0.3:6379", "10.0.0.1:6379", "10.0.0.2:6379")
	later := of("10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379", "10.0.0.4:6379")

	fmt.Println(here, here == there, here == later)
	// Output: 3-964f5939 true false
}

func ExampleNodeReport_Knows() {
	n := node(0, "10.0.0.1:6379")
	n.Unknown = []doctor.Gap{{What: "memory", Why: errors.New("NOPERM")}}

	for _, what := range []string{"memory", "uptime"} {
		fmt.Println(what, n.Knows(what))
	}
	// Output:
	// memory false
	// uptime true
}
