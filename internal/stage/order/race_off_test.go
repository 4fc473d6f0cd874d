//go:build !race

package order_test

const slow = 1
