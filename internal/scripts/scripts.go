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
	"regexp"
	"slices"
	"strings"

	"github.com/redlock-go/redlock/pool"
)

//go:embed *.lua
var files embed.FS

// The IDs are constants, checked by a test against what SCRIPT LOAD says: computing a SHA-1 at run
// time fails where only FIPS 140 algorithms are allowed.
var (
	Acquire = script("acquire", "37621a82d85e34189aa31ebd5db7378d701de2dd", "acquire")
	Claim   = script("claim", "fa7e79346d83396a5745284f49b5432b0bb3a932", "claim", "acquire")
	Bid     = script("bid", "2cd95acea15e3999af082536bdc4353ec0b4a07c", "bid")
	Heal    = script("heal", "878e12dc329903c73ce15865ae2efebb4e3532ea", "heal", "acquire")
	Swap    = script("swap", "30dc6bbbd625a3fdfd389be041dc09201c94c0c5", "swap", "acquire")
	Raise   = script("raise", "17f7c459655c8a42ae62a963eca59dcb3b501670", "raise")
	Extend  = script("extend", "daf113a3db8dbea70a15a603ec328d85b32fc323", "extend")
	Valid   = script("valid", "a3e820af55e6aec3b0cf830031f93c7df444b1fa", "valid")
	Release = script("release", "2ce1d6f75207d4cbbe4bcd65456589faff02c7fb",
		"release", "hears", "handon")
	// Releases does for many locks what Release does for one, as far as nobody queues for them.
	Releases = script("releases", "0260b07dbd8dbfffca0659296eb84a294764802c", "releases")
	Stand    = script("stand", "3b84a0975e0496b4b0a4d78310376d61295889b9", "hears", "stand")
	Inspect  = script("inspect", "ca962219576ee176cbc60d6539ee4c2a0219eaf7", "inspect")
	Queue    = script("queue", "4e2f298a49e65c50c24533f0edb817c6ffd3c644", "queue")

	// What readers send instead, see seats.lua: for Acquire, Claim and Heal; Release; Extend and
	// Valid; Stand; Raise. Readers tells who they are.
	Share = script("share", "068af9a52a2709948f4590933b1950bc3d3e562e",
		"hears", "seats", "local function acquire()", "acquire", "end", "share")
	Unshare = script("unshare", "8ad503caad58c273ec83c593a6f1c160b54af201",
		"hears", "seats", "local function release()", "release", "handon", "end", "unshare")
	Seat = script("seat", "69ab16445c47b5da8cbac4ba05dad72719374f31",
		"hears", "seats", "seat")
	StandShare = script("standshare", "70a3ac4a66914679484f2180947d1b2b8ee54ea7",
		"hears", "seats", "local function stand()", "stand", "end", "standshare")
	Readers = script("readers", "293bf6e043ae5a06e5adfdec945b0cf7de83c7ba",
		"hears", "seats", "readers")
	Lift = script("lift", "43c2991e3f06ca2851eef7bd4e44f6c9e2e82251",
		"hears", "seats", "lift", "raise")
)

// script makes a script of the text of files, some of them as a function. The comment that a file
// begins with, up to the first empty line, is not sent.
func script(name, id string, parts ...string) *pool.Script {
	var source strings.Builder
	for _, part := range parts {
		if part == "end" || strings.HasPrefix(part, "local function ") {
			source.WriteString(part + "\n")
			continue
		}
		text, err := files.ReadFile(part + ".lua")
		if err != nil {
			panic(err) // the file is part of the package
		}
		_, code, _ := strings.Cut(string(text), "\n\n")
		source.WriteString(code)
	}
	return &pool.Script{Name: name, Source: source.String(), ID: id}
}

// called finds the commands in a script: those that call and pcall are given, of the server or by
// their local names.
var called = regexp.MustCompile(`\bp?call\('([A-Z]+)'`)

// Commands returns the commands that a script calls, sorted.
func Commands(s *pool.Script) (names []string) {
	for _, m := range called.FindAllStringSubmatch(s.Source, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}
