package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// lookBits is how many bits of a code are looked up at once; longer codes, about one in
// a hundred, are found bit by bit.
const lookBits = 9

// huffman is a table prepared for DECODE (figure F.15).
type huffman struct {
	mincode, maxcode [17]int32 // smallest and largest code of 1 to 16 bits; MAXCODE -1: there is none
	valptr           [17]int32 // where in HUFFVAL the value of the smallest is
	huffval          []byte
	look             [1 << lookBits]uint16 // length << 8 | value of the code that these bits begin with; 0: it is longer
}

// newHuffman numbers the codes as in figures C.1 and C.2: codes of one length count up,
// and the first of the next length is the following one, doubled. A code of ones only is
// not allowed (C.2), nor is a code with more bits than its length.
func newHuffman(s *huffmanSpec) (*huffman, bool) {
	h := &huffman{huffval: s.huffval}
	code, k := int32(0), int32(0)
	for i := 1; i <= 16; i++ {
		n := int32(s.bits[i-1])
		h.valptr[i], h.mincode[i], h.maxcode[i] = k, code, code+n-1
		if n == 0 {
			h.maxcode[i] = -1
		} else if code+n >= 1<<i {
			return nil, false
		}
		for ; n > 0; n-- {
			if i <= lookBits {
				first := code << (lookBits - i)
				for j := range int32(1) << (lookBits - i) {
					h.look[first+j] = uint16(i)<<8 | uint16(s.huffval[k])
				}
			}
			code++
			k++
		}
		code <<= 1
	}
	return h, true
}

// bits reads the bits of an entropy-coded segment: the bytes between two markers, with
// byte stuffing (B.1.1.5) removed.
type bits struct {
	data []byte // and some zeros, so that peek need not check
	pos  int    // next bit
	end  int    // bits in data
}

// beyondData is the number of zero bytes after the data. A code and its value, 31 bits
// together, may begin with the last bit, and peek reads 4 bytes.
const beyondData = 8

// peek is the next n bits, n <= 16.
func (b *bits) peek(n int) int32 {
	w := binary.BigEndian.Uint32(b.data[b.pos>>3:])
	return int32(w << (b.pos & 7) >> (32 - n))
}

// decode is DECODE (figure F.16): the value of the next code. ok is false if no code
// begins with these bits.
func (b *bits) decode(h *huffman) (value byte, ok bool) {
	code := b.peek(16)
	if e := h.look[code>>(16-lookBits)]; e != 0 {
		b.pos += int(e >> 8)
		return byte(e), true
	}
	for i := lookBits + 1; i <= 16; i++ {
		if c := code >> (16 - i); c <= h.maxcode[i] {
			b.pos += i
			return h.huffval[h.valptr[i]+c-h.mincode[i]], true
		}
	}
	return 0, false
}

// receive is RECEIVE (figure F.17): the next n bits, n <= 15.
func (b *bits) receive(n int) int32 {
	v := b.peek(n)
	b.pos += n
	return v
}

// extend is EXTEND (figure F.12): values whose first bit is 0 are negative.
func extend(v int32, t int) int32 {
	if v < 1<<t>>1 {
		v += -1<<t + 1
	}
	return v
}

// scan is the decoding of a scan.
type scan struct {
	f      *frame
	dc, ac [maxTables]*huffman
	bits   bits
	from   int // offset in the file of the segment that bits holds
	next   int // offset of the marker that ends it
	block  block
}

// decodeScan fills the samples of every component (figures E.8 to E.10).
func (f *frame) decodeScan() error {
	s := scan{f: f}
	if err := s.tables(); err != nil {
		return err
	}
	across, mcus := f.mcusAcross(), f.mcusAcross()*f.mcusDown()
	ri := f.ri
	if ri == 0 {
		ri = mcus
	}
	var pred [3]int32 // PRED of F.2.2.1, one a component
	s.next = f.scan
	var points *track
	if f.entries != nil {
		points = newTrack(f)
		defer points.end()
	}
	for m := range mcus {
		if m%ri == 0 {
			if err := s.restart(m / ri); err != nil {
				return err
			}
			pred = [3]int32{}
			if points != nil {
				points.segment(s.from)
			}
		}
		if points != nil {
			points.pass(m, s.bits.pos, &pred)
		}
		for i := range f.comp {
			c := &f.comp[i]
			x, y := m%across*c.h, m/across*c.v
			for b := range c.h * c.v { // A.2.3: row by row
				if err := s.decodeBlock(c, &pred[i]); err != nil {
					return err
				}
				at := (y+b/c.h)*c.side*c.stride + (x+b%c.h)*c.side
				c.transform(c.pix[at:], &s.block, f.quant[c.tq])
			}
		}
	}
	if f.strict {
		if err := s.ended(mcus); err != nil {
			return TrailingError(err.Error())
		}
	}
	return nil
}

// ended makes sure that nothing of the scan follows its last MCU except, as some
// encoders write it, the marker of an interval that never comes.
func (s *scan) ended(mcus int) error {
	if err := s.short("the end marker"); err != nil {
		return err
	}
	f := s.f
	if f.ri > 0 && mcus%f.ri == 0 && s.marker() == mRST0+byte((mcus/f.ri-1)&7) {
		s.next += 2
		if err := s.segment(); err != nil {
			return err
		}
		if err := s.short("the end marker"); err != nil {
			return err
		}
	}
	if m := s.marker(); m >= mRST0 && m < mRST0+8 {
		return FormatError(fmt.Sprintf("at byte %d of the JPEG: one restart marker too many", s.next))
	}
	return nil
}

