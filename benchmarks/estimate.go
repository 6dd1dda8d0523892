package main

import "time"

// How long sections take, within a third or so: the time of the slices, and what was seen to come
// on top on two cores.

func (c config) estimate(sections []section) (sum time.Duration) {
	for _, s := range sections {
		sum += s.about(c)
	}
	return sum
}

// many is how many contenders that are ok take part on n nodes.
func (c config) many(n int, ok func(*contender) bool) time.Duration {
	return time.Duration(len(c.pick(func(o *contender) bool { return ok(o) && o.fits(n) })))
}

func (c config) pairTime() (sum time.Duration) {
	const beside = 15 * time.Millisecond // to warm up and to end
	for _, l := range c.legs() {
		rounds, slice := c.slices(l.goroutines)
		turn := slice + beside
		if l.goroutines > 64 {
			turn += 2 * beside
		}
		sum += c.many(l.nodes, everybody) * time.Duration(rounds+1) * turn
	}
	return sum
}

func (c config) endingTime() time.Duration {
	c.Nodes, c.Goroutines = []int{1}, c.EndingGoroutines
	return c.pairTime()
}

func (c config) randomTime() time.Duration {
	return (c.many(1, waiting) + c.many(5, waiting)) *
		time.Duration(len(c.RandomTrips)*len(c.RandomCallers)*(c.RandomRounds+1)) *
		(c.RandomSlice + 5*time.Millisecond)
}

func (c config) fencingTime() time.Duration {
	const call = 400 * time.Microsecond
	return 2 * time.Duration(c.PairRounds+1) *
		(2*c.PairSlice + time.Duration(c.FencingCalls)*call)
}

func (c config) instantTime() time.Duration {
	return time.Duration(len(c.Nodes)*c.PairRounds) * c.PairSlice
}

func (c config) contentionTime() time.Duration {
	return (c.many(5, waiting) + c.many(1, waiting)) *
		time.Duration(len(c.Waiters)*c.ContentionRounds) * (c.Contention + 200*time.Millisecond)
}

func (c config) crowdTime() time.Duration {
	return 2 * time.Duration(len(c.CrowdWaiters)) * (c.Contention + time.Second)
}

func (c config) processTime() (sum time.Duration) {
	for _, p := range c.Processes {
		kinds := []string{againKind, onceKind}
		if p == c.FarProcesses {
			kinds = append(kinds, againKind)
		}
		for _, who := range c.pick(func(who *contender) bool { return who.joins(p) }) {
			for _, kind := range kinds {
				round := c.shiftTime(p, kind)
				if c.grows(who, p) {
					round += c.shiftTime(c.FewProcesses, kind)
				}
				if who.ours() {
					round += c.BoundSlice + time.Second/4
				}
				sum += time.Duration(c.rounds(who, p)) * round
			}
		}
	}
	return sum
}

// shiftTime is how long one shift of p processes takes, with their start. Those that come once take
// about 10 ms each.
func (c config) shiftTime(p int, kind string) time.Duration {
	long := c.stretch(p)
	if kind == onceKind {
		long = max(c.ProcessSlice, time.Duration(p)*10*time.Millisecond)
	}
	return long + time.Second + time.Duration(p)*5*time.Millisecond
}

func (c config) handOverTime() time.Duration {
	return (c.many(5, waiting) + c.many(1, waiting)) * time.Duration(c.HandOvers+1) *
		250 * time.Millisecond
}

func (c config) electionTime() time.Duration {
	return 2 * (time.Duration(c.Resigns)*300*time.Millisecond +
		time.Duration(c.Kills)*(electionExpiry+300*time.Millisecond))
}

func (c config) idleTime() time.Duration {
	return (c.many(5, waiting) + c.many(1, waiting)) * (c.IdleWatch*3/2 + time.Second)
}

func (c config) frozenTime() time.Duration {
	return 2*c.many(5, waiting)*(2*time.Duration(c.Rounds)*c.Slice+c.FrozenPatience/2) +
		c.FrozenWatch
}

func (c config) latencyTime() (sum time.Duration) {
	for _, l := range c.Latencies {
		// Most contenders wait for the node that is far away.
		sum += c.many(5, everybody) * time.Duration(c.LatencyOps+2) * 2 * (l + 9*l)
	}
	return sum
}

func (c config) heldTime() time.Duration {
	holders := c.many(1, func(o *contender) bool { return o.hold != nil })
	return (holders*time.Duration(len(c.HeldReal)) + time.Duration(len(c.HeldSim))) *
		(c.HeldWatch + 2*time.Second)
}
