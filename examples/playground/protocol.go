package main

import "time"

// The processes are children of the playground. They call the methods of Desk with net/rpc, over
// their standard input and output.

// Job is what a process is to do once, under a lock.
type Job struct {
	Kind           string   // one of the kinds below
	Names          []string // of the locks
	Reads          bool     // under a lock that is shared
	Fencing, Guard bool
	Expiry         time.Duration
	Work           time.Duration // from reading to writing; the process looks at its context
	Write          time.Duration // until the write has arrived; it does not look any more
	Rest           time.Duration // after that, without the lock
}

// The kinds of jobs.
const (
	mutex = "mutex" // Do on the first of the names
	slots = "slots" // DoAny: one of the names is enough
	names = "names" // DoAll
)

// Report is what has become of a process.
type Report struct {
	Round int    // which job
	State string // a new state, or ""
	Lock  Lease  // that was granted, extended or lost, or none
	Ended bool   // that lock has ended
	Node  int    // that has failed a command, from 1, or 0
	Text  string // an error
}

// Lease is a lock as its holder sees it.
type Lease struct {
	Name  string    `json:"name"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	Token uint64    `json:"token"`
}

// The states of a process.
const (
	idle    = "idle"
	waiting = "waiting"
	holding = "holding"
	writing = "writing"
	lost    = "lost"   // its context has ended while it held the lock
	paused  = "paused" // by SIGSTOP
	dead    = "dead"   // by SIGKILL
)

// Use is one use of an item of the resource.
type Use struct {
	Item  string
	Token uint64
	Reads bool // it does not want to write
	Value int
}

// Result is how a job has ended.
type Result struct {
	Round int
	Done  bool   // it has read, or its write was accepted
	Error string // of the lock, or of the resource
}
