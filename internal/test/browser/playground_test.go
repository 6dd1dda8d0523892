package browser

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/chromedp/chromedp"
)

// sizes are those of a laptop, a tablet and a telephone.
var sizes = [][2]int64{{1280, 800}, {800, 1000}, {400, 800}}

var schemes = []string{"light", "dark"}

// endings are what the stories end in.
var endings = map[string]string{
	"node":            "0 updates lost",
	"majority":        "0 updates lost",
	"pause":           "2 updates lost",
	"pause-fenced":    "0 updates lost",
	"restart":         "1 update lost",
	"restart-guarded": "0 updates lost",
	"queue":           "0 updates lost",
	"readers":         "0 updates lost",
}

// Each story is played, begun with the keyboard, and seen in each size and scheme in turn.
func TestStories(t *testing.T) {
	b := open(t, serve(t, "-fast"))
	ids := eval[[]string](b, `[...document.querySelectorAll("#stories button")].map(b => b.id)`)
	if len(ids) != len(endings) {
		t.Fatalf("the stories are %q", ids)
	}
	for i, id := range ids {
		size, scheme := sizes[i%len(sizes)], schemes[i%len(schemes)]
		b.look(size[0], size[1], scheme)
		b.press("#" + id)
		b.await(fmt.Sprintf(`document.getElementById(%q).ariaCurrent === "true" &&
			document.getElementById("sentence").textContent !== ""`, id))
		sentence := eval[string](b, `document.getElementById("sentence").textContent`)
		ending := endings[id[len("story-"):]]
		if ok, _ := regexp.MatchString("[^0-9]"+ending+`\.$`, sentence); !ok || ending == "" {
			t.Errorf("%s ends in %q", id, sentence)
		}
		if eval[bool](b, `document.getElementById("sentence").className === "failed"`) {
			t.Errorf("%s has failed: %s", id, sentence)
		}
		b.keep(id, size[0], scheme)
	}
}

// What the visitor does changes what is shown.
func TestControls(t *testing.T) {
	b := open(t, serve(t))
	press := func(label string) { b.press(fmt.Sprintf(`[aria-label=%q]`, label)) }
	node := func(i int, state string) {
		b.await(fmt.Sprintf(
			`document.querySelectorAll(".node > h3 + p")[%d].textContent.startsWith(%q)`,
			i-1, state))
	}
	press("Stop Node 1")
	node(1, "stopped")
	press("Start Node 1")
	node(1, "up, for ")
	press("Restart empty: Node 2")
	node(2, "up, for ")
	press("Freeze Node 3")
	node(3, "frozen")
	press("Thaw Node 3")
	press("Slow Node 3")
	node(3, "slow")
	press("Clock +3 s: Node 4")
	node(4, "up, clock +3 s")
	press("Cut Ada off from node 5")
	b.await(`document.querySelector('[aria-label="Cut Ada off from node 5"]')` +
		`.ariaPressed === "true"`)
	press("Pause Ada")
	press("Resume Ada")
	press("Pause Ada")
	press("Kill Grace")
	b.await(`document.querySelectorAll(".state")[3].textContent === "killed"`)
	for _, choice := range [][2]string{{"slots", "^slot"},
		{"names", "^(alice|bob|carol|dave)$"}, {"readers", "^stock$"}} {
		b.run(chromedp.SetValue(chromedp.CSS("#what"), choice[0]))
		b.press("#free button")
		b.await(fmt.Sprintf(`new RegExp(%q).test(document.querySelector("#items td")?.textContent)`,
			choice[1]))
	}
	b.await(`document.getElementById("totals").textContent.includes(" reads")`)
}

// The page fits each size, and axe-core finds nothing in it.
func TestAccessibility(t *testing.T) {
	b := open(t, serve(t))
	b.await(`document.querySelectorAll("#items td").length > 0`)
	axe := os.Getenv("REDLOCK_AXE") // the file axe.min.js of axe-core
	if axe != "" {
		script, err := os.ReadFile(axe)
		if err != nil {
			t.Fatal(err)
		}
		eval[chromedp.Void](b, string(script)+"; null")
	}
	for _, size := range sizes {
		for _, scheme := range schemes {
			b.look(size[0], size[1], scheme)
			if wide := eval[int64](b, `document.documentElement.scrollWidth`); wide > size[0] {
				t.Errorf("%d pixels wide in a window of %d", wide, size[0])
			}
			if axe == "" {
				continue
			}
			for _, v := range eval[[]string](b, `axe.run().then(r => r.violations.map(v =>
				v.id + ": " + v.help + ": " +
				v.nodes.map(n => n.html + " " + n.failureSummary).join("\n")))`) {
				t.Errorf("%d pixels, %s: %s", size[0], scheme, v)
			}
			b.keep("free", size[0], scheme)
		}
	}
	if axe == "" {
		t.Skip("without axe-core, whose file REDLOCK_AXE names")
	}
}
