//go:build !cgo || !stoker_libwebp

package kernel

const hasLibwebp = false

func libwebpVersion() string { return "" }

func webp(dst, stream []byte, i WebPInfo) error { return webpTwin(dst, stream, i) }
