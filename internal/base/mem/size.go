package mem

import "fmt"

var units = []struct {
	name  string
	bytes int64
	digit int
}{
	{"TiB", 1 << 40, 2},
	{"GiB", 1 << 30, 2},
	{"MiB", 1 << 20, 1},
	{"KiB", 1 << 10, 1},
}

// Size is n bytes for people, in the largest unit in which they are at least 1: "17
// B", "1.5 KiB", "12.0 MiB", "2.25 GiB".
func Size(n int64) string {
	for _, u := range units {
		if n >= u.bytes {
			return fmt.Sprintf("%.*f %s", u.digit, float64(n)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// AtLeast is n bytes as an amount for a setting: a whole number of a unit, never
// less than n.
func AtLeast(n int64) string {
	for _, u := range units {
		if n >= u.bytes {
			return fmt.Sprintf("%d %s", (n-1)/u.bytes+1, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
