// Command monitoring lets a few workers lock and unlock, on nodes of its own, and serves their
// metrics for Prometheus:
//
//	go run . -listen 127.0.0.1:9464
//
// Beside it lie what one imports elsewhere: alerts.yml for Prometheus, and dashboard.json for
// Grafana. Both are tested with what this program serves.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	goredis "github.com/redis/go-redis/v9"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/test/embedded"
	"github.com/redlock-go/redlock/otelredlock"
	"github.com/redlock-go/redlock/pool"
	redlockgoredis "github.com/redlock-go/redlock/pool/goredis"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9464", "`host:port` to serve /metrics at")
	addrs := flag.String("addrs", "",
		"comma-separated `host:port` of real nodes; if empty, three embedded ones")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *addrs); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

// run works and serves until ctx ends.
func run(ctx context.Context, listen, addrs string) error {
	if addrs == "" {
		nodes, err := embedded.Start(3)
		if err != nil {
			return err
		}
		defer nodes.Close()
		addrs = strings.Join(nodes.Addrs(), ",")
	}
	app, err := newApp(strings.Split(addrs, ","))
	if err != nil {
		return err
	}
	defer app.close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("metrics: http://%s/metrics\n", l.Addr())
	server := &http.Server{Handler: app.handler(), ReadHeaderTimeout: 10 * time.Second}
	var all sync.WaitGroup
	all.Go(func() {
		<-ctx.Done()
		_ = server.Close()
	})
	for range 4 {
		all.Go(func() { app.work(ctx) })
	}
	defer all.Wait()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// app is a service that locks, with its metrics.
type app struct {
	rl       *redlock.Redlock
	clients  []*goredis.Client
	registry *prometheus.Registry
}

// newApp is what a service does to have the metrics of its locks.
func newApp(addrs []string) (*app, error) {
	a := &app{registry: prometheus.NewRegistry()}
	reader, err := exporter.New(exporter.WithRegisterer(a.registry))
	if err != nil {
		return nil, err
	}
	events, err := otelredlock.Events(otelredlock.WithNodes(),
		otelredlock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	if err != nil {
		return nil, err
	}
	var pools []pool.Pool
	for _, addr := range addrs {
		c := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true})
		a.clients = append(a.clients, c)
		pools = append(pools, redlockgoredis.NewPool(c))
	}
	a.rl = redlock.New(pools...).With(redlock.WithEvents(events), redlock.WithFencing())
	return a, nil
}

func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	return mux
}

// work takes turns with the other workers until ctx ends.
func (a *app) work(ctx context.Context) {
	for ctx.Err() == nil {
		_ = a.rl.Do(ctx, "monitoring", func(ctx context.Context) error {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			return nil
		})
	}
}

func (a *app) close() {
	_ = a.rl.Close()
	for _, c := range a.clients {
		_ = c.Close()
	}
}
