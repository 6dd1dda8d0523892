package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/doctor"
)

// unknown are gaps in a report.
func unknown(what ...string) (gaps []doctor.Gap) {
	for _, w := range what {
		gaps = append(gaps, doctor.Gap{What: w, Why: errOops})
	}
	return gaps
}

var everything = unknown(
	"server", "run id", "mode", "role", "replicas", "uptime", "memory", "persistence", "clock")

func TestReportShowsWhatIsKnownOfANode(t *testing.T) {
	type report = doctor.NodeReport
	for want, change := range map[string]func(n *report){
		"0|Redis 7.0.15|72h0m0s|master|no limit|RDB|+0.0ms ± 0.2ms": func(n *report) {},
		"0|Redis 7.0.15|72h0m0s|slave, 2 replicas|no limit|RDB|+0.0ms ± 0.2ms": func(n *report) {
			n.Role, n.Replicas = "slave", 2
		},
		"0|Redis 7.0.15|72h0m0s|master, cluster|no limit|RDB|+0.0ms ± 0.2ms": func(n *report) {
			n.Mode = "cluster"
		},
		"0|Redis 7.0.15|72h0m0s|master|2.5 MiB, allkeys-lru|RDB|+0.0ms ± 0.2ms": func(n *report) {
			n.MaxMemory, n.Eviction = 5<<19, "allkeys-lru"
		},
		"0|Redis 7.0.15|72h0m0s|master|?|?|+0.0ms ± 0.2ms": func(n *report) {
			n.Unknown = unknown("memory", "persistence")
		},
		"0|Redis 7.0.15|72h0m0s|master|no limit|RDB|-1m30s ± 1.0ms": func(n *report) {
			n.ClockOffset, n.ClockUncertainty = -90*time.Second-time.Millisecond, time.Millisecond
		},
		"0|Redis 7.0.15|72h0m0s|master|no limit|RDB|+1s ± 0.2ms": func(n *report) {
			n.ClockOffset = time.Second
		},
		"0|Redis 7.0.15|72h0m0s|master|no limit|RDB|-999.0ms ± 0.2ms": func(n *report) {
			n.ClockOffset = -999 * time.Millisecond
		},
		"0|unreachable|?|?|?|?|?": func(n *report) { n.Unknown, n.Err = everything, errOops },
		// It has answered all that a lock needs.
		"0|?|?|?|?|?|?": func(n *report) { n.Unknown = everything },
		// Lesson L80: so has this one, and the restart guard keeps it out for a while.
		"0|?|?|?|?|?|? ": func(n *report) {
			n.Unknown, n.Err, n.Guarded = everything, errOops, time.Second
		},
	} {
		t.Run(want, func(t *testing.T) {
			n := node(0, "")
			change(&n)
			r := &doctor.Report{Nodes: []doctor.NodeReport{n}}
			lines := strings.Split(r.String(), "\n")
			require.Greater(t, len(lines), 3)
			assert.Regexp(t, `^node +server +up +role +memory +persistence +clock$`, lines[2])
			var cells []string
			for cell := range strings.SplitSeq(lines[3], "  ") {
				if cell != "" {
					cells = append(cells, strings.TrimSpace(cell))
				}
			}
			assert.Equal(t, strings.TrimSpace(want), strings.Join(cells, "|"))
		})
	}
}

func TestReportNamesTheNodesOfAFinding(t *testing.T) {
	r := &doctor.Report{Nodes: []doctor.NodeReport{node(0, ""), node(1, "10.0.0.2:6379")}}
	for want, nodes := range map[string][]int{
		"NOTE (code), deployment":                 nil,
		"NOTE (code), node 0":                     {0},
		"NOTE (code), node 1 (10.0.0.2:6379)":     {1},
		"NOTE (code), nodes 0, 1 (10.0.0.2:6379)": {0, 1},
	} {
		r.Findings = []doctor.Finding{{Severity: doctor.Note, Code: "code", Nodes: nodes}}
		assert.Contains(t, r.String(), "\n"+want+"\n")
	}
	assert.Regexp(t, `\n0 +Redis 7`, r.String(), "a column for addresses")
	assert.Contains(t, r.String(), "\n1     10.0.0.2:6379  Redis")
}

func TestReportWrapsLongTexts(t *testing.T) {
	r := &doctor.Report{Findings: []doctor.Finding{{
		Severity: doctor.Note,
		Problem:  strings.Repeat("four ", 30),
		Advice:   strings.Repeat("é", 200) + " end",
	}}}
	lines := strings.Split(r.String(), "\n")
	four := strings.TrimSpace(strings.Repeat("four ", 19))
	assert.Equal(t, []string{
		"  " + four, "  " + strings.TrimSpace(strings.Repeat("four ", 11)),
		"  -> " + strings.Repeat("é", 200), "     end", "",
	}, lines[len(lines)-5:])
}

func TestReportWorst(t *testing.T) {
	assert.Equal(t, doctor.Severity(0), (&doctor.Report{}).Worst())
	r := &doctor.Report{Findings: []doctor.Finding{
		{Severity: doctor.Critical}, {Severity: doctor.Note},
	}}
	assert.Equal(t, doctor.Critical, r.Worst())
	assert.Contains(t, r.String(), "1 critical, 0 warnings, 1 note\n")
	assert.NotContains(t, r.String(), "No problems found.")
	assert.Contains(t, (&doctor.Report{}).String(), "\nNo problems found.\n")
}

func TestFingerprintIsThatOfTheAddresses(t *testing.T) {
	of := func(addrs ...string) string {
		r := &doctor.Report{}
		for i, addr := range addrs {
			r.Nodes = append(r.Nodes, node(i, addr))
		}
		return r.Fingerprint()
	}
	abc := of("a:1", "b:1", "c:1")
	assert.Regexp(t, `^3-[0-9a-f]{8}$`, abc)
	assert.Equal(t, abc, of("c:1", "a:1", "b:1"), "the order")
	for _, other := range []string{
		of("a:1", "b:1"), of("a:1", "b:1", "d:1"), of("a:1", "b:1", "c:1", "c:1"),
		of("a:1b:1", "c:1"), of(),
	} {
		assert.NotEqual(t, abc, other)
	}
	assert.Empty(t, of("a:1", "", "c:1"), "one is not known")
	r := &doctor.Report{Nodes: []doctor.NodeReport{node(0, "a:1")}}
	assert.Contains(t, r.String(), "\nfingerprint "+r.Fingerprint()+"\n\nnode ")
	r.Nodes[0].Addr = ""
	assert.NotContains(t, r.String(), "fingerprint")
}

func TestSeverityString(t *testing.T) {
	for s, want := range map[doctor.Severity]string{
		doctor.Note: "note", doctor.Warning: "warning", doctor.Critical: "critical", 7: "7",
	} {
		assert.Equal(t, want, s.String())
	}
	assert.Less(t, doctor.Note, doctor.Warning)
	assert.Less(t, doctor.Warning, doctor.Critical)
}
