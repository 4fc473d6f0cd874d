package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// The encodings of Parquet (Apache Parquet, "Encodings"). Every decoder is told how
// many values to make and makes no more; no decoder reads beyond its input.

var (
	errValues = errors.New("its values end too early")
	errRun    = errors.New("a run of its values makes no sense")
)

// hybrid decodes n numbers of that many bits in runs, and says how many bytes
// that took.
//
//	run:  count << 1, then one value in whole bytes      (RLE)
//	      count/8 << 1 | 1, then count values, packed    (bit-packed)
func hybrid(dst []uint32, src []byte, width int) (int, error) {
	if width > 32 {
		return 0, fmt.Errorf("values of %d bits", width)
	}
	at, size := 0, (width+7)/8
	for i := 0; i < len(dst); {
		head, n := binary.Uvarint(src[at:])
		if n <= 0 {
			return 0, errValues
		}
		at += n
		count := head >> 1
		if count == 0 || count > 1<<31 {
			return 0, errRun
		}
		if head&1 == 0 {
			if len(src)-at < size {
				return 0, errValues
			}
			var v uint32
			for j := range size {
				v |= uint32(src[at+j]) << (8 * j)
			}
			at += size
			for range min(count, uint64(len(dst)-i)) {
				dst[i] = v
				i++
			}
			continue
		}
		// The last run may be of more values than there are, and some writers
		// leave the bytes of those out.
		take := int(min(count*8, uint64(len(dst)-i)))
		need := (take*width + 7) / 8
		if len(src)-at < need {
			return 0, errValues
		}
		unpackBits(dst[i:i+take], src[at:], width)
		i += take
		at += int(min(count*uint64(width), uint64(len(src)-at)))
	}
	return at, nil
}

// unpackBits reads numbers of that many bits, lowest bits first; src has enough.
func unpackBits(dst []uint32, src []byte, width int) {
	mask := uint64(1)<<width - 1
	var acc uint64
	have, at := 0, 0
	for i := range dst {
		for have < width {
			acc |= uint64(src[at]) << have
			at++
			have += 8
		}
		dst[i] = uint32(acc & mask)
		acc >>= width
		have -= width
	}
}

// delta decodes DELTA_BINARY_PACKED into all of dst and says how many bytes that
// took.
//
//	block size, miniblocks a block, count, first value
//	block: least delta, a width a miniblock, the miniblocks
func delta(dst []int64, src []byte) (int, error) {
	r := deltaReader{src: src}
	size, minis, count, value := r.uvarint(), r.uvarint(), r.uvarint(), r.varint()
	switch {
	case r.short:
		return 0, errValues
	case count != uint64(len(dst)):
		return 0, fmt.Errorf("%d values are %d", len(dst), count)
	case size == 0 || size > 1<<20 || minis == 0 || minis > 512 || size%minis != 0 || size/minis%8 != 0:
		return 0, fmt.Errorf("blocks of %d values in %d parts", size, minis)
	}
	if len(dst) == 0 {
		return r.at, nil
	}
	dst[0] = value
	per := int(size / minis)
	for i := 1; i < len(dst); {
		least := r.varint()
		widths := r.bytes(int(minis))
		if r.short {
			return 0, errValues
		}
		for _, w := range widths {
			if i >= len(dst) {
				break
			}
			if w > 64 {
				return 0, fmt.Errorf("values of %d bits", w)
			}
			take := min(per, len(dst)-i)
			body := r.most(per*int(w)/8, (take*int(w)+7)/8)
			if r.short {
				return 0, errValues
			}
			for j := range take {
				value += least + int64(bitsAt(body, j*int(w), int(w)))
				dst[i] = value
				i++
			}
		}
	}
	return r.at, nil
}

// bitsAt is width bits of p from bit at on.
func bitsAt(p []byte, at, width int) uint64 {
	var v uint64
	for have := 0; have < width; {
		shift := at & 7
		v |= uint64(p[at>>3]>>shift) << have
		have += 8 - shift
		at += 8 - shift
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v
}

type deltaReader struct {
	src   []byte
	at    int
	short bool
}

func (r *deltaReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.src[r.at:])
	if n <= 0 {
		r.short = true
		return 0
	}
	r.at += n
	return v
}

func (r *deltaReader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *deltaReader) bytes(n int) []byte { return r.most(n, n) }

// most is the next n bytes, or as many as there are but for least.
func (r *deltaReader) most(n, least int) []byte {
	n = min(n, len(r.src)-r.at)
	if n < least {
		r.short = true
		return nil
	}
	r.at += n
	return r.src[r.at-n : r.at]
}

// plainBools unpacks one bit a value.
func plainBools(dst, src []byte) error {
	if len(src) != (len(dst)+7)/8 {
		return lengths(len(src), (len(dst)+7)/8)
	}
	for i := range dst {
		dst[i] = src[i>>3] >> (i & 7) & 1
	}
	return nil
}

// runBools unpacks booleans stored as runs after their length.
func runBools(dst, src []byte) error {
	if len(src) < 4 || uint64(binary.LittleEndian.Uint32(src)) > uint64(len(src)-4) {
		return errValues
	}
	v := make([]uint32, len(dst))
	if _, err := hybrid(v, src[4:], 1); err != nil {
		return err
	}
	for i, b := range v {
		dst[i] = byte(b & 1)
	}
	return nil
}

// split puts together values of which all first bytes come first, then all
// second ones, and so on.
func split(dst, src []byte, width int) error {
	if len(src) != len(dst) {
		return lengths(len(src), len(dst))
	}
	n := len(dst) / width
	for b := range width {
		for i, v := range src[b*n : (b+1)*n] {
			dst[i*width+b] = v
		}
	}
	return nil
}

func lengths(have, want int) error {
	return fmt.Errorf("its values have %d bytes instead of %d", have, want)
}

// levelWidth is the bits of a level.
func levelWidth(highest int) int { return bits.Len(uint(highest)) }
