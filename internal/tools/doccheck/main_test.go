package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDoccheckNamesWhatHasNoComment(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p/p.go", `package p

const C = 1

// Said for both.
const (
	D = 1
	E = 2
)

var V, w int

type T struct {
	F int
	G int // said
	h int
}

// I is said.
type I interface {
	M()
	// N is said.
	N()
}

// A group's comment says nothing about a type.
type (
	U int
	// W is said.
	W[K any] int
)

func F() {}
func g() {}

// Said is said.
func Said() {}

func (*T) M()        {}
func (*T) Error() string  { return "" }
func (T) Unwrap() error   { return nil }
func (T) String() string  { return "" }
func String() string      { return "" }
func (W[K]) Generic()     {}
func (t t) Hidden()       {}

type t struct{ X int }
`)
	write(t, dir, "p/p_test.go", "package p\n\nfunc InTest() {}\n")
	write(t, dir, "q/a.go", "package q\n")
	write(t, dir, "q/b.go", "// Package q is said once.\npackage q\n")
	write(t, dir, "cmd/main.go", "package main\n\nfunc Exported() {}\n")
	write(t, dir, "p/internal/i/i.go", `// Package i is internal.
package i

type T struct{ F int }

// I is said.
type I interface{ M() }

func (T) Other() {}
`)
	write(t, dir, "testdata/x.go", "package x\n")
	write(t, dir, ".hidden/x.go", "package x\n")

	missing, err := check(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range missing {
		_, what, _ := strings.Cut(m, ".go:")
		_, what, _ = strings.Cut(what, ": ")
		got = append(got, strings.TrimSuffix(what, " has no doc comment"))
	}
	want := []string{"package main", "C", "V", "T", "T.F", "I.M", "U", "F", "T.M", "String",
		"W.Generic", "package p", "T", "T.Other"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestDoccheckReportsWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p.go", "package\n")
	if _, err := check(dir); err == nil {
		t.Error("no error for a file that is not Go")
	}
	if _, err := check(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
