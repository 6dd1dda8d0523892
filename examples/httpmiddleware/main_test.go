package main

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/redlocktest"
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

func path(r *http.Request) string { return r.URL.Path }

func TestAnswers(t *testing.T) {
	log.SetOutput(io.Discard)
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.New(t, 3)
		handled := 0
		h := OnePerKey(c.Redlock(), path,
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				handled++
			}))
		get := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			return w
		}
		assert.Equal(t, http.StatusOK, get("/a").Code)
		assert.Equal(t, 1, handled)

		c.Take("/a", time.Minute)
		start := time.Now()
		taken := get("/a")
		assert.Equal(t, http.StatusConflict, taken.Code)
		assert.Equal(t, "1", taken.Header().Get("Retry-After"))
		assert.Less(t, time.Since(start), time.Second)
		assert.Equal(t, http.StatusOK, get("/b").Code)

		c.Node(0).Freeze()
		c.Node(1).Freeze()
		start = time.Now()
		unavailable := get("/c")
		assert.Equal(t, http.StatusServiceUnavailable, unavailable.Code)
		assert.Equal(t, "1", unavailable.Header().Get("Retry-After"))
		assert.LessOrEqual(t, time.Since(start), time.Second)
		assert.Equal(t, 2, handled)
	})
}

// Whenever the lock is lost, the handler is told before somebody else has it.
func TestNothingIsWithdrawnWithoutTheLock(t *testing.T) {
	log.SetOutput(io.Discard)
	redlocktest.AtEveryCommand(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		withdraw := func(_ http.ResponseWriter, r *http.Request) {
			for range 20 {
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
					return
				}
				if owner, held := c.Holder("/a"); !held || owner == redlocktest.Other {
					t.Error("withdraws without the lock")
				}
			}
		}
		h := OnePerKey(c.Redlock(), path, http.HandlerFunc(withdraw))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/a", nil))
	}, redlocktest.Expired)
}
