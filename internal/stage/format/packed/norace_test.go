//go:build !race

package packed

// raceEnabled: everything takes ten times as long then.
const raceEnabled = false
