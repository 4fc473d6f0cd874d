//go:build !cgo

package kernel

func webp(dst, stream []byte, i WebPInfo) error { return webpTwin(dst, stream, i) }
