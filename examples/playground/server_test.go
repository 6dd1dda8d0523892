package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// visitor is a page without a browser.
type visitor struct {
	t      *testing.T
	url    string
	events *bufio.Reader
}

func visit(t *testing.T, s settings) *visitor {
	ctx, cancel := context.WithCancel(t.Context())
	p := &playground{pace: forTests}
	require.NoError(t, p.free(ctx, s))
	server := httptest.NewServer(p.handler(ctx))
	t.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
		p.end()
	})
	answer, err := http.Get(server.URL + "/events")
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return &visitor{t, server.URL, bufio.NewReader(answer.Body)}
}

// do does something, and returns the answer's status.
func (v *visitor) do(action string) int {
	answer, err := http.Post(v.url+"/do", "application/json", strings.NewReader(action))
	require.NoError(v.t, err)
	require.NoError(v.t, answer.Body.Close())
	return answer.StatusCode
}

// sees waits until the page shows something.
func (v *visitor) sees(what func(p picture) bool) {
	v.t.Helper()
	var line string
	for end := time.Now().Add(patience); time.Now().Before(end); {
		var err error
		line, err = v.events.ReadString('\n')
		require.NoError(v.t, err)
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var p picture
		require.NoError(v.t, json.Unmarshal([]byte(data), &p))
		if what(p) {
			return
		}
	}
	assert.Fail(v.t, "not seen", line)
}

// What the visitor does is done.
func TestActions(t *testing.T) {
	t.Parallel()
	v := visit(t, settings{What: mutex, Fencing: true})
	v.sees(func(p picture) bool { return p.Totals.Updates > 2 && p.Nodes[0].Fence != "" })
	for action, sees := range map[string]func(p picture) bool{
		`{"do":"stop","node":1}`: func(p picture) bool { return !p.Nodes[0].Up },
		`{"do":"start","node":2,"on":true}`: func(p picture) bool {
			return p.Nodes[1].Uptime < 3600
		},
		`{"do":"freeze","node":3,"on":true}`: func(p picture) bool { return p.Nodes[2].Frozen },
		`{"do":"slow","node":4,"on":true}`:   func(p picture) bool { return p.Nodes[3].Delay > 0 },
		`{"do":"clock","node":5}`:            func(p picture) bool { return p.Nodes[4].Ahead > 0 },
		`{"do":"cut","node":5,"process":"Ada","on":true}`: func(p picture) bool {
			return p.Nodes[4].Cut["Ada"]
		},
		`{"do":"pause","process":"Carol","on":true}`: func(p picture) bool {
			return p.Processes[2].Paused
		},
		`{"do":"kill","process":"Grace"}`: func(p picture) bool { return p.Processes[3].Dead },
	} {
		assert.Equal(t, http.StatusNoContent, v.do(action), action)
		v.sees(sees)
	}
	for _, action := range []string{`{"do":"stop","node":6}`, `{"do":"stop"}`, `{"do":"story"}`,
		`{"do":"free"}`, `{"do":"kill","process":"Nobody"}`, `{"do":"dance","node":1}`, ``} {
		assert.Equal(t, http.StatusBadRequest, v.do(action), action)
	}
	assert.Equal(t, http.StatusNoContent, v.do(`{"do":"story","story":"queue"}`))
	v.sees(func(p picture) bool {
		return p.Play.Story == "queue" && p.Play.Sentence != "" && !p.Play.Failed
	})
}

// Whatever is locked, no update is lost, and the nodes show who has what.
func TestFreePlay(t *testing.T) {
	for _, what := range []string{mutex, slots, readers, names} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			v, held := visit(t, settings{What: what, Fencing: true}), false
			v.sees(func(p picture) bool {
				assert.Zero(t, p.Totals.Lost)
				for _, n := range p.Nodes {
					held = held || len(n.Keys) > 0
				}
				return p.Totals.Updates > 9 && held
			})
		})
	}
}

// Other pages change nothing.
func TestOtherOrigins(t *testing.T) {
	t.Parallel()
	v := visit(t, settings{What: mutex})
	request, err := http.NewRequest(http.MethodPost, v.url+"/do",
		strings.NewReader(`{"do":"stop","node":1}`))
	require.NoError(t, err)
	request.Header.Set("Origin", "http://elsewhere.example")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusForbidden, answer.StatusCode)
}
