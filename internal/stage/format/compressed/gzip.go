package compressed

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
)

// spacing is the unpacked bytes between two points: half of it is unpacked in vain for
// every isolated small sample, and every point has a window.
const spacing = 512 << 10

// memberBytes is what a point is worth making at the beginning of a member,
// where no window is needed. The members of BGZF have up to 64 KiB.
const memberBytes = 32 << 10

// Where a gzip stream can be resumed.
const (
	atMember  = iota // the head of a member
	atBlock          // the head of a deflate block
	inBlock          // a symbol of a block
	atTrailer        // the CRC after the last block
)

// gunzip unpacks gzip files (RFC 1952): members, one after another.
type gunzip struct {
	inflate
	state int
	check bool // CRC and length of members; false: the beginning was not seen
	// Of the member, since its head.
	crc     uint32
	size    uint32
	counted int // out up to here is in crc and size
}

// history is where the first piece begins in out.
const history = windowBytes

func newGunzip(f feed) *gunzip {
	g := &gunzip{check: true}
	g.feed = f
	g.out = make([]byte, history+spacing+(64<<10)+slackBytes)
	g.low, g.start, g.w, g.counted = history, history, history, history
	g.marks = make([]bool, windowBytes)
	return g
}

// next is a piece of about spacing bytes.
func (g *gunzip) next() (piece, error) {
	g.slide()
	bit := g.bit()
	lead := bit&7 | int64(g.state)<<3
	if g.last {
		lead |= 1 << 5
	}
	note := g.codes(nil)
	if err := g.run(history+spacing, true); err != nil {
		return piece{}, err
	}
	if g.w == g.start {
		return piece{}, io.EOF
	}
	// Two bytes more: symbols looks at the code after its last one.
	return piece{
		data: g.out[g.start:g.w], in: bit / 8, lead: lead, end: min((g.bit()+7)/8+2, g.obj.Size),
		note: note, window: g.out[:history], used: g.marks,
	}, nil
}

// slide makes the end of the last piece the window of the next.
func (g *gunzip) slide() {
	by := g.w - history
	copy(g.out, g.out[by:g.w])
	g.low, g.start, g.w, g.counted = max(g.low-by, 0), history, history, history
	clear(g.marks)
}

// run unpacks until w is limit or more. cut: it ends where a member does, too, if
// there is enough for a piece.
func (g *gunzip) run(limit int, cut bool) error {
	for g.w < limit {
		var err error
		ended := false
		switch g.state {
		case atMember:
			if cut && g.w-g.start >= memberBytes {
				return nil
			}
			more, err := g.member()
			if err != nil || !more {
				return err
			}
			g.state, g.low = atBlock, g.w
			g.crc, g.size, g.counted = 0, 0, g.w
			continue
		case atBlock:
			room := limit
			if cut { // a stored block is not divided
				room = limit + 64<<10
			}
			if ended, err = g.header(room); err == nil && !ended {
				g.state = inBlock
				continue
			}
		case inBlock:
			ended, err = g.symbols(limit)
		case atTrailer:
			if err = g.trailer(); err == nil {
				g.state, g.last = atMember, false
			}
		}
		if err != nil {
			return err
		}
		if ended {
			g.state = atBlock
			if g.last {
				g.state = atTrailer
			}
		}
	}
	g.count()
	return nil
}

func (g *gunzip) count() {
	if g.check {
		g.crc = crc32.Update(g.crc, crc32.IEEETable, g.out[g.counted:g.w])
	}
	g.size += uint32(g.w - g.counted)
	g.counted = g.w
}

// trailer holds a member against its CRC and its length.
func (g *gunzip) trailer() error {
	g.align()
	g.count()
	t, err := g.peek(8)
	if err != nil {
		return err
	}
	if len(t) < 8 {
		return g.cut()
	}
	if g.check {
		if crc := binary.LittleEndian.Uint32(t); crc != g.crc {
			return g.bad("the bytes of a gzip member have the CRC %08x, but its end says %08x", g.crc, crc)
		}
		if size := binary.LittleEndian.Uint32(t[4:]); size != g.size {
			return g.bad("a gzip member has %d bytes, but its end says %d (modulo 2^32)", g.size, size)
		}
	}
	g.p += 8
	return nil
}

// Flags of a member.
const (
	hasHeadCRC = 1 << 1
	hasExtra   = 1 << 2
	hasName    = 1 << 3
	hasComment = 1 << 4
	reserved   = 0xe0
)

