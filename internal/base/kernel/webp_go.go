//go:build !cgo || !stoker_libwebp

package kernel

// HasLibwebp says that libwebp is built in: build tag stoker_libwebp. Where it is not,
// golang.org/x/image decodes.
const HasLibwebp = false

func libwebpVersion() string { return "" }

func webp(dst, stream []byte, i WebPInfo) error { return webpTwin(dst, stream, i) }
