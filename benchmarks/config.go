package main

import "time"

// config says how much is measured.
type config struct {
	Nodes      []int
	Goroutines []int
	PairRounds int           // of pairs and fencing; see legs and slices
	PairSlice  time.Duration // one contender's turn there

	EndingGoroutines []int // on one node, with contexts that may end

	RandomCallers []int // who come at random times
	RandomTrips   []time.Duration
	RandomRest    time.Duration // of each caller between two pairs, on average
	RandomRounds  int
	RandomSlice   time.Duration // one contender's turn

	Processes      []int         // how many share a lock
	ProcessRounds  int           // of contenders on redlock's client; one of the others
	ProcessSlice   time.Duration // one contender's turn, at least
	ProcessTime    time.Duration // of it for each process, at least
	FarProcesses   int           // how many share a lock on nodes that are far away, too
	FarProcessTrip time.Duration // to these and back

	HandOvers      int
	HandOverTrips  []time.Duration // to the nodes and back
	Resigns, Kills int             // of leaders, in each contender's election
	IdleWaiters    int
	IdleWatch      time.Duration // less than two thirds of the expiry
	FrozenRounds   int
	FrozenSlice    time.Duration // one contender's turn
	FrozenPatience time.Duration // how long one Lock and Unlock may take
	Held           []int
	HeldWatch      time.Duration
	HeldPatience   time.Duration // how long holding and releasing them may take beside

	Who []string `json:"-"` // the contenders that take part; all if empty
}

var full = config{
	Nodes: []int{1, 5}, Goroutines: []int{1, 8, 64, 256}, EndingGoroutines: []int{8},
	PairRounds: 18, PairSlice: 60 * time.Millisecond,
	RandomCallers: []int{2, 8, 16}, RandomTrips: []time.Duration{0, 500 * time.Microsecond},
	RandomRest: 2 * time.Millisecond, RandomRounds: 7, RandomSlice: 35 * time.Millisecond,
	Processes: []int{1, 4, 16, 64, 256, 1000}, ProcessRounds: 4,
	ProcessSlice: 5 * time.Second, ProcessTime: 25 * time.Millisecond,
	FarProcesses: 64, FarProcessTrip: time.Millisecond,
	HandOvers: 20, HandOverTrips: []time.Duration{0, 500 * time.Microsecond, time.Millisecond,
		5 * time.Millisecond},
	Resigns: 60, Kills: 20, IdleWaiters: 1000, IdleWatch: 3500 * time.Millisecond,
	FrozenRounds: 3, FrozenSlice: time.Second, FrozenPatience: 12 * time.Second,
	Held: []int{1000, 10000}, HeldWatch: 12 * time.Second, HeldPatience: 2 * time.Minute,
}

// quick shows that everything works. Its figures are not worth quoting.
var quick = config{
	Nodes: []int{1, 5}, Goroutines: []int{1, 8, 64}, EndingGoroutines: []int{8},
	PairRounds: 2, PairSlice: 40 * time.Millisecond,
	RandomCallers: []int{2, 8}, RandomTrips: []time.Duration{0, 500 * time.Microsecond},
	RandomRest: 2 * time.Millisecond, RandomRounds: 2, RandomSlice: 30 * time.Millisecond,
	Processes: []int{1, 64}, ProcessRounds: 1, ProcessSlice: 500 * time.Millisecond,
	FarProcesses: 64, FarProcessTrip: time.Millisecond,
	HandOvers: 1, HandOverTrips: []time.Duration{0, 5 * time.Millisecond},
	Resigns: 2, Kills: 1, IdleWaiters: 1000, IdleWatch: 100 * time.Millisecond,
	FrozenRounds: 1, FrozenSlice: 50 * time.Millisecond, FrozenPatience: 300 * time.Millisecond,
	Held: []int{1000, 10000}, HeldWatch: 300 * time.Millisecond, HeldPatience: 30 * time.Second,
}
