package main

import (
	"math"
	"slices"
)

// quantile returns the q-quantile (0 to 1) of the values by linear interpolation, or NaN if there
// are none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	at := q * float64(len(s)-1)
	lo := int(at)
	if lo+1 == len(s) {
		return s[lo]
	}
	return s[lo] + (at-float64(lo))*(s[lo+1]-s[lo])
}

func median(values []float64) float64 { return quantile(values, 0.5) }
