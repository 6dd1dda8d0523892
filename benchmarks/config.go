package main

import "time"

// config says how much is measured.
type config struct {
	Goroutines []int
	PairRounds int           // of pairs, ending and fencing: see race
	PairSlice  time.Duration // one contender's turn there

	RandomCallers []int         // who come at random times
	RandomRest    time.Duration // of each caller between two pairs, on average
	RandomRounds  int
	RandomSlice   time.Duration // one contender's turn

	Processes     []int         // how many share a lock
	ProcessRounds int           // of contenders on redlock's client; one of the others
	ProcessSlice  time.Duration // one contender's turn, at least
	ProcessTime   time.Duration // of it for each process, at least

	HandOvers      int
	HandOverTrips  []time.Duration // to the nodes and back
	Resigns, Kills int             // of leaders, in each contender's election
	IdleWatch      time.Duration   // less than two thirds of the expiry
	FrozenRounds   int
	FrozenSlice    time.Duration // one contender's turn
	FrozenPatience time.Duration // how long one Lock and Unlock may take
	HeldWatch      time.Duration
	HeldPatience   time.Duration // how long holding and releasing them may take beside

	Slots       []int         // of semaphores
	FamilySlice time.Duration // readers', sets' and slots' turn

	Who string // an expression for the contenders that take part
}

var full = config{
	Goroutines: []int{1, 8, 64, 256}, PairRounds: 18, PairSlice: 60 * time.Millisecond,
	RandomCallers: []int{2, 8, 16}, RandomRest: 2 * time.Millisecond, RandomRounds: 7,
	RandomSlice: 35 * time.Millisecond,
	Processes:   []int{1, 4, 16, 64, 256, 1000}, ProcessRounds: 4,
	ProcessSlice: 5 * time.Second, ProcessTime: 25 * time.Millisecond,
	HandOvers: 20, HandOverTrips: []time.Duration{0, 500 * time.Microsecond, time.Millisecond,
		5 * time.Millisecond},
	Resigns: 60, Kills: 20, IdleWatch: 3500 * time.Millisecond,
	FrozenRounds: 3, FrozenSlice: time.Second, FrozenPatience: 12 * time.Second,
	HeldWatch: 12 * time.Second, HeldPatience: 2 * time.Minute,
	Slots: []int{1, 5, 10, 50}, FamilySlice: 5 * time.Second,
}

// quick shows that everything works. Its figures are not worth quoting.
var quick = config{
	Goroutines: []int{1, 8, 64}, PairRounds: 2, PairSlice: 40 * time.Millisecond,
	RandomCallers: []int{2, 8}, RandomRest: 2 * time.Millisecond, RandomRounds: 2,
	RandomSlice: 30 * time.Millisecond,
	Processes:   []int{1, 64}, ProcessRounds: 1, ProcessSlice: 500 * time.Millisecond,
	HandOvers: 1, HandOverTrips: []time.Duration{0, 5 * time.Millisecond},
	Resigns: 2, Kills: 1, IdleWatch: 100 * time.Millisecond,
	FrozenRounds: 1, FrozenSlice: 50 * time.Millisecond, FrozenPatience: 300 * time.Millisecond,
	HeldWatch: 300 * time.Millisecond, HeldPatience: 30 * time.Second,
	Slots: []int{1, 5}, FamilySlice: 500 * time.Millisecond,
}
