//go:build race

package tar_test

const raceEnabled = true
