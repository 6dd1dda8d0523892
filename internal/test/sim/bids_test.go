package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Many who want one lock, or two, for a short time bid for it. It stays one lock, whatever befalls
// the bids and what is said of them, also if nodes take those for one lock for those for another.
// Nobody leaves a key behind. lesson L101
func TestSchedulesOfBids(t *testing.T) {
	r := campaign(t, 40, func(seed uint64) setup {
		s := newSetup(seed, inModel)
		s.Brief, s.Clients, s.Cycles = true, s.Clients+3, s.Cycles+3
		return s
	}, nil)
	r.saw(t, "bid taken up", "claim of a bid", "bid taken back", "cancelled", "abandoned",
		"node %d mixes up keys")
	r.sawStrike(t, strikes)
}

// A schedule of bids is printed as such, and read again.
func TestScheduleOfBidsAsText(t *testing.T) {
	s := newSetup(7, inModel)
	require.NotContains(t, s.String(), "brief")
	s.Brief = true
	again, err := parseSetup(s.String())
	require.NoError(t, err)
	require.Equal(t, s, again)
}
