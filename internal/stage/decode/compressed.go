package decode

import (
	"errors"
	"io"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// The most that each compression expands its bytes. A file that is too short for
// its picture is rejected before memory is allocated.
const (
	deflateRatio = 1032 // 258 bytes from two bits
	lzwRatio     = 2731 // 4096 bytes from twelve bits
	runsRatio    = 64   // 128 bytes from two
)

// compressedError is the error for damaged compressed pixels.
func compressedError(k Kind, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, kernel.InflateCut) {
		return malformed(k, "the compressed pixels end before the last row")
	}
	return malformed(k, "the compressed pixels are damaged: %v", err)
}

// unpackBits fills dst from runs and literals (TIFF's PackBits, Apple's) and
// returns how much of it.
func unpackBits(dst, src []byte) (n int) {
	for n < len(dst) && len(src) > 1 {
		switch head := int(int8(src[0])); {
		case head >= 0: // head + 1 literals
			size := min(head+1, len(src)-1)
			n += copy(dst[n:], src[1:1+size])
			src = src[1+size:]
		case head > -128: // 1 - head times the next byte
			size := min(1-head, len(dst)-n)
			for i := range size {
				dst[n+i] = src[1]
			}
			n += size
			src = src[2:]
		default: // nothing
			src = src[1:]
		}
	}
	return n
}
