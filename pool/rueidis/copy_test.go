package rueidis_test

import (
	"bytes"
	"flag"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write package valkeygo anew")

// Package valkeygo is a copy of this one with other names: valkey-go is a fork of rueidis. Go has
// no way to write the adapter once for both, short of an interface for each of their types.

const header = "// Code generated from package rueidis by TestCopy; DO NOT EDIT.\n\n"

// names are applied in order.
var names = strings.NewReplacer(
	"github.com/redis/rueidis", "github.com/valkey-io/valkey-go",
	"redlock/pool/rueidis", "redlock/pool/valkeygo",
	"redlockrueidis", "redlockvalkeygo",
	"package rueidis", "package valkeygo",
	"Package rueidis", "Package valkeygo",
	`"*rueidis.`, `"*valkey.`,
	`"rueidis: `, `"valkeygo: `,
	"rueidis.NewPool", "valkeygo.NewPool",
	"rueidis.Pool", "valkeygo.Pool",
	"RedisResult", "ValkeyResult",
	"NonRedisError", "NonValkeyError",
	"IsRedisNil", "IsValkeyNil",
	"Rueidis", "Valkey-go",
)

// clientName is the client's package where one of its names follows, and the client elsewhere.
var clientName = regexp.MustCompile(`\brueidis\b(\.[A-Z])?`)

func copyOf(source []byte) ([]byte, error) {
	text := clientName.ReplaceAllStringFunc(names.Replace(string(source)),
		func(found string) string {
			if rest := strings.TrimPrefix(found, "rueidis"); rest != "" {
				return "valkey" + rest
			}
			return "valkey-go"
		})
	return format.Source([]byte(header + text))
}

func TestCopy(t *testing.T) {
	const there = "../valkeygo/"
	if _, err := os.Stat(there); err != nil {
		t.Skip("package valkeygo is not there: this is not the repository")
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	copies := map[string]bool{}
	for _, source := range sources {
		if source == "copy_test.go" {
			continue
		}
		content, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		want, err := copyOf(content)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		file := there + strings.ReplaceAll(source, "rueidis", "valkeygo")
		copies[file] = true
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is no copy of %s: change that one, then run go test -run Copy . -update",
				file, source)
		}
	}
	files, err := filepath.Glob(there + "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !copies[file] {
			t.Errorf("%s is a copy of nothing", file)
		}
	}
}
