package entries

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// A record is the points of one JPEG. Each is stored as what it is further than the one
// before, the first as further than the beginning of the scan. Steps in MCUs are few
// different ones, so they are listed; other numbers are fields of as many bits as the largest
// of that picture takes:
//
//	fingerprint  8 bytes, little-endian as all that follows
//	count        4 bytes
//	steps        1 byte: how many there are
//	widths       5 bytes: bits of the number of a step; of what the step is longer than its
//	             shortest, in bits of the scan; of the change of each predictor, zigzag-coded
//	steps        8 bytes each: its MCUs, and its shortest length in bits of the scan
//	points       count x all widths, from the lowest bit of each byte on
//
// A photograph's point takes 5 to 6 bytes.
const recordHead = 8 + 4 + 1 + fields

// fields is how many numbers a point has.
const fields = 5

// mostSteps is how many different steps a record can list.
const mostSteps = 255

// step is how far a point is from the one before.
type step struct {
	mcus, places uint64
	preds        [3]uint64
}

func (s *step) between(a, b *kernel.Point) {
	s.mcus, s.places = uint64(b.MCU-a.MCU), place(b)-place(a)
	for c := range b.Pred {
		d := b.Pred[c] - a.Pred[c] // modulo 2^16, as decoders add
		s.preds[c] = uint64(uint16(d<<1) ^ uint16(d>>15))
	}
}

func place(p *kernel.Point) uint64 { return uint64(p.Byte)<<3 | uint64(p.Bit) }

// kindOfStep is an entry of the list of steps: MCUs, and the shortest length.
type kindOfStep struct{ mcus, least uint64 }

func kindOf(kinds []kindOfStep, mcus uint64) int {
	return slices.IndexFunc(kinds, func(k kindOfStep) bool { return k.mcus == mcus })
}

// appendRecord appends the record of points, which are in the order of their scan. ok is
// false if they have too many different steps.
func appendRecord(dst []byte, print uint64, points []kernel.Point) (record []byte, ok bool) {
	var room [8]kindOfStep
	kinds, most := room[:0], [fields]uint64{}
	var s step
	for i := range points {
		s.between(before(points, i), &points[i])
		if k := kindOf(kinds, s.mcus); k < 0 {
			kinds = append(kinds, kindOfStep{s.mcus, s.places})
		} else {
			kinds[k].least = min(kinds[k].least, s.places)
		}
		for c, v := range s.preds {
			most[2+c] = max(most[2+c], v)
		}
	}
	if len(kinds) > mostSteps {
		return dst, false
	}
	most[0] = uint64(max(len(kinds), 1) - 1)
	for i := range points {
		s.between(before(points, i), &points[i])
		most[1] = max(most[1], s.places-kinds[kindOf(kinds, s.mcus)].least)
	}
	dst = binary.LittleEndian.AppendUint64(dst, print)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(points)))
	dst = append(dst, byte(len(kinds)))
	var width [fields]int
	for k := range most {
		width[k] = bits.Len64(most[k])
		dst = append(dst, byte(width[k]))
	}
	for _, k := range kinds {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(k.mcus))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(min(k.least, 1<<32-1)))
	}
	var word uint64
	n := 0 // bits in word, fewer than 8
	for i := range points {
		s.between(before(points, i), &points[i])
		k := kindOf(kinds, s.mcus)
		for f, v := range [fields]uint64{uint64(k), s.places - kinds[k].least, s.preds[0], s.preds[1], s.preds[2]} {
			word |= v << n
			for n += width[f]; n >= 8; n -= 8 {
				dst, word = append(dst, byte(word)), word>>8
			}
		}
	}
	if n > 0 {
		dst = append(dst, byte(word))
	}
	return dst, !slices.ContainsFunc(kinds, func(k kindOfStep) bool { return k.least > 1<<32-1 })
}

func before(points []kernel.Point, i int) *kernel.Point {
	if i == 0 {
		return &kernel.Point{}
	}
	return &points[i-1]
}

// parseRecord appends the points of a record to dst. b may be anything: ok is false if it
// is not a record of points in their order, or of another fingerprint.
func parseRecord(dst []kernel.Point, b []byte, print uint64) (points []kernel.Point, ok bool) {
	if len(b) < recordHead || binary.LittleEndian.Uint64(b) != print {
		return dst, false
	}
	count, listed, w := int(binary.LittleEndian.Uint32(b[8:])), int(b[12]), b[13:recordHead]
	b = b[recordHead:]
	if len(b) < 8*listed || count > 0 && listed == 0 {
		return dst, false
	}
	var kinds [mostSteps + 1]kindOfStep
	for i := range listed {
		kinds[i] = kindOfStep{uint64(binary.LittleEndian.Uint32(b[8*i:])), uint64(binary.LittleEndian.Uint32(b[8*i+4:]))}
	}
	b = b[8*listed:]
	all := 0
	for _, n := range w {
		all += int(n)
	}
	if w[0] > 8 || w[1] > 35 || max(w[2], w[3], w[4]) > 16 || count > 8*len(b)+1 || (count*all+7)/8 != len(b) {
		return dst, false
	}
	dst = slices.Grow(dst, count)
	points = dst[len(dst) : len(dst)+count]
	var mask, shift [fields]uint64
	for k, n := range w {
		mask[k], shift[k] = 1<<n-1, uint64(n)
	}
	var p kernel.Point
	var mcu, place uint64
	for i := range points {
		at := i * all
		v := word(b, at>>3) >> (at & 7)
		k := &kinds[v&mask[0]&mostSteps]
		v >>= shift[0] & 63
		q := k.least + v&mask[1]
		v >>= shift[1] & 63
		if all > 57 { // the rest may not be in this word
			at += int(w[0]) + int(w[1])
			v = word(b, at>>3) >> (at & 7)
		}
		mcu, place = mcu+k.mcus, place+q
		if k.mcus == 0 || q == 0 || mcu > 1<<32-1 || place > 1<<35-1 {
			return dst, false
		}
		p.MCU, p.Byte, p.Bit = uint32(mcu), uint32(place>>3), uint16(place&7)
		for c := range p.Pred {
			d := uint16(v & mask[2+c])
			p.Pred[c] += int16(d>>1) ^ -int16(d&1)
			v >>= shift[2+c] & 63
		}
		points[i] = p
	}
	return dst[:len(dst)+count], true
}

// word is the 8 bytes of b at i, as if zeros followed b.
func word(b []byte, i int) uint64 {
	if i+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[i:])
	}
	var p [8]byte
	copy(p[:], b[min(i, len(b)):])
	return binary.LittleEndian.Uint64(p[:])
}
