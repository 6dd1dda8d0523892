// Command playground opens a page on which to break a distributed lock, and to watch it: five
// nodes, some processes, and what their lock protects.
//
//	go run ./examples/playground
//	go run ./examples/playground -stories
//
// The nodes are in memory, and the processes are children of this one, each with a client of its
// own. The visitor stops, freezes and slows nodes, pauses and kills processes. Stories play by
// themselves, and each ends in a sentence that is counted, not written. With -stories they are
// played without a page, and the exit status is 0 only if each ends as it should.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// What the clients log is in the errors of the locks. go-redis does not guard what this changes, so
// it comes before there is a client.
func init() { logging.Disable() }

func main() {
	if name := os.Getenv(processEnv); name != "" {
		runProcess(name, os.Getenv(nodesEnv))
		return
	}
	addr := flag.String("addr", "127.0.0.1:0",
		"where to serve the page; port 0 is any that is free")
	fast := flag.Bool("fast", false, "play as fast as tests do, not for eyes")
	all := flag.Bool("stories", false, "play all stories without a page, and exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *all {
		err = playAll(ctx, os.Stdout)
	} else {
		err = serve(ctx, os.Stdout, *addr, *fast)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

// patience is how long a story may take without a visitor.
const patience = time.Minute

// playAll plays all stories at once, and prints how they end.
func playAll(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sentences, errs := make([]string, len(stories)), make([]error, len(stories))
	var group sync.WaitGroup
	for i, st := range stories {
		group.Go(func() { sentences[i], errs[i] = st.alone(ctx) })
	}
	group.Wait()
	for i, st := range stories {
		if errs[i] != nil {
			return errs[i]
		}
		fmt.Fprintf(out, "%s: %s\n", st.Title, sentences[i])
	}
	return nil
}

// alone plays a story without a page, and returns its sentence. It is an error if that is not what
// was expected.
func (st story) alone(ctx context.Context) (string, error) {
	w, err := st.world(forTests)
	if err != nil {
		return "", err
	}
	defer w.close()
	v, err := st.perform(ctx, w)
	if err == nil && !v.ok {
		err = fmt.Errorf("%s: not as expected: %s", st.Title, v.sentence)
	}
	return v.sentence, err
}
