//go:build race

package facts

// anonymousMost is larger under the race detector, which keeps shadows of memory.
const anonymousMost = 40 << 20
