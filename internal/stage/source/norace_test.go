//go:build !race

package source_test

// raceEnabled: sync.Pool drops things at random then, so that the heap cannot be
// counted.
const raceEnabled = false
