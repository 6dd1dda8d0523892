// Command benchmarks compares redlock with other lock libraries for Redis, on redis-servers that
// it starts itself.
//
//	go run . -quick       everything once, in about a minute: does it work?
//	go run .              everything, tables on the terminal
//	go run . -all         the same, and write docs/benchmarks.md, its charts and results.json
//	go run . -only pairs  one section
//	go run . -only pairs -who "redlock goredis" -nodes 5 -goroutines 64 -cpuprofile cpu.out
//	go run . -all -only pairs  measure one section anew, and keep the others as they were
//	go run . -docs        write docs and charts again from results.json
//
// It says first about how long it takes. The contenders take turns: what disturbs the machine
// disturbs all of them. Leave the machine alone meanwhile.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
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
		all  = flag.Bool("all", false, "measure everything and write docs and JSON")
		docs = flag.Bool("docs", false,
			"write docs from the JSON of an earlier run, measure nothing")
		only = flag.String("only", "",
			"comma-separated `sections`: "+strings.Join(sectionNames(), ", "))
		rounds = flag.Int("rounds", 0,
			"rounds of every comparison; a few of pairs have more or fewer (0: as configured)")
		slice = flag.Duration("slice", 0,
			"one contender's turn in pairs, fencing and instant (0: as configured)")
		contend = flag.Duration("contention", 0,
			"one contender's turn under contention (0: as configured)")
		out   = flag.String("out", "..", "the `directory` of the main module, for docs/")
		who   = flag.String("who", "", "comma-separated `contenders` (all if empty)")
		nodes = flag.String("nodes", "",
			"comma-separated `numbers` of nodes for pairs and instant")
		workers = flag.String("goroutines", "", "comma-separated `numbers` of goroutines for pairs")
		crowds  = flag.String("processes", "", "comma-separated `numbers` of processes")
		cpu     = flag.String("cpuprofile", "", "write a processor profile to `file`")
		mem     = flag.String("memprofile", "",
			"write an allocation profile, every allocation sampled, to `file`")
	)
	flag.Parse()
	logging.Disable() // go-redis tells of each connection that it does not get
	if *mem != "" {
		runtime.MemProfileRate = 1
	}
	c := full
	if *isQuick {
		c = quick
	}
	if *rounds > 0 {
		c.PairRounds, c.Rounds, c.ContentionRounds = *rounds, *rounds, *rounds
		c.ProcessRounds = *rounds
	}
	if *slice > 0 {
		c.PairSlice = *slice
	}
	if *contend > 0 {
		c.Contention, c.ProcessSlice = *contend, *contend
	}
	part := *only + *who + *nodes + *workers + *crowds
	err := errors.Join(numbers(*nodes, &c.Nodes), numbers(*workers, &c.Goroutines),
		numbers(*crowds, &c.Processes), choose(*who, &c))
	if err != nil {
		return err
	}
	return profiled(*cpu, *mem, func() error {
		return command(c, *all, *docs, *only, *out, part == "")
	})
}

// numbers replaces to by a list from the command line, if there is one.
func numbers(list string, to *[]int) error {
	if list == "" {
		return nil
	}
	*to = nil
	for _, f := range strings.Split(list, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a positive number", f)
		}
		*to = append(*to, n)
	}
	return nil
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

// profiled calls f and writes the profiles that have a file name.
func profiled(cpu, mem string, f func() error) error {
	if cpu != "" {
		to, err := os.Create(cpu)
		if err != nil {
			return err
		}
		defer to.Close()
		if err := pprof.StartCPUProfile(to); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	err := f()
	if mem != "" {
		to, createErr := os.Create(mem)
		if createErr != nil {
			return errors.Join(err, createErr)
		}
		defer to.Close()
		err = errors.Join(err, pprof.Lookup("allocs").WriteTo(to, 0))
	}
	return err
}

// command measures or loads, prints and writes. A page with holes is an error, unless only a part
// was measured and no page is written.
func command(c config, all, docs bool, only, out string, whole bool) (err error) {
	results := filepath.Join(out, "benchmarks", "results.json")
	var r *report
	if docs {
		r, err = load(results)
	} else {
		var old *report // nil if nothing is written, or nothing is there
		if all {
			old, _ = load(results)
		}
		r, err = measure(c, only, func(r *report) error {
			if !all {
				return nil
			}
			return r.with(old).save(results)
		})
		if err == nil {
			fmt.Print(r.page())
			r = r.with(old)
		}
	}
	if err != nil {
		return err
	}
	if all || docs {
		if err := r.docs(filepath.Join(out, "docs", "benchmarks.md"),
			filepath.Join(out, "docs", "figures")); err != nil {
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
	names := strings.Split(list, ",")
	for _, n := range names {
		if list != "" && !slices.Contains(sectionNames(), n) {
			return nil, fmt.Errorf("there is no section %q; there are %s", n,
				strings.Join(sectionNames(), ", "))
		}
	}
	for _, s := range sections {
		if list == "" || slices.Contains(names, s.name) {
			out = append(out, s)
		}
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
		scope: &sc, began: time.Now()}
	s.servers = redistest.Start(&sc, mostNodes)
	s.report.Machine["redis-server"] = version(s.servers[0])
	s.say("about %.0f minutes", c.estimate(wanted).Minutes())
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

var machineOrder = []string{"cores", "processor", idle, "kernel", "go", "redis-server"}

const idle = "an idle processor"

// machine says where and with what the figures came about.
func machine() map[string]string {
	m := map[string]string{
		"cores": strconv.Itoa(runtime.NumCPU()),
		"go":    runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "model name"); ok {
				m["processor"] = strings.Trim(v, "\t :\n")
			}
		}
	}
	// A virtual machine may let its processors poll for work before they halt.
	if b, err := os.ReadFile("/sys/devices/system/cpu/cpuidle/current_driver"); err == nil {
		m[idle] = "halts at once"
		if strings.TrimSpace(string(b)) == "haltpoll" {
			m[idle] = "polls, and halts then"
		}
	}
	if b, err := exec.Command("uname", "-sr").Output(); err == nil {
		m["kernel"] = strings.TrimSpace(string(b))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			for _, name := range libraries {
				if d.Path == name {
					m[name] = d.Version
				}
			}
		}
	}
	return m
}

// libraries are the modules whose versions matter.
var libraries = []string{
	"github.com/redis/go-redis/v9", "github.com/gomodule/redigo", "github.com/redis/rueidis",
	"github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
}

func init() { machineOrder = append(machineOrder, libraries...) }
