//go:build !cgo

package kernel

// CopyOut copies src to dst, of equal length.
func CopyOut(dst, src []byte) { copy(dst, src) }
