package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/redistest"
)

func TestEveryTickIsRunOnce(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, options{replicas: 5, every: 200 * time.Millisecond, ticks: 5}))
	t.Log(out.String())
	assert.Equal(t, 5, bytes.Count(out.Bytes(), []byte("  ok\n")))
}

// Two processes share the ticks: together they run each once.
func TestProcessesShareTheTicks(t *testing.T) {
	addrs := ""
	for i, n := range redistest.Nodes(t, 3) {
		if i > 0 {
			addrs += ","
		}
		addrs += n.Addr()
	}
	var outs [2]bytes.Buffer
	var group sync.WaitGroup
	for i := range outs {
		group.Go(func() {
			assert.NoError(t, run(t.Context(), &outs[i], options{addrs: addrs, replicas: 2, every: 200 * time.Millisecond, ticks: 4}))
		})
	}
	group.Wait()
	ran := map[string]bool{}
	for i := range outs {
		t.Log(outs[i].String())
		for line := range strings.Lines(outs[i].String()) {
			if strings.HasSuffix(line, "  ok\n") {
				tick, _, _ := strings.Cut(line, " ")
				assert.False(t, ran[tick], "%s was run by both", tick)
				ran[tick] = true
			}
		}
	}
	assert.GreaterOrEqual(t, len(ran), 4)
}

func TestTwoRunsOfATickAreFound(t *testing.T) {
	l := newLog(&bytes.Buffer{})
	tick := time.Now()
	l.ran(tick, "replica-1", nil)
	assert.Error(t, l.verify(true, 2))
	l.ran(tick, "replica-2", nil)
	assert.ErrorContains(t, l.verify(false, 1), "was run 2 times")
}