// marker is the marker that ended the segment; 0: the file ended there.
func (s *scan) marker() byte {
	if s.next+1 >= len(s.f.file) {
		return 0
	}
	return s.f.file[s.next+1]
}

// short makes sure that at most slack bytes of the segment are left.
func (s *scan) short(before string) error {
	if left := (s.bits.end - s.bits.pos) / 8; left > slack {
		return s.damaged("%d bytes too many before %s", left, before)
	}
	return nil
}

// tables makes the Huffman tables that the scan uses.
func (s *scan) tables() error {
	f := s.f
	for i := range f.comp {
		c := &f.comp[i]
		for _, t := range []struct {
			class   string
			n       int
			spec    *huffmanSpec
			typical [2]huffmanSpec
			to      **huffman
		}{
			{"DC", c.td, f.dc[c.td], typicalDC, &s.dc[c.td]},
			{"AC", c.ta, f.ac[c.ta], typicalAC, &s.ac[c.ta]},
		} {
			if t.spec == nil && t.n < len(t.typical) {
				t.spec = &t.typical[t.n]
			}
			if t.spec == nil {
				return FormatError(fmt.Sprintf("%s Huffman table %d, which component %d uses, is missing", t.class, t.n, i))
			}
			h, ok := newHuffman(t.spec)
			if !ok {
				return FormatError(fmt.Sprintf("%s Huffman table %d has more codes than there are", t.class, t.n))
			}
			// F.1.2.1: a difference has 11 bits, or 15 if samples have 12.
			if big := slices.Max(append([]byte{0}, h.huffval...)); t.class == "DC" && big > 15 {
				return FormatError(fmt.Sprintf("DC Huffman table %d has differences of %d bits", t.n, big))
			}
			*t.to = h
		}
	}
	return nil
}

// slack is how many extra bytes an interval may have: libjpeg reads that far ahead, and
// so does not notice them.
const slack = 8

// restart begins interval n. All but the first come after RST0 to RST7, which count
// in turn (table B.1).
func (s *scan) restart(n int) error {
	if n > 0 {
		if err := s.short("a restart marker"); err != nil {
			return err
		}
		want := byte(mRST0 + (n-1)&7)
		if s.marker() != want {
			return FormatError(fmt.Sprintf("at byte %d of the JPEG: restart marker %#x is missing", s.next, 0xff00|int(want)))
		}
		s.next += 2
	}
	return s.segment()
}

// segment reads the bytes up to the next marker. In them, 0xff 0x00 is one byte 0xff,
// and 0xff 0xff a fill byte followed by any byte.
func (s *scan) segment() error {
	b := s.f.file
	s.from = s.next
	s.bits.data = s.bits.data[:0]
	for {
		i := bytes.IndexByte(b[s.next:], 0xff)
		if i < 0 {
			return s.damaged("the JPEG has no end marker")
		}
		s.bits.data = append(s.bits.data, b[s.next:s.next+i]...)
		s.next += i
		for s.next+2 < len(b) && b[s.next+1] == 0xff {
			s.next++
		}
		if s.next+1 >= len(b) || b[s.next+1] != 0 {
			break
		}
		s.bits.data = append(s.bits.data, 0xff)
		s.next += 2
	}
	s.bits.pos, s.bits.end = 0, 8*len(s.bits.data)
	s.bits.data = append(s.bits.data, make([]byte, beyondData)...)
	return nil
}

// decodeBlock decodes the 64 coefficients of a block (F.2.2).
func (s *scan) decodeBlock(c *component, pred *int32) error {
	s.block = block{}
	b := &s.bits
	// F.2.2.1: the DC coefficient is the difference to that of the block before.
	t, ok := b.decode(s.dc[c.td])
	if !ok {
		return s.none()
	}
	*pred += extend(b.receive(int(t)), int(t))
	s.block[0] = int16(*pred)
	// Figures F.13 and F.14: pairs of a run of zeros and the size of the value
	// after it.
	ac := s.ac[c.ta]
	for k := 1; k < blockSize; k++ {
		if b.pos > b.end {
			return s.early()
		}
		rs, ok := b.decode(ac)
		if !ok {
			return s.none()
		}
		r, ssss := int(rs>>4), int(rs&15)
		if ssss == 0 && r < 15 {
			break // end of block
		}
		if k += r; k >= blockSize {
			return s.damaged("more than %d coefficients in a block", blockSize)
		}
		if ssss > 0 {
			s.block[zigzag[k]] = int16(extend(b.receive(ssss), ssss))
		}
	}
	if b.pos > b.end {
		return s.early()
	}
	return nil
}

// none is the error if no code begins with the next bits, perhaps because they are
// the zeros after the data.
func (s *scan) none() error {
	if s.bits.pos+16 > s.bits.end {
		return s.early()
	}
	return s.damaged("bits that are not a Huffman code")
}

func (s *scan) early() error {
	s.bits.pos = s.bits.end
	return s.damaged("the data ends inside the picture")
}

// damaged is an error with the position of the next bit in the file.
func (s *scan) damaged(format string, a ...any) error {
	at, b := s.from, s.f.file
	for n := s.bits.pos / 8; n > 0 && at < s.next; n-- {
		for at+1 < s.next && b[at] == 0xff && b[at+1] == 0xff {
			at++
		}
		if b[at] == 0xff {
			at++
		}
		at++
	}
	return FormatError(fmt.Sprintf("at byte %d of the JPEG: %s", at, fmt.Sprintf(format, a...)))
}
