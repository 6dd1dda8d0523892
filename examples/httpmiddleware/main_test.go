package main

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/embedded"
)

func TestNoWithdrawalIsLost(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, "", 4))
	t.Log(out.String())
	assert.Contains(t, out.String(), "After 12 withdrawals")
	assert.Contains(t, out.String(), "That is exact.")
}

func TestLostWithdrawalsAreFound(t *testing.T) {
	b := &bank{balances: map[string]int{"ada": 99, "grace": 100}}
	assert.EqualError(t, b.verify(io.Discard, 3), "2 withdrawals are lost")
}

func TestAnswers(t *testing.T) {
	nodes, err := embedded.Start(1)
	require.NoError(t, err)
	defer nodes.Close()
	pools, closePools, err := embedded.Open(nodes.Addrs()[0], 0)
	require.NoError(t, err)
	defer closePools()
	locks := redlock.New(pools...)
	defer locks.Close()
	log.SetOutput(io.Discard)

	handled := 0
	h := OnePerKey(locks, func(r *http.Request) string { return r.URL.Path }, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		handled++
	}))
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	// A busy machine may be too slow for the node timeout at first, and keep the lock for a while.
	getUntil := func(status int, path string) *httptest.ResponseRecorder {
		w := get(path)
		for end := time.Now().Add(30 * time.Second); w.Code != status && time.Now().Before(end); {
			w = get(path)
		}
		return w
	}

	assert.Equal(t, http.StatusOK, getUntil(http.StatusOK, "/a").Code)
	assert.Equal(t, 1, handled)

	other := locks.NewMutex("/a")
	require.NoError(t, other.Lock())
	taken := getUntil(http.StatusConflict, "/a")
	assert.Equal(t, http.StatusConflict, taken.Code)
	assert.Equal(t, "1", taken.Header().Get("Retry-After"))
	assert.Equal(t, http.StatusOK, getUntil(http.StatusOK, "/b").Code)

	nodes.Stop(0)
	unavailable := get("/c")
	assert.Equal(t, http.StatusServiceUnavailable, unavailable.Code)
	assert.Equal(t, "1", unavailable.Header().Get("Retry-After"))
	assert.Equal(t, 2, handled)
}
