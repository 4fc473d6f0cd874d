package compressed

import (
	"encoding/binary"
	"io"

	"github.com/pierrec/lz4/v4"

	"github.com/stoker-data/stoker/internal/base/errs"
)

const (
	lz4Magic       = 0x184d2204
	lz4LegacyMagic = 0x184c2102
	skipMagic      = 0x184d2a50 // and the 15 after it: bytes that are not data, in LZ4 and in zstd

	lz4Window = 64 << 10
	lz4Block  = 4 << 20 // the largest block there is
	// lz4Alone is what a point is worth making where no window is needed.
	lz4Alone = 64 << 10
)

// unlz4 unpacks LZ4 frames (LZ4 Frame Format 1.6.4), one after another.
//
//	magic 4, flags 1, block size 1, [length 8], [dictionary 4], check 1
//	blocks: length 4 (first bit: it is stored), bytes, [XXH32 4]; a length of 0 ends them
//	[XXH32 of all unpacked bytes 4]
type unlz4 struct {
	feed
	out    []byte // out[low:start] came before, out[start:w] is the piece
	low    int
	start  int
	w      int
	used   []bool // of out[start-lz4Window:start]
	check  bool
	inside bool // of a frame
	frame  lz4Frame
}

type lz4Frame struct {
	alone, blockSum, sum bool
	most                 int // bytes of a block
	length               int64
	hasLength            bool
	begin                int64 // of the frame in the file
	n                    int64
	hash                 xxh32
}

func newUnlz4(f feed) *unlz4 {
	return &unlz4{feed: f, check: true, used: make([]bool, lz4Window)}
}

// room makes out long enough for a piece of at least n bytes and what a block has
// beyond that.
func (u *unlz4) room(n int) {
	if need := lz4Window + n + u.frame.most; len(u.out) < need {
		grown := make([]byte, need)
		copy(grown, u.out[:min(u.w, len(u.out))])
		u.out = grown
	}
}

func (u *unlz4) next() (piece, error) {
	u.slide()
	in, lead := u.pos(), u.lead()
	if err := u.run(spacing, true); err != nil {
		return piece{}, err
	}
	if u.w == u.start {
		return piece{}, io.EOF
	}
	return piece{
		data: u.out[u.start:u.w], in: in, lead: lead, end: u.pos(),
		window: u.out[:u.start], used: u.used,
	}, nil
}

func (u *unlz4) slide() {
	if u.out == nil {
		u.low, u.start, u.w = lz4Window, lz4Window, lz4Window
		return
	}
	by := u.w - lz4Window
	copy(u.out, u.out[by:u.w])
	u.low, u.start, u.w = max(u.low-by, 0), lz4Window, lz4Window
	clear(u.used)
}

// lead is how the blocks from here on are read.
func (u *unlz4) lead() int64 {
	if !u.inside {
		return 0
	}
	l := int64(1)
	for i, flag := range []bool{u.frame.alone, u.frame.blockSum, u.frame.sum} {
		if flag {
			l |= 2 << i
		}
	}
	return l | int64(u.frame.most)<<8
}

// run unpacks n bytes or more; fewer where the file ends.
func (u *unlz4) run(n int, cut bool) error {
	for u.w-u.start < n {
		if cut && u.w-u.start >= lz4Alone && (!u.inside || u.frame.alone) {
			return nil
		}
		if !u.inside {
			more, err := u.head()
			if err != nil || !more {
				return err
			}
			continue
		}
		if err := u.block(n); err != nil {
			return err
		}
	}
	return nil
}

// head reads the head of a frame; false: the file ends.
func (u *unlz4) head() (bool, error) {
	at := u.pos()
	h, err := u.peek(7 + 8 + 4)
	if err != nil || len(h) == 0 && at > 0 {
		return false, err
	}
	if len(h) < 7 {
		return false, u.cut()
	}
	switch magic := binary.LittleEndian.Uint32(h); {
	case magic == lz4LegacyMagic:
		return false, unsupported(u.obj.Name, at, "LZ4's legacy frames").Try("write the file with lz4 without -l, or unpack it with unlz4")
	case magic&^15 == skipMagic:
		return true, u.skip(int64(binary.LittleEndian.Uint32(h[4:])) + 8)
	case magic != lz4Magic:
		return false, u.damaged(at, "an LZ4 frame should begin here")
	}
	flags, size := h[4], h[5]
	if flags>>6 != 1 || flags&2 != 0 || size&0x8f != 0 || size>>4 < 4 {
		return false, u.damaged(at, "the head of an LZ4 frame is damaged")
	}
	if flags&1 != 0 {
		return false, unsupported(u.obj.Name, at, "LZ4 frames with a dictionary").Try("write the file without one, or unpack it with unlz4 -D")
	}
	f := lz4Frame{
		alone: flags&0x20 != 0, blockSum: flags&0x10 != 0, sum: flags&4 != 0, hasLength: flags&8 != 0,
		most: 1 << (8 + 2*(size>>4)), begin: at, hash: newXXH32(),
	}
	n := 6
	if f.hasLength {
		if len(h) < 15 {
			return false, u.cut()
		}
		f.length, n = int64(binary.LittleEndian.Uint64(h[6:])), 14
	}
	if byte(sum32(h[4:n])>>8) != h[n] {
		return false, u.damaged(at, "the head of an LZ4 frame does not have the checksum that it should")
	}
	u.p += n + 1
	u.frame, u.inside, u.low = f, true, u.w
	return true, nil
}

