//go:build !race

package parquet_test

// raceEnabled: trying every bit would take too long then.
const raceEnabled = false
