package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// order is how top sorts locks.
type order struct {
	key     byte
	what    string
	compare func(a, b *lockView) int
}

var orders = []order{
	{'n', "name", func(a, b *lockView) int { return strings.Compare(a.name, b.name) }},
	{'o', "holder", func(a, b *lockView) int { return strings.Compare(a.holder(), b.holder()) }},
	{'h', "held for", func(a, b *lockView) int { return early(a.since, b.since) }},
	{'v', "votes", func(a, b *lockView) int { return cmp.Compare(a.votes, b.votes) }},
	{'e', "expires", func(a, b *lockView) int { return early(a.ends, b.ends) }},
	{'t', "token", func(a, b *lockView) int { return cmp.Compare(b.token, a.token) }},
	{'w', "waiting", func(a, b *lockView) int { return cmp.Compare(b.waiting, a.waiting) }},
	{'l', "longest wait", func(a, b *lockView) int { return early(a.first, b.first) }},
}

// early puts an earlier time first, and no time last.
func early(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// board is what top shows.
type board struct {
	mu      sync.Mutex // guards nodes
	nodes   []nodeView
	changed chan struct{}

	prefix   string
	by       order
	reversed bool
	whole    bool                // all locks have been seen once
	grants   map[string]lockView // the latest known of each name
}

// top shows nodes and locks until a signal or the key q, or once if its output is no terminal.
func (t *tool) top(args []string) (int, error) {
	c := t.flags("top", "")
	check := func() error {
		if c.set.NArg() > 0 {
			return fmt.Errorf("takes no arguments, not %q", c.set.Args())
		}
		return nil
	}
	return c.untilSignal(args, check, func(ctx context.Context) (int, error) {
		out, _ := t.stdout.(*os.File)
		if out == nil || !isTerminal(out) {
			return c.list(ctx, false)
		}
		viewers, closeAll := c.viewers()
		defer closeAll()
		return 0, t.live(ctx, out, viewers, c.prefix)
	})
}

// live shows the board in a terminal.
func (t *tool) live(ctx context.Context, out *os.File, viewers []*viewer, prefix string) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	b := &board{changed: make(chan struct{}, 1), prefix: prefix, by: orders[0],
		grants: map[string]lockView{}}
	for i, v := range viewers {
		b.nodes = append(b.nodes, v.view)
		b.nodes[i].err = errors.New("has not answered yet")
		all.Go(func() { b.follow(ctx, i, v) })
	}
	keys := make(chan byte)
	stops := make(chan os.Signal, 1)
	restore := t.enter(out)
	defer func() { restore() }()
	defer catchStops(stops)()
	go read1(ctx, t.stdin, keys) // may be left behind in a Read
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		lines, width := size(out)
		t.print("\x1b[H" + fit(b.text(), lines-1, width) + "\x1b[J")
		if t.unwritten != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-b.changed:
		case <-stops:
			restore()
			stopSelf()
			restore = t.enter(out)
		case key := <-keys:
			if key == 'q' {
				return nil
			}
			b.press(key)
		}
	}
}

// enter lets the terminal show another screen, and send single keys. The function ends that.
func (t *tool) enter(out *os.File) (restore func()) {
	cooked := func() {}
	if in, _ := t.stdin.(*os.File); in != nil {
		cooked = singleKeys(in)
	}
	t.print("\x1b[?1049h\x1b[?25l")
	return func() {
		t.print("\x1b[?25h\x1b[?1049l")
		cooked()
	}
}

// read1 reads keys.
func read1(ctx context.Context, from io.Reader, keys chan<- byte) {
	var key [1]byte
	for {
		n, err := from.Read(key[:])
		if err != nil {
			return
		}
		if n == 1 {
			select {
			case keys <- key[0]:
			case <-ctx.Done():
				return
			}
		}
	}
}

// follow looks at one node again and again.
func (b *board) follow(ctx context.Context, node int, v *viewer) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		view := v.look(ctx, lookScans)
		b.mu.Lock()
		b.nodes[node] = view
		b.mu.Unlock()
		select {
		case b.changed <- struct{}{}:
		default:
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// press sorts by a key, or the other way round.
func (b *board) press(key byte) {
	if key == 'r' {
		b.reversed = !b.reversed
	}
	for _, o := range orders {
		if o.key == key {
			b.by, b.reversed = o, false
		}
	}
}

// text is the whole board.
func (b *board) text() string {
	b.mu.Lock()
	nodes := slices.Clone(b.nodes)
	b.mu.Unlock()
	locks := merge(nodes, b.prefix)
	b.date(locks, nodes)
	slices.SortStableFunc(locks, func(x, y lockView) int {
		if b.reversed {
			return b.by.compare(&y, &x)
		}
		return b.by.compare(&x, &y)
	})
	keys := "sorted by " + b.by.what + "; keys:"
	for _, o := range orders {
		keys += fmt.Sprintf(" %c %s,", o.key, o.what)
	}
	keys += " r reverse, q quit"
	more := ""
	if unfinished(nodes) >= 0 {
		more = ", still looking"
	}
	return fmt.Sprintf("%s  %d locks%s, %s\n\n%s%s", time.Now().Format("15:04:05"), len(locks),
		more, keys, nodesText(nodes), locksText(locks))
}

// date notes since when locks are held that have no token: one that was not there before is held
// since now, or for longer if not all that were there have been seen yet.
func (b *board) date(locks []lockView, nodes []nodeView) {
	latest := map[string]lockView{}
	now := time.Now()
	for i := range locks {
		l := &locks[i]
		before, known := b.grants[l.name]
		switch {
		case !l.since.IsZero():
		case known && before.value == l.value:
			l.since, l.longer = before.since, before.longer
		default:
			l.since, l.longer = now, !known && !b.whole
		}
		latest[l.name] = *l
	}
	b.grants = latest
	answered := 0
	for _, n := range nodes {
		if n.err == nil && n.complete {
			answered++
		}
	}
	b.whole = b.whole || answered > len(nodes)/2
}

// fit is so much of a text as a screen has room for. It takes the place of what was there.
func fit(text string, lines, width int) string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(all) > lines {
		all = append(all[:lines-1], fmt.Sprintf("… %d more", len(all)-lines+1))
	}
	for i, line := range all {
		if utf8.RuneCountInString(line) > width {
			all[i] = string([]rune(line)[:width-1]) + "…"
		}
	}
	return strings.Join(all, "\x1b[K\n") + "\x1b[K\n"
}
