// Command httpmiddleware handles one request per account at a time, whatever replica of the service
// it reaches.
//
//	go run ./examples/httpmiddleware
//	go run ./examples/httpmiddleware -addrs 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379
//
// It starts three replicas of a small bank on loopback, and lets clients withdraw money from two
// accounts all at once. The bank reads a balance, thinks, and writes it back. Without the lock most
// withdrawals would be lost. The exit status is 0 only if the balances are exact.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/pool"
)

func main() {
	addrs := flag.String("addrs", "",
		"comma-separated `host:port` of real nodes; if empty, three embedded ones")
	clients := flag.Int("clients", 8, "how many clients withdraw, three times each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *addrs, *clients); err != nil {
		fmt.Fprintln(os.Stderr, "httpmiddleware:", err)
		os.Exit(1)
	}
}

const (
	deposit     = 100
	withdrawals = 3 // of each client
)

func run(ctx context.Context, w io.Writer, addrs string, clients int) error {
	if clients < 1 {
		return fmt.Errorf("-clients %d: must be at least 1", clients)
	}
	pools, closeNodes, err := openNodes(addrs, 3)
	if err != nil {
		return err
	}
	defer closeNodes()
	return play(ctx, w, pools, clients)
}

// play lets the clients withdraw at three replicas, and looks at the balances.
func play(ctx context.Context, w io.Writer, pools []pool.Pool, clients int) error {
	b := &bank{balances: map[string]int{"ada": deposit, "grace": deposit}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /accounts/{account}/withdraw", b.withdraw)
	account := func(r *http.Request) string { return "bank:" + r.URL.Path }

	var urls []string
	for range 3 {
		locks := redlock.New(pools...)
		defer locks.Close()
		url, stop, err := serve(OnePerKey(locks, account, mux))
		if err != nil {
			return err
		}
		defer stop()
		urls = append(urls, url)
	}

	c := &crowd{w: w, urls: urls, client: &http.Client{Timeout: 10 * time.Second},
		start: time.Now()}
	defer c.client.CloseIdleConnections()
	if err := c.withdraw(ctx, clients); err != nil {
		return err
	}
	return b.verify(w, clients*withdrawals)
}

// serve starts a replica on a free loopback port, and returns its URL and what stops it.
func serve(h http.Handler) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h}
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(l) }) // returns ErrServerClosed
	return "http://" + l.Addr().String(), func() {
		_ = server.Close()
		group.Wait()
	}, nil
}

// bank is the service.
type bank struct {
	mu       sync.Mutex
	balances map[string]int
}

func (b *bank) withdraw(w http.ResponseWriter, r *http.Request) {
	account := r.PathValue("account")
	balance := b.read(account)
	time.Sleep(5 * time.Millisecond)
	if r.Context().Err() != nil {
		// The client has gone, or the lock is lost: nothing may be written any more.
		w.Header().Set("Retry-After", "1")
		http.Error(w, "lock lost", http.StatusServiceUnavailable)
		return
	}
	b.write(account, balance-1)
	fmt.Fprintf(w, "%d left\n", balance-1)
}

func (b *bank) read(account string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.balances[account]
}

func (b *bank) write(account string, balance int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balances[account] = balance
}

// verify returns an error if the balances do not tell of so many withdrawals.
func (b *bank) verify(w io.Writer, withdrawn int) error {
	ada, grace := b.read("ada"), b.read("grace")
	fmt.Fprintf(w, "\nAfter %d withdrawals of 1 from %d each, Ada has %d and Grace %d.\n",
		withdrawn, deposit, ada, grace)
	if ada+grace != 2*deposit-withdrawn {
		return fmt.Errorf("%d withdrawals are lost", ada+grace-(2*deposit-withdrawn))
	}
	fmt.Fprintln(w, "That is exact.")
	return nil
}
