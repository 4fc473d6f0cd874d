// Package transform compiles the transforms of one field into a program, and
// runs it: randomness by key, geometry resolved for the sample at hand, decode
// and pixels fused into one kernel job. Which steps fuse is decided here and
// nowhere else.
package transform
