package kernel

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// LZW decompresses the LZW of GIF and TIFF. It holds 24 KiB of tables and allocates
// nothing. One goroutine at a time may use it; the zero value is ready.
type LZW struct {
	state lzwState
	twin  *lzwTwin
}

// Decode fills dst from src and returns the number of bytes. Codes begin with bits+1
// bits; bits is 1 to 8. In GIF the first bit is the lowest; in TIFF it is the highest,
// codes become wider one code earlier, and the first code clears the table. If dst is
// not full, the error is io.ErrUnexpectedEOF if src ended, and nil if the data said so.
func (t *LZW) Decode(dst, src []byte, bits int, tiff bool) (n int, err error) {
	if bits < 1 || bits > 8 {
		return 0, JobError("the LZW code size is not 1 to 8 bits")
	}
	if !lzwInC || os.Getenv(kernelEnv) == names[0] {
		if t.twin == nil {
			t.twin = new(lzwTwin)
		}
		return t.twin.decode(dst, src, bits, tiff)
	}
	n, code := t.decode(dst, src, bits, tiff)
	return n, [...]error{nil, io.ErrUnexpectedEOF, errLZWCode, errLZWStart}[code]
}

// Unpredict undoes TIFF's horizontal differencing of 8-bit samples: block is rows of n bytes,
// whose pixels have back bytes.
func Unpredict(block []byte, n, back int) {
	if n < 1 || back < 1 || back > n {
		return
	}
	if rows := len(block) / n; rows > 0 {
		unpredict(block, n, rows, back)
	}
}

func unpredictGo(block []byte, n, rows, back int) {
	for y := range rows {
		row := block[y*n : (y+1)*n]
		for i := back; i < n; i++ {
			row[i] += row[i-back]
		}
	}
}

var (
	errLZWCode  = errors.New("LZW data uses a code before it is defined")
	errLZWStart = errors.New("LZW data does not begin with a clear code")
)

// lzwTwin keeps LZW's strings as ranges of the output. Every string except the single
// bytes is the string decoded before it plus one byte, which is the byte decoded next:
// so it is in the output, contiguous.
type lzwTwin struct {
	start [4096]int32 // no output has 2 GiB
	size  [4096]uint16
}

// decode fills dst from src and returns how much of it. Codes begin with
// bits+1 bits. GIF has the first bit lowest; TIFF has it highest, widens
// its codes one earlier, and begins with the code that clears the table.
func (t *lzwTwin) decode(dst, src []byte, bits int, tiff bool) (n int, err error) {
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
			for i, v := range dst[from : from+size] { // most strings are too short for a call
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