// member reads the head of a member; false means that there is no further member and
// the file ends as it should. Zeros may follow the last one, as tapes leave them.
func (g *gunzip) member() (bool, error) {
	g.align()
	h, err := g.peek(10)
	if err != nil {
		return false, err
	}
	first := g.pos() == 0
	switch {
	case len(h) == 0 && !first:
		return false, nil
	case len(h) > 0 && h[0] == 0 && !first:
		return false, g.zeros()
	case !bytes.HasPrefix([]byte{0x1f, 0x8b}, h[:min(len(h), 2)]):
		return false, g.bad("the end of the gzip stream is followed by bytes that are not a gzip member")
	case len(h) < 10:
		return false, g.cut()
	case h[2] != 8 || h[3]&reserved != 0:
		return false, g.bad("the head of a gzip member is damaged")
	}
	flags := h[3]
	sum := crc32.ChecksumIEEE(h)
	g.p += 10
	if flags&hasExtra != 0 {
		n, err := g.skip(2, &sum)
		if err != nil {
			return false, err
		}
		if _, err = g.skip(int(n[0])|int(n[1])<<8, &sum); err != nil {
			return false, err
		}
	}
	for _, flag := range []byte{hasName, hasComment} {
		for flags&flag != 0 {
			c, err := g.skip(1, &sum)
			if err != nil {
				return false, err
			}
			if c[0] == 0 {
				break
			}
		}
	}
	if flags&hasHeadCRC != 0 {
		want := uint16(sum)
		have, err := g.skip(2, &sum)
		if err != nil {
			return false, err
		}
		if binary.LittleEndian.Uint16(have) != want {
			return false, g.bad("the head of a gzip member does not have the CRC that it should")
		}
	}
	return true, nil
}

// skip steps over n bytes of a head, which count in its CRC.
func (g *gunzip) skip(n int, sum *uint32) ([]byte, error) {
	p, err := g.peek(n)
	if err != nil {
		return nil, err
	}
	if len(p) < n {
		return nil, g.cut()
	}
	*sum = crc32.Update(*sum, crc32.IEEETable, p)
	g.p += n
	return p, nil
}

func (g *gunzip) zeros() error {
	for {
		p, err := g.peek(readBytes)
		if err != nil || len(p) == 0 {
			return err
		}
		for i, c := range p {
			if c != 0 {
				return g.damaged(g.pos()+int64(i), "the end of the gzip stream is followed by bytes that are not a gzip member")
			}
		}
		g.p += len(p)
	}
}

// codes appends what is needed to resume inBlock: the lengths of the codes, two to a
// byte.
func (g *gunzip) codes(dst []byte) []byte {
	if g.state != inBlock {
		return dst
	}
	if g.nlit == 0 {
		return append(dst, 0)
	}
	dst = append(dst, byte(g.nlit-256), byte(g.ndist))
	lens := g.lens[:g.nlit+g.ndist]
	for i := 0; i < len(lens); i += 2 {
		c := lens[i]
		if i+1 < len(lens) {
			c |= lens[i+1] << 4
		}
		dst = append(dst, c)
	}
	return dst
}

// setCodes is the inverse; rest is the remainder of note.
func (z *inflate) setCodes(note []byte) (rest []byte, ok bool) {
	if len(note) < 1 {
		return nil, false
	}
	if z.nlit, z.ndist = 0, 0; note[0] == 0 {
		return note[1:], z.tables() == nil
	}
	if len(note) < 2 {
		return nil, false
	}
	nlit, ndist := int(note[0])+256, int(note[1])
	n := (nlit + ndist + 1) / 2
	if nlit > maxLits || ndist > maxDists || len(note) < 2+n {
		return nil, false
	}
	for i, c := range note[2 : 2+n] {
		z.lens[2*i], z.lens[2*i+1] = c&15, c>>4
	}
	z.nlit, z.ndist = nlit, ndist
	return note[2+n:], z.tables() == nil
}

// gunzipAt unpacks n bytes from a point on. window is the 32 KiB before it, nil
// where nothing reaches back.
func gunzipAt(g *gunzip, name string, raw []byte, pt point, n int, window func(note []byte, dst []byte) error) ([]byte, error) {
	g.feed = feedOf(name, raw, pt.in)
	g.b, g.n, g.check, g.marks = 0, 0, false, nil
	g.out = make([]byte, history+n+slackBytes)
	g.start, g.w, g.counted = history, history, history
	g.state, g.last = int(pt.lead>>3&3), pt.lead>>5&1 != 0
	g.low = history
	if err := g.seek(uint(pt.lead & 7)); err != nil {
		return nil, err
	}
	note, ok := pt.note, true
	if g.state == inBlock {
		note, ok = g.setCodes(note)
	}
	if ok && (g.state == atBlock || g.state == inBlock) {
		g.low = 0
		if err := window(note, g.out[:history]); err != nil {
			return nil, err
		}
	}
	if !ok {
		return nil, g.damaged(pt.in, "the index of the compressed stream is damaged")
	}
	if err := g.run(history+n, false); err != nil {
		return nil, err
	}
	if g.w != history+n {
		return nil, g.damaged(pt.in, "the compressed stream is not the one that was indexed")
	}
	out := g.out[history:g.w]
	g.out, g.feed = nil, feed{}
	return out, nil
}
