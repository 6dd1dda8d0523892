package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long anything may take on a busy machine.
const patience = 5 * time.Minute

// program builds the playground.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "playground")
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "playground")
	cmd := exec.Command("go", "build", "-o", exe, "./examples/playground")
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return exe, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if exe, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(exe))
	}
	os.Exit(code)
}

// serve starts the playground, and returns where its page is. After the test it must end on Ctrl-C.
func serve(t *testing.T, args ...string) string {
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
			t.Errorf("the playground does not end well: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
	if url == "" {
		t.Fatalf("the playground does not say where it is: %q, %v", line, err)
	}
	return url
}

// browser is one tab.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string // on the console
}

// open starts a Chromium and opens a page. What that writes to the console is an error.
func open(t *testing.T, url string) *browser {
	exe, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no chromium")
		}
		t.Skip("there is no chromium")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(exe),
		chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(end)
	b := &browser{t: t}
	ctx, end = chromedp.NewContext(ctx, chromedp.WithListener(b.hear))
	t.Cleanup(end)
	b.ctx = ctx
	b.run(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS(".process")))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.errors {
			t.Errorf("on the console: %s", text)
		}
	})
	return b
}

func (b *browser) hear(event any) {
	var text string
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		text = fmt.Sprintf("%s: %v", e.Type, e.Args)
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
	case *log.EventEntryAdded:
		text = fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = append(b.errors, text)
}

func (b *browser) run(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns the value of an expression, and awaits it if it is a promise.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx,
		chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// press presses a button with the keyboard.
func (b *browser) press(selector string) {
	b.t.Helper()
	b.run(chromedp.Focus(chromedp.CSS(selector)), chromedp.KeyEvent(kb.Enter))
}

// await waits until an expression is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	b.run(chromedp.Poll[chromedp.Void](expression,
		chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience)))
}

// look shows the page in a window of this size, in a dark or a light scheme.
func (b *browser) look(width, height int64, scheme string) {
	b.t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}}}
	b.run(chromedp.EmulateViewport(width, height),
		func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
			return cdp.Call(ctx, t, emulation.SetEmulatedMedia, media)
		})
}

// keep keeps a screenshot as an artefact.
func (b *browser) keep(what string, width int64, scheme string) {
	b.t.Helper()
	file := fmt.Sprintf("%s-%d-%s.png", what, width, scheme)
	b.screenshot(filepath.Join(b.t.ArtifactDir(), file))
}

// screenshot writes a picture of what is seen.
func (b *browser) screenshot(file string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
