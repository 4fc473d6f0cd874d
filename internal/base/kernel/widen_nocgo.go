//go:build !cgo

package kernel

func widen(dst, src []byte, from Int, bytes int) { widenGo(dst, src, from, bytes) }