// skip steps over n bytes that are not data.
func (f *feed) skip(n int64) error {
	for n > 0 {
		p, err := f.peek(int(min(n, readBytes)))
		if err != nil {
			return err
		}
		if len(p) == 0 {
			return f.cut()
		}
		f.p += len(p)
		n -= int64(len(p))
	}
	return nil
}

// number is the next 4 bytes.
func (f *feed) number() (uint32, error) {
	p, err := f.peek(4)
	if err != nil {
		return 0, err
	}
	if len(p) < 4 {
		return 0, f.cut()
	}
	f.p += 4
	return binary.LittleEndian.Uint32(p), nil
}

// block unpacks the next block of a frame, or ends it.
func (u *unlz4) block(n int) error {
	at := u.pos()
	head, err := u.number()
	if err != nil {
		return err
	}
	size, stored := int(head&^(1<<31)), head>>31 != 0
	if head == 0 {
		return u.ended()
	}
	if size > u.frame.most {
		return u.damaged(at, "an LZ4 block of %d bytes in a frame whose blocks have up to %d", size, u.frame.most)
	}
	p, err := u.peek(size)
	if err != nil {
		return err
	}
	if len(p) < size {
		return u.cut()
	}
	u.room(n)
	dst := u.out[u.w : u.w+u.frame.most]
	var got int
	if stored {
		got = copy(dst, p)
	} else {
		var window []byte
		if !u.frame.alone {
			window = u.out[max(u.low, u.w-lz4Window):u.w]
		}
		if got, err = lz4.UncompressBlockWithDict(p, dst, window); err != nil {
			return u.damaged(at, "cannot decompress an LZ4 block").Because(err)
		}
		if !u.frame.alone {
			u.mark(p)
		}
	}
	if u.frame.blockSum {
		sum := sum32(p)
		u.p += size
		if want, err := u.number(); err != nil {
			return err
		} else if want != sum {
			return u.damaged(at, "an LZ4 block has the checksum %08x, but %08x is stored after it", sum, want)
		}
	} else {
		u.p += size
	}
	if u.check && u.frame.sum {
		u.frame.hash.write(dst[:got])
	}
	u.w += got
	u.frame.n += int64(got)
	return nil
}

// ended checks what follows the last block of a frame.
func (u *unlz4) ended() error {
	f := &u.frame
	u.inside = false
	if f.sum {
		at := u.pos()
		want, err := u.number()
		if err != nil {
			return err
		}
		if sum := f.hash.sum(); u.check && sum != want {
			return u.damaged(at, "the bytes of an LZ4 frame have the checksum %08x, but its end says %08x", sum, want)
		}
	}
	if u.check && f.hasLength && f.length != f.n {
		return u.damaged(f.begin, "an LZ4 frame has %d bytes, but its head says %d", f.n, f.length)
	}
	return nil
}

// mark walks a block (LZ4 Block Format) that goes to w, and takes note of what it
// copies from before the piece.
func (u *unlz4) mark(p []byte) {
	w := u.w
	for len(p) > 0 && w-u.start < lz4Window {
		token := p[0]
		lits, rest := lz4Length(int(token>>4), p[1:])
		if w += lits; len(rest) < lits+2 {
			return // the last literals have no match
		}
		distance := int(binary.LittleEndian.Uint16(rest[lits:]))
		var n int
		n, p = lz4Length(int(token&15), rest[lits+2:])
		n += 4
		for i := w - distance; i < min(w-distance+n, u.start); i++ {
			if k := i - (u.start - lz4Window); k >= 0 {
				u.used[k] = true
			}
		}
		w += n
	}
}

func lz4Length(n int, p []byte) (int, []byte) {
	if n < 15 {
		return n, p
	}
	for i, c := range p {
		if n += int(c); c != 255 {
			return n, p[i+1:]
		}
	}
	return n, nil
}

func unsupported(name string, at int64, what string) *errs.Error {
	return errs.New(errs.Unsupported, "%s are not read", what).At(errs.Where{Shard: name, Offset: errs.Known(at)})
}

// unlz4At unpacks n bytes from a point on.
func unlz4At(name string, raw []byte, pt point, n int, window func(note []byte, dst []byte) error) ([]byte, error) {
	u := &unlz4{feed: feedOf(name, raw, pt.in), low: lz4Window, start: lz4Window, w: lz4Window, used: make([]bool, lz4Window)}
	if pt.lead&1 != 0 {
		u.inside = true
		u.frame = lz4Frame{
			alone: pt.lead&2 != 0, blockSum: pt.lead&4 != 0, sum: pt.lead&8 != 0,
			most: int(pt.lead >> 8), hash: newXXH32(),
		}
		if u.frame.most < lz4Window || u.frame.most > lz4Block {
			return nil, u.damaged(pt.in, "the index of the compressed stream is damaged")
		}
	}
	u.out = make([]byte, lz4Window+n+u.frame.most)
	if u.inside && !u.frame.alone {
		u.low = 0
		if err := window(pt.note, u.out[:lz4Window]); err != nil {
			return nil, err
		}
	}
	if err := u.run(n, false); err != nil {
		return nil, err
	}
	if u.w-u.start != n {
		return nil, u.damaged(pt.in, "the compressed stream is not the one that was indexed")
	}
	return u.out[u.start:u.w], nil
}
