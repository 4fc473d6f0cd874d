//go:build !race

package compressed

// raceEnabled: everything takes ten times as long then.
const raceEnabled = false
