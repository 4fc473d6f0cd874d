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
//	count        4 bytes; the highest bit: these are all
//	steps        1 byte: how many there are
//	widths       5 bytes: bits of the number of a step; of what the step is longer than its
//	             shortest, in bits of the scan; of the change of each predictor, zigzag-coded
//	steps        8 bytes each: its MCUs, and its shortest length in bits of the scan
//	points       count x all widths, from the lowest bit of each byte on
//
// A photograph's point takes 5 to 6 bytes.
const recordHead = 8 + 4 + 1 + fields

// allBit is the bit of the count that says that the scan has no more points.
const allBit = 1 << 31

func setAll(record []byte) { record[11] |= allBit >> 24 }

func isAll(record []byte, print uint64) bool {
	return len(record) >= recordHead && binary.LittleEndian.Uint64(record) == print && record[11]&(allBit>>24) != 0
}

// fields is how many numbers a point has.
const fields = 5

// mostSteps is how many different steps a record can list.
const mostSteps = 255

// step is how far a point is from the one before.
type step struct {
	places uint64
	preds  uint64 // of 16 bits each
	kind   int    // its number in the list of steps
}

// changes are the changes of the predictors from a to b, modulo 2^16, as decoders add. Zigzag:
// small ones of either sign are small numbers.
func changes(a, b *kernel.Point) (preds uint64) {
	for c := range b.Pred {
		d := b.Pred[c] - a.Pred[c]
		preds |= uint64(uint16(d<<1)^uint16(d>>15)) << (16 * c)
	}
	return preds
}

// kindOfStep is an entry of the list of steps: MCUs, and the shortest length.
type kindOfStep struct{ mcus, least uint64 }

func kindOf(kinds []kindOfStep, mcus uint64) int {
	for i := range kinds {
		if kinds[i].mcus == mcus {
			return i
		}
	}
	return -1
}

// appendRecord appends the record of points, which are in the order of their scan. ok is
// false if they have too many different steps.
func appendRecord(dst []byte, print uint64, points []kernel.Point) (record []byte, ok bool) {
	var few [256]step // of usual photographs
	var listed [8]kindOfStep
	steps, kinds := few[:0], listed[:0]
	preds := uint64(0) // one bit for each that is set in any of them
	last := &kernel.Point{}
	for i := range points {
		p := &points[i]
		s := step{places: p.Place() - last.Place(), preds: changes(last, p)}
		mcus := uint64(p.MCU - last.MCU)
		last = p
		if s.kind = kindOf(kinds, mcus); s.kind < 0 {
			if s.kind = len(kinds); s.kind == mostSteps {
				return dst, false
			}
			kinds = append(kinds, kindOfStep{mcus, s.places})
		}
		kinds[s.kind].least = min(kinds[s.kind].least, s.places)
		preds |= s.preds
		steps = append(steps, s)
	}
	longest := uint64(0)
	for i := range steps {
		longest = max(longest, steps[i].places-kinds[steps[i].kind].least)
	}
	width := [fields]int{bits.Len(uint(max(len(kinds), 1) - 1)), bits.Len64(longest)}
	for c := range 3 {
		width[2+c] = bits.Len16(uint16(preds >> (16 * c)))
	}
	dst = binary.LittleEndian.AppendUint64(dst, print)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(points)))
	dst = append(dst, byte(len(kinds)))
	for _, n := range width {
		dst = append(dst, byte(n))
	}
	for _, k := range kinds {
		if k.least > 1<<32-1 {
			return dst, false
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(k.mcus))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(k.least))
	}
	return packed(dst, steps, kinds, width), true
}

// packed appends the fields of all steps.
func packed(dst []byte, steps []step, kinds []kindOfStep, width [fields]int) []byte {
	dst = slices.Grow(dst, len(steps)*12+8) // 91 bits at most
	word, have := uint64(0), 0              // bits that are not in dst yet
	put := func(v uint64, n int) {
		word |= v << have
		if have += n; have >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, word)
			have -= 64
			word = v >> (n - have)
		}
	}
	const low = 1<<16 - 1
	for i := range steps {
		s := &steps[i]
		put(uint64(s.kind)|(s.places-kinds[s.kind].least)<<width[0], width[0]+width[1])
		put(s.preds&low|s.preds>>16&low<<width[2]|s.preds>>32<<(width[2]+width[3]), width[2]+width[3]+width[4])
	}
	for ; have > 0; have -= 8 {
		dst = append(dst, byte(word))
		word >>= 8
	}
	return dst
}

// parseRecord appends the points of a record to dst. b may be anything: ok is false if it
// is not a record of points in their order, or of another fingerprint.
func parseRecord(dst []kernel.Point, b []byte, print uint64) (points []kernel.Point, ok bool) {
	if len(b) < recordHead || binary.LittleEndian.Uint64(b) != print {
		return dst, false
	}
	count, listed, w := int(binary.LittleEndian.Uint32(b[8:])&^allBit), int(b[12]), b[13:recordHead]
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
