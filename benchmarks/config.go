package main

import "time"

// config says how much is measured.
type config struct {
	Nodes      []int
	Goroutines []int
	PairRounds int           // of pairs, ending, fencing and instant; see legs and slices
	PairSlice  time.Duration // one contender's turn there

	EndingGoroutines []int // on one node, with contexts that may end

	FencingCalls int // of each contender in one round

	RandomCallers []int // who come at random times
	RandomTrips   []time.Duration
	RandomRest    time.Duration // of each caller between two pairs, on average
	RandomRounds  int
	RandomSlice   time.Duration // one contender's turn

	ContentionRounds int
	Contention       time.Duration // one contender's turn
	Waiters          []int
	CrowdWaiters     []int // where only commands per acquisition are of interest
	HandOvers        int
	Resigns, Kills   int // of leaders, in each contender's election
	IdleWaiters      int
	IdleWatch        time.Duration // less than two thirds of the expiry

	Processes     []int         // how many share a lock
	ProcessRounds int           // of contenders on redlock's client; one of the others
	ProcessSlice  time.Duration // one contender's turn, at least
	ProcessTime   time.Duration // of it for each process, at least
	FewProcesses  int           // that have a turn right after each turn of more
	BoundSlice    time.Duration // the bare client's turn right after each of redlock's

	FarProcesses   int           // how many share a lock on nodes that are far away, too
	FarProcessTrip time.Duration // to these and back

	Rounds         int           // of frozen
	Slice          time.Duration // one contender's turn there
	FrozenPatience time.Duration // how long one Lock and Unlock may take
	FrozenWatch    time.Duration // of memory

	Latencies    []time.Duration
	LatencyOps   int
	HeldReal     []int
	HeldSim      []int
	HeldWatch    time.Duration
	HeldPatience time.Duration // how long holding and releasing them may take beside
	SampleEvery  time.Duration

	Who []string `json:"-"` // the contenders that take part; all if empty
}

var full = config{
	Nodes: []int{1, 3, 5, 7}, Goroutines: []int{1, 8, 64, 256},
	EndingGoroutines: []int{8},
	PairRounds:       18, PairSlice: 60 * time.Millisecond, FencingCalls: 100,
	RandomCallers: []int{2, 8, 16}, RandomTrips: []time.Duration{0, 500 * time.Microsecond},
	RandomRest: 2 * time.Millisecond, RandomRounds: 7, RandomSlice: 35 * time.Millisecond,
	ContentionRounds: 2, Contention: 5 * time.Second, Waiters: []int{16, 64},
	CrowdWaiters: []int{4, 16, 64, 256, 1000}, HandOvers: 20, Resigns: 60, Kills: 20,
	IdleWaiters: 1000, IdleWatch: 3500 * time.Millisecond,
	Processes: []int{1, 4, 16, 64, 256, 1000}, ProcessRounds: 4,
	ProcessSlice: 5 * time.Second, ProcessTime: 25 * time.Millisecond, FewProcesses: 64,
	BoundSlice:   500 * time.Millisecond,
	FarProcesses: 64, FarProcessTrip: time.Millisecond,
	Rounds: 3, Slice: time.Second, FrozenPatience: 12 * time.Second,
	FrozenWatch: 60 * time.Second, SampleEvery: 500 * time.Millisecond,
	Latencies: []time.Duration{time.Millisecond, 20 * time.Millisecond}, LatencyOps: 20,
	HeldReal: []int{1000, 10000}, HeldSim: []int{1000, 10000, 100000},
	HeldWatch: 12 * time.Second, HeldPatience: 2 * time.Minute,
}

// quick shows that everything works. Its figures are not worth quoting.
var quick = config{
	Nodes: []int{1, 5}, Goroutines: []int{1, 8, 64}, EndingGoroutines: []int{8},
	PairRounds: 2, PairSlice: 20 * time.Millisecond, FencingCalls: 20,
	RandomCallers: []int{2, 8}, RandomTrips: []time.Duration{0, 500 * time.Microsecond},
	RandomRest: 2 * time.Millisecond, RandomRounds: 2, RandomSlice: 30 * time.Millisecond,
	ContentionRounds: 1, Contention: 400 * time.Millisecond, Waiters: []int{16, 64},
	CrowdWaiters: []int{4, 1000}, HandOvers: 1, Resigns: 2, Kills: 1,
	IdleWaiters: 100, IdleWatch: 100 * time.Millisecond,
	Processes: []int{1, 64}, ProcessRounds: 1, ProcessSlice: 500 * time.Millisecond,
	FewProcesses: 1, BoundSlice: 200 * time.Millisecond,
	FarProcesses: 64, FarProcessTrip: time.Millisecond,
	Rounds: 1, Slice: 50 * time.Millisecond, FrozenPatience: 300 * time.Millisecond,
	FrozenWatch: 600 * time.Millisecond, SampleEvery: 100 * time.Millisecond,
	Latencies: []time.Duration{time.Millisecond, 20 * time.Millisecond}, LatencyOps: 1,
	HeldReal: []int{1000}, HeldSim: []int{1000, 10000}, HeldWatch: 300 * time.Millisecond,
	HeldPatience: 30 * time.Second,
}
