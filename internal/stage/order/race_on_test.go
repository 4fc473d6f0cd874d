//go:build race

package order_test

// slow is how many times less the proofs do under the race detector, which
// makes arithmetic some ten times slower and finds nothing in it.
const slow = 20
