package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"time"

	"github.com/redlock-go/redlock"
)

// OnePerKey passes on to next only one request per key at a time, among all replicas that lock on
// the same nodes. The request's context ends when the lock cannot be trusted any more: from then
// on next must not change anything.
//
// A request that does not get the lock within a quarter of a second or so is answered 409
// Conflict; if too few Redis nodes answer, 503 Service Unavailable, after a second at most. Both
// come with a Retry-After.
func OnePerKey(locks *redlock.Redlock, key func(*http.Request) string,
	next http.Handler) http.Handler {
	locks = locks.With(
		redlock.WithNodeTimeout(100*time.Millisecond),
		redlock.WithTries(6),
		redlock.WithRetryDelayFunc(redlock.ExponentialDelay(10*time.Millisecond,
			100*time.Millisecond)),
	)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served := false
		err := locks.Do(r.Context(), key(r), func(ctx context.Context) error {
			served = true
			next.ServeHTTP(w, r.WithContext(ctx))
			return nil
		})
		switch {
		case err == nil:
		case served:
			// Without redlock.ErrFailed, the request was handled: an error of the release
			// (redlock.ErrNotReleased) is no reason to answer 503, and have it sent again. The
			// handler has seen its context end, if it was the lock that was lost.
			log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
		case errors.Is(err, redlock.ErrTaken):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "another request is being handled", http.StatusConflict)
		case r.Context().Err() != nil:
			// The client has gone.
		default:
			log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "lock service unavailable", http.StatusServiceUnavailable)
		}
	})
}
