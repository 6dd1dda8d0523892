package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// crowd are the bank's clients.
type crowd struct {
	w      io.Writer
	urls   []string
	client *http.Client
	start  time.Time

	mu sync.Mutex // keeps lines whole
}

// withdraw lets all clients withdraw at once, each from both accounts in turn and at other
// replicas.
func (c *crowd) withdraw(ctx context.Context, clients int) error {
	fmt.Fprintf(c.w, "%7s  %-6s  %-7s  %-8s  %6s  %s\n", "time", "client", "account", "replica",
		"took", "answer")
	errs := make(chan error, clients)
	for i := range clients {
		go func() { errs <- c.customer(ctx, i) }()
	}
	var first error
	for range clients {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

func (c *crowd) customer(ctx context.Context, i int) error {
	for n := range withdrawals {
		account := []string{"ada", "grace"}[(i+n)%2]
		for attempt := 1; ; attempt++ {
			again, err := c.post(ctx, i, account, (i+n+attempt)%len(c.urls))
			if again == 0 || attempt == attempts {
				if err != nil {
					return err
				}
				break
			}
			select {
			case <-time.After(again):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// attempts is how often a client asks for one withdrawal.
const attempts = 60

// post withdraws once. It returns after what time to try again, or 0, and why it did not withdraw.
func (c *crowd) post(ctx context.Context, i int, account string, replica int) (again time.Duration,
	err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		c.urls[replica]+"/accounts/"+account+"/withdraw", nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	res, err := c.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(body))
	c.mu.Lock()
	fmt.Fprintf(c.w, "%6.2fs  %-6d  %-7s  %-8d  %4dms  %d %s\n", time.Since(c.start).Seconds(), i+1,
		account, replica+1,
		time.Since(began).Milliseconds(), res.StatusCode, text)
	c.mu.Unlock()
	if res.StatusCode == http.StatusOK {
		return 0, nil
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		again = time.Duration(seconds) * time.Second
	}
	return again, fmt.Errorf("%s: %d %s", req.URL, res.StatusCode, text)
}
