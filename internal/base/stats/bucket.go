package stats

import "math/bits"

// Buckets of durations: four per octave from 512 ns to 137 s, with one below and
// one above, so that a percentile has an error of at most 12 %.
//
//	0                 below 512 ns
//	1 + 4*o + q       (4+q) << (o+7) ns and above, below the next: octave o of 28, quarter q
//	113               137 s and above
const (
	firstOctave = 9
	octaves     = 28
	buckets     = 4*octaves + 2
)

// Bucket is the bucket of a duration in nanoseconds.
func Bucket(ns int64) int {
	if ns < 1<<firstOctave {
		return 0
	}
	o := bits.Len64(uint64(ns)) - 1 - firstOctave
	if o >= octaves {
		return buckets - 1
	}
	return 1 + 4*o + int(ns>>(o+firstOctave-2))&3
}

// floor is the lower bound of a bucket in ns.
func floor(i int) int64 {
	if i == 0 {
		return 0
	}
	o, q := (i-1)/4, int64((i-1)%4)
	return (4 + q) << (o + firstOctave - 2)
}

// percentile is the duration in seconds that a share q of the items stay below: the
// middle of its bucket. 0 without items.
func percentile(counts []int64, q float64) float64 {
	var all int64
	for _, n := range counts {
		all += n
	}
	if all <= 0 {
		return 0
	}
	left := int64(q * float64(all))
	for i, n := range counts {
		if left -= n; left < 0 {
			if i >= buckets-1 {
				return float64(floor(buckets-1)) / 1e9
			}
			return float64(floor(i)+floor(i+1)) / 2e9
		}
	}
	return float64(floor(buckets-1)) / 1e9
}
