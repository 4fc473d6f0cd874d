//go:build !race

package facts

// anonymousMost is how much anonymous memory a process may take for a store, in bytes.
const anonymousMost = 8 << 20
