package kernel

import "fmt"

// WebP pictures come to the kernel as bare bitstreams: what a VP8 chunk (lossy)
// or a VP8L chunk (lossless) holds. Containers are taken apart by the decode
// stage. Lossy ones are decoded by our own C (vp8_decode.h), lossless ones by libwebp
// where it is built in (build tag stoker_libwebp). webpTwin, over golang.org/x/image,
// is the reference and gives the same bytes.

// WebPInfo is what a bitstream's first bytes say.
type WebPInfo struct {
	W, H     int
	Lossless bool
	Alpha    bool // Lossless only; a lossy picture has its alpha in a chunk of its own
}

// WebPHeader reads a bitstream's header. Its sizes have 14 bits: none is above
// MostPixels, and whoever has another limit checks it.
func WebPHeader(stream []byte) (i WebPInfo, err error) {
	switch {
	case len(stream) >= 5 && stream[0] == 0x2f:
		// A signature, then from the lowest bit: 14 bits width - 1, 14 bits
		// height - 1, whether alpha is used, 3 bits of version, which is 0.
		v := uint32(stream[1]) | uint32(stream[2])<<8 | uint32(stream[3])<<16 | uint32(stream[4])<<24
		if v>>29 != 0 {
			return i, UnsupportedError(fmt.Sprintf("WebP: not supported: lossless version %d", v>>29))
		}
		i = WebPInfo{W: int(v&0x3fff) + 1, H: int(v>>14&0x3fff) + 1, Lossless: true, Alpha: v>>28&1 != 0}
	case len(stream) >= 10 && stream[0]&1 == 0 && string(stream[3:6]) == "\x9d\x01\x2a":
		// A frame tag whose lowest bit says key frame, a start code, and two
		// sizes of 14 bits below 2 bits of scaling, which decoders ignore.
		i = WebPInfo{W: (int(stream[6]) | int(stream[7])<<8) & 0x3fff, H: (int(stream[8]) | int(stream[9])<<8) & 0x3fff}
	default:
		return i, FormatError("WebP: a bitstream that is neither VP8 nor VP8L")
	}
	if err := CheckLimit(i.W, i.H, MostPixels); err != nil {
		return i, FormatError("WebP: " + err.Error())
	}
	return i, nil
}

// WebPScratch is the most memory, in bytes, that decoding takes beside the pixels: a
// lossless picture is decoded to 4 bytes a pixel (twice that in Go, with the planes that
// its transforms leave), a lossy one in Go to planes.
func WebPScratch(i WebPInfo) int64 {
	n := int64(i.W) * int64(i.H)
	switch {
	case i.Lossless && !HasLibwebp:
		return 16*n + 1<<20
	case i.Lossless:
		return 4*n + 80*int64(i.W) + 2<<20 // tables of colours and codes
	case !HasLibwebp:
		return 2*n + 64*int64(i.W+i.H)
	}
	return 128 * int64(i.W)
}

// WebP decodes a bitstream to RGB, dropping alpha. dst is exactly W*H*3 bytes
// by the stream's own header. On an error dst holds anything.
func WebP(dst, stream []byte) error {
	i, err := WebPHeader(stream)
	if err != nil {
		return err
	}
	if len(dst) != i.W*i.H*3 {
		return fmt.Errorf("kernel: WebP: %d bytes for %d x %d pixels", len(dst), i.W, i.H)
	}
	if !i.Lossless {
		return lossy(dst, stream, i)
	}
	return webp(dst, stream, i)
}
