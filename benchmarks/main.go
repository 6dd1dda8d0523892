// Command benchmarks compares redlock with other lock libraries for Redis, on redis-servers that
// it starts itself.
//
//	go run . -quick       everything once, in about two minutes: does it work?
//	go run .              everything, tables on the terminal
//	go run . -all         the same, and write pages, charts and results.json
//	go run . -only pairs  the sections whose names match an expression
//	go run . -all -only pairs  measure them anew, and keep the others
//	go run . -docs        write pages and charts again from results.json
//
// The contenders take turns: what disturbs the machine disturbs all of them. Leave it alone
// meanwhile.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run() error {
	if text := os.Getenv(helperEnv); text != "" {
		return help(text)
	}
	var (
		isQuick = flag.Bool("quick", false,
			"measure everything once and briefly, to see that it works")
		all  = flag.Bool("all", false, "measure everything and write pages and JSON")
		docs = flag.Bool("docs", false,
			"write pages from the JSON of an earlier run, measure nothing")
		only = flag.String("only", "", "a regular `expression` for sections")
		who  = flag.String("who", "", "a regular `expression` for contenders")
		c    = full
	)
	flag.Parse()
	logging.Disable() // go-redis tells of each connection that it does not get
	if *isQuick {
		c = quick
	}
	c.Who = *who
	const results = "results.json"
	old, err := load(results)
	if *docs && err != nil {
		return err
	}
	r := old
	if !*docs {
		// What has been measured outlives an interrupted run.
		save := func(r *report) error { return r.with(old).save(results) }
		if !*all {
			save = func(*report) error { return nil }
		}
		if r, err = measure(c, *only, save); err != nil {
			return err
		}
		fmt.Print(r.tables())
	}
	if *all || *docs {
		r = r.with(old)
		if err := r.docs("../docs", "tables.md"); err != nil {
			return err
		}
	}
	// A page with holes is an error, unless only a part was measured and no page is written.
	if missing := r.missing(); len(missing) > 0 && (*only+*who == "" || *all || *docs) {
		return fmt.Errorf("%d figures that the page promises were not measured:\n\t%s",
			len(missing), strings.Join(missing, "\n\t"))
	}
	return nil
}

// measure starts the servers and runs the sections whose names match. It calls save after each.
func measure(c config, only string, save func(*report) error) (r *report, err error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	var sc scope
	defer sc.end()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
	}()
	s := &suite{config: c, report: &report{Runs: map[string]*sectionRun{}},
		scope: &sc, began: time.Now(), out: map[key]bool{}}
	s.servers = redistest.Start(&sc, mostNodes)
	here := machine()
	here["redis-server"] = version(s.servers[0])
	for _, sec := range sections {
		if !wanted.MatchString(sec.name) {
			continue
		}
		s.now = &sectionRun{Date: time.Now().UTC().Format(time.DateOnly), Machine: here}
		s.report.Runs[sec.name] = s.now
		sec.run(s)
		if err := save(s.report); err != nil {
			return nil, err
		}
	}
	s.say("done")
	return s.report, nil
}

func version(s *redistest.Server) string {
	text, _ := s.Must("INFO", "server").(string)
	_, v, _ := strings.Cut(text, "redis_version:")
	v, _, _ = strings.Cut(v, "\r\n")
	return v
}

// machine says where and with what the figures came about.
func machine() map[string]string {
	m := map[string]string{"go": runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if v, ok := strings.CutPrefix(line, "model name"); ok {
			m["processor"] = strings.Trim(v, "\t :\n")
		}
	}
	build, _ := debug.ReadBuildInfo()
	for _, d := range build.Deps {
		if slices.Contains(libraries, d.Path) {
			m[d.Path] = d.Version
		}
	}
	return m
}

// libraries are the modules whose versions matter.
var libraries = []string{
	"github.com/redis/go-redis/v9", "github.com/gomodule/redigo", "github.com/redis/rueidis",
	"github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
}
