//go:build !race

package tar_test

// raceEnabled: trying every bit would take too long then.
const raceEnabled = false
