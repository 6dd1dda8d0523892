package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestPoints(t *testing.T) {
	const src = `package p

import "fmt"

func f(n int) string {
	n += 2
	if n > 0 {
		fmt.Println("x" + "y")
		return ""
	}
	for {
		break
	}
	return fmt.Sprint(true)
}
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := pointsOf(dir, "p.go")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, m.what+": "+src[m.from:m.to]+" -> "+m.text)
	}
	want := []string{
		`remove: n += 2 -> `, `2 to 3: 2 -> 3`, `negate: n > 0 -> !(n > 0)`,
		`never: n > 0 -> (n > 0) && false`, `> to >=: > -> >=`, `0 to 1: 0 -> 1`,
		`remove: fmt.Println("x" + "y") -> `, `remove: break -> `, `true to false: true -> false`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The order of a seed is that of the same commit, and files beside the core have no mutants.
func TestDraw(t *testing.T) {
	*root = filepath.Join("..", "..", "..")
	first, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	second, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first, second) || len(first) < 1000 {
		t.Errorf("%d and %d mutants, which differ", len(first), len(second))
	}
}

func TestReason(t *testing.T) {
	for out, want := range map[string]string{
		"ok  \tp\n    --- FAIL: TestX (0.00s)\nFAIL": "--- FAIL: TestX (0.00s)",
		"panic: odd\n":  "panic: odd",
		"does not link": "failed",
	} {
		if got := reason(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}
