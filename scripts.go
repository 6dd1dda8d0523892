package redlock

import (
	"github.com/redlock-go/redlock/internal/scripts"
	"github.com/redlock-go/redlock/pool"
)

// Script is one of the Lua scripts that this version of the library runs on nodes.
type Script struct {
	// Name is the word by which the script is called in Events and in errors.
	Name string
	// ID is the lower-case hexadecimal SHA-1 of Source, for EVALSHA.
	ID string
	// Source is the Lua text, for EVAL and SCRIPT LOAD.
	Source string
	// Summary is what the script does to its first key, in one line. The first key is the lock's.
	Summary string
	// Commands are what the script calls, in capital letters. A user whose ACL allows EVALSHA and
	// EVAL needs a right for each. Some are only for what a program does not use; docs/rights.md
	// lists them by feature.
	Commands []string
}

// summaries are the scripts, in the order of a lock's life.
var summaries = []struct {
	*pool.Script
	summary string
}{
	{scripts.Acquire, "sets the key if nobody has it, with a token or a restart guard"},
	{scripts.Claim, "sets the key if it is free, or reserved for a member of the queue"},
	{scripts.Bid, "notes beside the key what the next in the queue will claim"},
	{scripts.Stand, "takes or keeps a place in the queue beside the key"},
	{scripts.Swap, "replaces the value of a key that was handed off"},
	{scripts.Heal, "sets the key of a holder again where a node has lost it"},
	{scripts.Raise, "lifts the fence counter to the token of the key's holder"},
	{scripts.Extend, "sets the expiry anew if the key holds the value"},
	{scripts.Valid, "asks whether the key holds the value"},
	{scripts.Release, "deletes the key if it holds the value, or hands it on in the queue"},
	{scripts.Releases, "deletes many keys that hold their values and that nobody queues for"},
	{scripts.Share, "lets a reader have the key, alone or beside others"},
	{scripts.StandShare, "takes or keeps a reader's place in the queue beside the key"},
	{scripts.Lift, "lifts the fence counter to a reader's token"},
	{scripts.Seat, "asks for a reader's seat beside the key, or sets its end anew"},
	{scripts.Unshare, "ends a reader's seat, and deletes the key or hands it on after the last"},
	{scripts.Inspect, "reads the key, its remaining life and its fence counter"},
	{scripts.Readers, "reads who shares the key"},
	{scripts.Queue, "reads who waits for the key"},
}

// Scripts returns every script that the library runs on a node. It is for operators who review the
// scripts, load them in advance, or derive an ACL from them. Nothing has to be loaded: a node that
// does not know a script is sent its source. The caller owns the result. Scripts change with the
// version of the library. A node may have those of several versions.
func Scripts() []Script {
	all := make([]Script, 0, len(summaries))
	for _, c := range summaries {
		all = append(all, Script{
			Name: c.Name, ID: c.ID, Source: c.Source, Summary: c.summary,
			Commands: scripts.Commands(c.Script),
		})
	}
	return all
}
