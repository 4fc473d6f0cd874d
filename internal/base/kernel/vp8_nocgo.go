//go:build !cgo

package kernel

func lossy(dst, stream []byte, i WebPInfo) error { return webpTwin(dst, stream, i) }
