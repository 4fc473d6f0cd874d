package pages

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Front is what the beginning of packed bytes unpacks to, no more than limit of
// it; nothing where the codec has no way to tell.
func Front(codec int, src []byte, limit int) (out []byte) {
	defer func() {
		if recover() != nil { // as in unpack
			out = nil
		}
	}()
	var r io.Reader
	switch codec {
	case CodecNone:
		return src
	case codecSnappy:
		return snappyFront(src, limit)
	case codecGzip:
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil
		}
		r = z
	case codecBrotli:
		r = brotli.NewReader(bytes.NewReader(src))
	case codecZstd:
		z, err := zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil
		}
		defer z.Close()
		r = z
	default:
		return nil
	}
	out, _ = io.ReadAll(io.LimitReader(r, int64(limit))) // ends in an error, src being cut
	return out
}

// snappyFront unpacks the beginning of a block of snappy's (google/snappy,
// "format_description.txt"), which the library unpacks whole only.
//
//	length of all, varint; then
//	literal  (n-1)<<2 | 0, or 60..63 instead of n-1 and n-1 in 1 to 4 bytes; n bytes
//	copy     offset>>8<<5 | (n-4)<<2 | 1, offset&255
//	         (n-1)<<2 | 2, offset in 2 bytes; (n-1)<<2 | 3, offset in 4
func snappyFront(src []byte, limit int) (out []byte) {
	_, n := binary.Uvarint(src)
	if n <= 0 {
		return nil
	}
	for src = src[n:]; len(src) > 0 && len(out) < limit; {
		tag := int(src[0])
		size := [...]int{1, 2, 3, 5}[tag&3] // of the tag
		if tag&3 == 0 && tag>>2 >= 60 {
			size += tag>>2 - 59
		}
		if len(src) < size {
			break
		}
		var more int // little-endian, after the first byte
		for i := size - 1; i > 0; i-- {
			more = more<<8 | int(src[i])
		}
		src = src[size:]
		n := tag>>2 + 1
		switch {
		case tag&3 == 0:
			if size > 1 {
				n = more + 1
			}
			n = min(n, len(src))
			out, src = append(out, src[:n]...), src[n:]
			continue
		case tag&3 == 1:
			n, more = tag>>2&7+4, tag>>5<<8|more
		}
		if more < 1 || more > len(out) {
			break
		}
		for range n {
			out = append(out, out[len(out)-more])
		}
	}
	return out[:min(len(out), limit)]
}
