package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{[]float64{3}, 0.5, 3},
		{[]float64{4, 1, 3, 2}, 0, 1},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{4, 1, 3, 2}, 1, 4},
		{[]float64{0, 10, 20, 30, 40}, 0.9, 36},
	} {
		if got := quantile(c.values, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 5: "5", 1000: "1000", 0.1234: "0.123", 12.34: "12.3", 123.4: "123", math.NaN(): "–"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

// sample is a report of a run in which redlock is twice as fast as one peer and slower than another.
func sample() *report {
	r := &report{Config: quick, Machine: map[string]string{}}
	for _, n := range []int{1, 5} {
		for _, g := range []int{1, 64} {
			k := perPair(n, g)
			for who, v := range map[string]float64{we: 10, "redsync goredis": 20, "redsync rueidis": 8, "bare go-redis": 1} {
				k.Who = who
				r.add(k, v, v+2, v+1)
			}
		}
	}
	return r
}

func TestBestIsAmongThePeers(t *testing.T) {
	if who, v := sample().best(perPair(5, 64)); who != "redsync rueidis" || v != 9 {
		t.Errorf("best is %s with %v", who, v)
	}
}

func TestTargets(t *testing.T) {
	r := sample()
	for _, target := range targets {
		v := target.figure(r)
		switch target.what {
		case "5 nodes, 64 goroutines: time per pair / redsync goredis":
			if math.Abs(v-11.0/21) > 1e-9 || target.ok(v) {
				t.Errorf("%s: %v, ok %v", target.what, v, target.ok(v))
			}
		case "1 node, 1 goroutine: time per pair / redsync goredis":
			if !target.ok(v) {
				t.Errorf("%s: %v is not ok", target.what, v)
			}
		case "hand-over, 5 nodes: median ms":
			if !math.IsNaN(v) || target.ok(v) {
				t.Errorf("%s was not measured, and is %v, ok %v", target.what, v, target.ok(v))
			}
		}
	}
}

func TestPageTellsWhereAPeerIsBetter(t *testing.T) {
	page := sample().page()
	_, beaten, _ := strings.Cut(page, "## Where a peer is better")
	if !strings.Contains(beaten, "redsync rueidis") || strings.Contains(beaten, "redsync goredis") || strings.Contains(beaten, "bare go-redis") {
		t.Error(beaten)
	}
}

func TestChartsAreXML(t *testing.T) {
	for _, r := range []*report{sample(), {Config: quick}} {
		for name, svg := range r.charts() {
			if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
				t.Errorf("%s has a coordinate that is not a number", name)
			}
			for d := xml.NewDecoder(strings.NewReader(svg)); ; {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Errorf("%s: %v", name, err)
					break
				}
			}
		}
	}
}

func TestTicksEncloseTheValues(t *testing.T) {
	for _, log := range []bool{false, true} {
		for _, values := range [][]float64{{1}, {0.3, 7}, {17.6, 289}, {0.02, 12000}, {100, 1000}} {
			a, ticks := valueAxis(values, log, 0, 100)
			if len(ticks) < 2 || len(ticks) > 9 || a.min > values[0] || a.max < values[len(values)-1] {
				t.Errorf("values %v, log %v: ticks %v", values, log, ticks)
			}
		}
	}
}

func TestProxyDelaysRoundTripsAndCloses(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	const delay = 30 * time.Millisecond
	p, err := newProxy(echo.Addr().String(), delay)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	// The second byte is sent while the first is under way: both are delayed once.
	for range 2 {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < delay || d > 2*delay {
		t.Errorf("a round trip took %v, want about %v", d, delay)
	}
	p.close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlived the proxy")
	}
}
