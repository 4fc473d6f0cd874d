package order

import "math"

// chi2 is the statistic's distance from its mean in standard deviations
// (Wilson, Hilferty 1931); 5.2 is one in ten million.
func chi2(counts []int, want float64) float64 {
	x := 0.0
	for _, c := range counts {
		d := float64(c) - want
		x += d * d / want
	}
	k := float64(len(counts) - 1)
	return (math.Cbrt(x/k) - (1 - 2/(9*k))) / math.Sqrt(2/(9*k))
}
