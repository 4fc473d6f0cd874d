// Package compressed gives random access into compressed files: gzip, zstd and LZ4. A file
// is unpacked once, from beginning to end, while it is indexed, and all its checksums
// are verified. What is kept are points: places in the compressed bytes at which unpacking
// can be resumed, some 512 KiB of unpacked bytes apart.
//
//	gzip  any symbol of a deflate stream: the bit, the codes of its block, and of
//	      the 32 KiB before it those bytes that are copied later on; the beginning
//	      of a member needs none of it, and where members are short (BGZF) each is
//	      a point
//	zstd  the beginning of a frame. The file that zstd writes is one frame; beyond
//	      4 MiB of it, unpacking a sample is unpacking all that comes before it
//	LZ4   the beginning of a block, with the bytes of the 64 KiB before it that are
//	      copied later on, where blocks are linked
//
// The idea for gzip is from zlib's examples/zran.c (Adler, 2005); keeping only those
// bytes of a window that are used is from rapidgzip (Knespel and Brunst, 2023). Points
// inside deflate blocks are our own: they bound what a point costs, regardless of what
// wrote the file.
package compressed

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Kind is a way of packing.
type Kind int32

// The kinds. Their numbers are stored in indexes.
const (
	Plain Kind = iota // not compressed
	Gzip
	Zstd
	LZ4
)

func (k Kind) String() string { return [...]string{"plain", "gzip", "zstd", "lz4"}[k] }

// Sniff is the kind of a file that begins with these bytes.
func Sniff(head []byte) Kind {
	if len(head) >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8 {
		return Gzip
	}
	if len(head) < 4 {
		return Plain
	}
	switch magic := binary.LittleEndian.Uint32(head); {
	case magic == zstdMagic, magic == skipMagic|0xe: // a seek table may come first
		return Zstd
	case magic == lz4Magic, magic == lz4LegacyMagic:
		return LZ4
	}
	return Plain
}

// The most that a file may unpack to: bombLeast bytes, and bombTimes its size. A
// deflate stream cannot unpack to more than 1,032 times its size.
const (
	bombLeast = 64 << 20
	bombTimes = 1032
)

// piece is what is unpacked from one point on, until the next.
type piece struct {
	data []byte // valid until the next one is asked for
	in   int64  // of the point in the file, bytes
	lead int64  // what else there is to know of it, by the kind
	end  int64  // in the file, of what is needed to unpack it
	note []byte
	// The bytes before data, and which of them are needed.
	window []byte
	used   []bool
}

// codec unpacks one stream, piece by piece; io.EOF: there are no more, and all
// that could be checked was right.
type codec interface{ next() (piece, error) }

// point is one row of the index.
type point struct {
	out  int64 // unpacked bytes before it
	in   int64
	end  int64
	lead int64
	sum  uint64 // XXH64 of what is unpacked from it on
	note []byte
}

// Points are those of one file.
type Points struct {
	kind Kind
	size int64 // unpacked, bytes
	list []point
}

// Reader unpacks a whole file and finds its points on the way.
type Reader struct {
	f      *feed
	codec  codec
	points Points
	pack   *zstd.Encoder
}

// NewReader unpacks a file of src.
func NewReader(ctx context.Context, src source.Source, obj source.Info, kind Kind) *Reader {
	f := feed{ctx: ctx, src: src, obj: obj}
	r := &Reader{points: Points{kind: kind}}
	switch kind {
	case Gzip:
		g := newGunzip(f)
		r.codec, r.f = g, &g.feed
	case Zstd:
		z := newZstd(f)
		r.codec, r.f = z, &z.feed
	case LZ4:
		u := newUnlz4(f)
		r.codec, r.f = u, &u.feed
	default:
		panic("compressed: a file that is not compressed")
	}
	r.pack, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(64<<10), zstd.WithLowerEncoderMem(true))
	return r
}

// Next is what follows, a view until the next call; io.EOF where the file ends as
// it should. Errors: damaged, unsupported, and those of the source.
func (r *Reader) Next() ([]byte, error) {
	p, err := r.codec.next()
	if err != nil {
		if err == io.EOF || r.f.ctx.Err() != nil { //nolint:errorlint // as it is
			return nil, err
		}
		var e *errs.Error
		if !errors.As(err, &e) {
			return nil, r.f.damaged(r.f.pos(), "cannot read the compressed stream").Because(err)
		}
		return nil, err
	}
	if r.points.size += int64(len(p.data)); r.points.size > bombLeast && r.points.size/bombTimes > p.end {
		return nil, r.f.damaged(p.in, "%d bytes decompress to more than %d: this is not data, but meant to fill the memory", p.end, r.points.size).
			Try("if these bytes are right, decompress the file")
	}
	r.points.list = append(r.points.list, point{
		out: r.points.size - int64(len(p.data)), in: p.in, end: p.end, lead: p.lead,
		sum: xxhash.Sum64(p.data), note: r.note(p),
	})
	return p.data, nil
}

// note is what a point keeps: what the codec needs, and the window, with zeros in place
// of the bytes that are not used, compressed.
func (r *Reader) note(p piece) []byte {
	var window []byte
	for i, used := range p.used {
		if used {
			if window == nil {
				window = make([]byte, len(p.used))
			}
			window[i] = p.window[len(p.window)-len(p.used)+i]
		}
	}
	note := append([]byte(nil), p.note...)
	if window != nil {
		note = r.pack.EncodeAll(window, note)
	}
	return note
}

// Off is how much of the file was read, bytes.
func (r *Reader) Off() int64 { return min(r.f.base+int64(r.f.end), r.f.obj.Size) }

// Points are those found so far: all, after Next said io.EOF.
func (r *Reader) Points() *Points { return &r.points }
