// Package scripts has the Lua scripts that redlock runs on a node. Each file says what its script
// is given and returns.
//
// The first key is the lock's. The second, where there is one, is its fence counter. Either names
// share that counter, and it lives for ever; or it is the lock's own, in the same hash slot, and
// expires. The queue scripts are given other keys. Values are compared whole. Every script is safe
// to run twice.
package scripts

import (
	"embed"
	"strings"

	"github.com/redlock-go/redlock/pool"
)

//go:embed *.lua
var files embed.FS

// The IDs are constants, checked by a test against what SCRIPT LOAD says: computing a SHA-1 at run
// time fails where only FIPS 140 algorithms are allowed.
var (
	Acquire = script("acquire", "e4fa6b01ad587c98bf69156c08220784fbba1769", "acquire")
	Claim   = script("claim", "67006ccecee9c6c14524472d80b672f41d7b5658", "claim", "acquire")
	Heal    = script("heal", "63f69f644cccc69e2fcc74b10b8833606e5f0176", "heal", "acquire")
	Swap    = script("swap", "bb07d1d2918db6af544f0be14b978c2cccefdae6", "swap", "acquire")
	Raise   = script("raise", "be164273a8bac5e4d7ff20166be54e448084e2c4", "raise")
	Extend  = script("extend", "daf113a3db8dbea70a15a603ec328d85b32fc323", "extend")
	Valid   = script("valid", "a3e820af55e6aec3b0cf830031f93c7df444b1fa", "valid")
	Release = script("release", "42b3fe3ed2245ffc8d1f7b7eb325de3fe0759f72", "release")
	Stand   = script("stand", "bf7dbae928140801a398d364b36f706cd7b1f241", "stand")
	Inspect = script("inspect", "ca962219576ee176cbc60d6539ee4c2a0219eaf7", "inspect")
)

// All are all scripts.
var All = []*pool.Script{Acquire, Claim, Heal, Swap, Raise, Extend, Valid, Release, Stand, Inspect}

// script makes a script of the text of files. The comment that a file begins with, up to the first
// empty line, is not sent.
func script(name, id string, parts ...string) *pool.Script {
	var source strings.Builder
	for _, part := range parts {
		text, err := files.ReadFile(part + ".lua")
		if err != nil {
			panic(err) // the file is part of the package
		}
		_, code, _ := strings.Cut(string(text), "\n\n")
		source.WriteString(code)
	}
	return &pool.Script{Name: name, Source: source.String(), ID: id}
}
