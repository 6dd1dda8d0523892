package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"time"
)

//go:embed page
var page embed.FS

// frame is how often the page is told what there is.
const frame = 200 * time.Millisecond

// playground is the world that is shown, and what happens in it.
type playground struct {
	pace pace

	mu     sync.Mutex // guards what follows
	world  *world
	number int    // of the world
	end    func() // ends what happens in it, and then the world
}

// serve shows the page until ctx ends.
func serve(ctx context.Context, out io.Writer, addr string, fast bool) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	p := &playground{pace: forEyes}
	if fast {
		p.pace = forTests
	}
	if err := p.free(ctx, settings{What: mutex, Fencing: true}); err != nil {
		_ = listener.Close()
		return err
	}
	defer func() { p.end() }()
	fmt.Fprintf(out, "The playground is at http://%s, until Ctrl-C.\n", listener.Addr())
	server := &http.Server{
		Handler:           p.handler(ctx),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler answers the page. What the page starts ends with ctx.
func (p *playground) handler(ctx context.Context) http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // it is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /events", p.events)
	mux.HandleFunc("POST /do", func(w http.ResponseWriter, r *http.Request) {
		var a action
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<12)).Decode(&a)
		if err == nil {
			err = p.do(ctx, a)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	own := http.NewCrossOriginProtection().Handler(mux) // other pages change nothing here
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		w.Header().Set("Cache-Control", "no-store")
		own.ServeHTTP(w, r)
	})
}

// events tells what there is, five times a second.
func (p *playground) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		p.mu.Lock()
		world, number := p.world, p.number
		p.mu.Unlock()
		data, err := json.Marshal(world.picture(number))
		if err == nil {
			_, err = fmt.Fprintf(w, "data: %s\n\n", data)
		}
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(frame):
		}
	}
}

// free starts a world in which nothing happens but work.
func (p *playground) free(ctx context.Context, s settings) error {
	cast := []string{"Ada", "Barbara", "Carol", "Grace", "Radia"}
	switch s.What {
	case mutex, readers, names:
	case slots:
		cast = people
	default:
		return fmt.Errorf("no such locks: %q", s.What)
	}
	w, err := newWorld(s, p.pace, cast...)
	if err != nil {
		return err
	}
	p.show(ctx, w, func(context.Context) { w.runFreely() })
	return nil
}

// show ends the world that was, and shows another one, and what happens in it.
func (p *playground) show(ctx context.Context, w *world, happens func(ctx context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		p.end()
	}
	ctx, cancel := context.WithCancel(ctx)
	var both sync.WaitGroup
	both.Go(func() { happens(ctx) })
	both.Go(func() { w.observe(ctx) })
	p.world, p.number = w, p.number+1
	p.end = func() {
		cancel()
		both.Wait()
		w.close()
	}
}

// action is what the visitor does.
type action struct {
	Do       string   `json:"do"`
	Node     int      `json:"node"` // from 1
	Process  string   `json:"process"`
	On       bool     `json:"on"`
	Story    string   `json:"story"`
	Settings settings `json:"settings"`
}

// What the visitor's buttons do to a node.
const (
	slowness = 300 * time.Millisecond
	leap     = 3 * time.Second
)

// do does it.
func (p *playground) do(ctx context.Context, a action) error {
	switch a.Do {
	case "free":
		return p.free(ctx, a.Settings)
	case "story":
		return p.story(ctx, a.Story)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.world
	proc := w.process(a.Process)
	if proc != nil {
		switch a.Do {
		case "pause":
			w.log("%s is %s.", proc.name, word(a.On, "paused", "running again"))
			return proc.pause(a.On)
		case "kill":
			w.log("%s is killed.", proc.name)
			proc.kill()
			return nil
		}
	}
	if a.Node < 1 || a.Node > len(w.nodes) {
		return fmt.Errorf("nothing to %q", a.Do)
	}
	n, text := w.nodes[a.Node-1], ""
	switch {
	case a.Do == "stop":
		n.stop()
		text = "is stopped"
	case a.Do == "start":
		n.start(a.On)
		text = "is started, " + word(a.On, "empty", "with its keys")
	case a.Do == "freeze":
		n.freeze(a.On)
		text = word(a.On, "is frozen", "goes on")
	case a.Do == "slow":
		n.slow(0)
		if a.On {
			n.slow(slowness)
		}
		text = word(a.On, "is slow", "is fast again")
	case a.Do == "clock":
		n.advance(leap)
		text = fmt.Sprintf("has its clock moved %v ahead", leap)
	case a.Do == "cut" && proc != nil:
		n.cut(proc.name, a.On)
		text = word(a.On, "is cut off from ", "is connected with ") + proc.name
	default:
		return fmt.Errorf("nothing to %q", a.Do)
	}
	w.log("Node %d %s.", a.Node, text)
	return nil
}

func word(on bool, yes, no string) string {
	if on {
		return yes
	}
	return no
}

// story plays a story.
func (p *playground) story(ctx context.Context, id string) error {
	for _, st := range stories {
		if st.ID != id {
			continue
		}
		w, err := st.world(p.pace)
		if err != nil {
			return err
		}
		p.show(ctx, w, func(ctx context.Context) {
			_, _ = st.perform(ctx, w) // which tells its error
		})
		return nil
	}
	return fmt.Errorf("no such story: %q", id)
}
