package decode

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// The most that each compression stretches its bytes. A file that is shorter is
// refused before memory is taken for it.
const (
	deflateRatio = 1032 // 258 bytes by two bits
	lzwRatio     = 2731 // 4096 bytes by twelve bits
	runsRatio    = 64   // 128 bytes by two
)

// packedError says what is wrong with compressed pixels.
func packedError(k Kind, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, kernel.InflateCut) {
		return malformed(k, "the compressed pixels end before the last row")
	}
	return malformed(k, "the compressed pixels are damaged: %v", err)
}

var (
	errLZWCode  = errors.New("an LZW code that is not defined yet")
	errLZWStart = errors.New("LZW data that does not begin by clearing its table")
)

// lzwTable holds LZW's strings as places in the output. Every string but the
// single bytes is the one decoded before it and one byte more, and that byte
// is what was decoded next: so it stands in the output, contiguous.
type lzwTable struct {
	start [4096]int32 // no output has 2 GiB
	size  [4096]uint16
}

// decode fills dst from src and returns how much of it. Codes begin with
// bits+1 bits. GIF has the first bit lowest; TIFF has it highest, widens
// its codes one earlier, and begins with the code that clears the table.
func (t *lzwTable) decode(dst, src []byte, bits int, tiff bool) (n int, err error) {
	stop, end := 1<<bits, 1<<bits+1 // the codes that clear the table and end the data
	width, next := bits+1, end+1
	early := 0
	if tiff {
		early = 1
	}
	var acc uint64
	held := 0
	begun := false
	last, lastSize := -1, 0 // the string before this one; -1: none since the table was cleared
	for n < len(dst) {
		if held < width {
			switch {
			case len(src) >= 4 && tiff:
				acc = acc<<32 | uint64(binary.BigEndian.Uint32(src))
				src, held = src[4:], held+32
			case len(src) >= 4:
				acc |= uint64(binary.LittleEndian.Uint32(src)) << held
				src, held = src[4:], held+32
			default:
				for ; held < width && len(src) > 0; held += 8 {
					if tiff {
						acc = acc<<8 | uint64(src[0])
					} else {
						acc |= uint64(src[0]) << held
					}
					src = src[1:]
				}
				if held < width {
					return n, io.ErrUnexpectedEOF
				}
			}
		}
		var code int
		if held -= width; tiff {
			code = int(acc>>held) & (1<<width - 1)
		} else {
			code = int(acc) & (1<<width - 1)
			acc >>= width
		}
		from, size := n, 1
		switch {
		case tiff && !begun && code != stop:
			return 0, errLZWStart
		case code < stop:
			dst[n] = byte(code)
		case code == stop:
			begun = true
			width, next, last = bits+1, end+1, -1
			continue
		case code == end:
			return n, nil
		case code < next:
			size = min(int(t.size[code]), len(dst)-n)
			from := int(t.start[code])
			if size > 12 {
				copy(dst[n:n+size], dst[from:])
				break
			}
			for i, v := range dst[from : from+size] { // most strings: too short for a call
				dst[n+i] = v
			}
		case code == next && last >= 0: // the string before and its own first byte
			size = min(lastSize+1, len(dst)-n)
			copy(dst[n:n+size], dst[last:n])
			if size > lastSize {
				dst[n+lastSize] = dst[last]
			}
		default:
			return n, errLZWCode
		}
		n += size
		if last >= 0 && next < len(t.start) {
			t.start[next], t.size[next] = int32(last), uint16(lastSize+1)
			if next++; next >= 1<<width-early && width < 12 {
				width++
			}
		}
		last, lastSize = from, size
	}
	return n, nil
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
