// Command benchmarks compares redlock with other lock libraries for Redis, on redis-servers that
// it starts itself.
//
//	go run . -quick       everything once, in about a minute: does it work?
//	go run .              everything, tables on the terminal
//	go run . -all         the same, and write pages, charts and results.json
//	go run . -only pairs  one section
//	go run . -all -only pairs  measure one section anew, and keep the others
//	go run . -docs        write pages and charts again from results.json
//
// The contenders take turns: what disturbs the machine disturbs all of them. Leave it alone
// meanwhile.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/redlock-go/redlock/internal/test/redistest"
)

func main() {
	var err error
	switch text := os.Getenv(etcdEnv); {
	case text != "":
		err = etcdMain(text, os.Stdin, os.Stdout)
	case os.Getenv(candidateEnv) != "":
		err = candidateMain(os.Stdin, os.Stdout)
	case os.Getenv(crewEnv) != "":
		err = crewMain(os.Stdin, os.Stdout)
	default:
		err = benchmark()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// benchmark is the program that is not one of its own helpers.
func benchmark() error {
	var (
		isQuick = flag.Bool("quick", false,
			"measure everything once and briefly, to see that it works")
		all  = flag.Bool("all", false, "measure everything and write pages and JSON")
		docs = flag.Bool("docs", false,
			"write pages from the JSON of an earlier run, measure nothing")
		only = flag.String("only", "",
			"comma-separated `sections`: "+strings.Join(sectionNames(), ", "))
		who = flag.String("who", "", "comma-separated `contenders` (all if empty)")
		c   = full
	)
	flag.Parse()
	logging.Disable() // go-redis tells of each connection that it does not get
	if *isQuick {
		c = quick
	}
	if err := choose(*who, &c); err != nil {
		return err
	}
	return command(c, *all, *docs, *only, *only+*who == "")
}

// choose lets only the named contenders take part. The roster stays whole: the report may have
// figures of the others.
func choose(list string, to *config) error {
	if list == "" {
		return nil
	}
	to.Who = strings.Split(list, ",")
	for _, w := range to.Who {
		if contenderNamed(w) == nil {
			return fmt.Errorf("there is no contender %q", w)
		}
	}
	return nil
}

// command measures or loads, prints and writes. A page with holes is an error, unless only a part
// was measured and no page is written.
func command(c config, all, docs bool, only string, whole bool) error {
	const results = "results.json"
	old, err := load(results)
	if docs && err != nil {
		return err
	}
	r := old
	if !docs {
		r, err = measure(c, only, func(r *report) error {
			if !all {
				return nil
			}
			return r.with(old).save(results)
		})
		if err != nil {
			return err
		}
		fmt.Print(r.tables(func(t string) string { return t }))
	}
	if all || docs {
		r = r.with(old)
		if err := r.docs("../docs", "tables.md"); err != nil {
			return err
		}
	}
	if missing := r.missing(); len(missing) > 0 && (whole || all || docs) {
		return fmt.Errorf("%d figures that the page promises were not measured:\n\t%s",
			len(missing), strings.Join(missing, "\n\t"))
	}
	return nil
}

func sectionNames() (out []string) {
	for _, s := range sections {
		out = append(out, s.name)
	}
	return out
}

// chosen are the sections of a comma-separated list, all of them if it is empty.
func chosen(list string) (out []section, err error) {
	if list == "" {
		return sections, nil
	}
	for _, n := range strings.Split(list, ",") {
		s := sectionNamed(n)
		if s == nil {
			return nil, fmt.Errorf("there is no section %q; there are %s", n,
				strings.Join(sectionNames(), ", "))
		}
		out = append(out, *s)
	}
	return out, nil
}

// measure starts the servers and runs the sections, all of them if only is empty. It calls save
// after each: what has been measured outlives an interrupted run.
func measure(c config, only string, save func(*report) error) (r *report, err error) {
	wanted, err := chosen(only)
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
	s := &suite{config: c, report: &report{Machine: machine(), Runs: map[string]*sectionRun{}},
		scope: &sc, began: time.Now(), out: map[key]bool{}}
	s.servers = redistest.Start(&sc, mostNodes)
	s.report.Machine["redis-server"] = version(s.servers[0])
	for _, sec := range wanted {
		s.now = &sectionRun{Date: time.Now().UTC().Format(time.DateOnly), Config: c}
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
	m := map[string]string{
		"cores": strconv.Itoa(runtime.NumCPU()),
		"go":    runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if v, ok := strings.CutPrefix(line, "model name"); ok {
			m["processor"] = strings.Trim(v, "\t :\n")
		}
	}
	kernel, _ := exec.Command("uname", "-sr").Output()
	m["kernel"] = strings.TrimSpace(string(kernel))
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
