package tfrecord

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format/compressed"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const (
	headLen = 12 // length and check before a payload
	footLen = 4  // check after it
	// parseBytes is the longest payload that indexing looks into: no allocation
	// follows a length alone.
	parseBytes = 32 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func masked(p []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(p, castagnoli), 17) + 0xa282ead8
}

// length is that of the payload after a head; false means that its check is wrong, or
// that no file has such a length.
func length(head []byte) (int64, bool) {
	n := binary.LittleEndian.Uint64(head)
	return int64(n), masked(head[:8]) == binary.LittleEndian.Uint32(head[8:]) && n < math.MaxInt64/2
}

// shard is what indexing one file found.
type shard struct {
	obj    source.Info
	start  []int64 // of records, unpacked
	points *compressed.Points
	size   int64 // unpacked
	facts  facts
}

// scanner goes through the records of one file.
type scanner struct {
	obj source.Info
	win *compressed.Window
	off int64
}

func (s *scanner) damaged(off int64, format string, a ...any) *errs.Error {
	at, note := s.win.Where(off)
	return errs.New(errs.Damaged, "the TFRecord file is damaged: "+format+"%s", append(a, note)...).
		At(errs.Where{Shard: s.obj.Name, Offset: errs.Known(at)}).Try("fetch or write the file again, or leave it out")
}

// next returns the length of the payload of the next record, which begins at s.off;
// false means that the file ends.
func (s *scanner) next() (n int64, more bool, err error) {
	head, err := s.win.Bytes(s.off, headLen)
	if err != nil || len(head) == 0 {
		return 0, false, err
	}
	if len(head) < headLen {
		return 0, false, s.damaged(s.off, "it ends inside the head of a record")
	}
	n, ok := length(head)
	switch {
	case !ok && s.off == 0:
		return 0, false, s.damaged(0, "the length of its first record does not have the CRC that it should").
			Try("check that this is a TFRecord file; of TensorFlow's compressions, GZIP is read and ZLIB is not")
	case !ok:
		return 0, false, s.damaged(s.off, "the length of a record does not have the CRC that it should")
	}
	return n, true, nil
}

// scan indexes one file. payloads says that they are Examples, and looks into each.
func scan(ctx context.Context, src source.Source, obj source.Info, payloads bool, progress func(off int64)) (*shard, error) {
	win, err := compressed.NewWindow(ctx, src, obj)
	if err != nil {
		return nil, err
	}
	s := &scanner{obj: obj, win: win}
	sh := &shard{obj: obj}
	for {
		n, more, err := s.next()
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if payloads && n <= parseBytes {
			p, err := win.Bytes(s.off+headLen, int(n)+footLen)
			if err != nil {
				return nil, err
			}
			if int64(len(p)) == n+footLen && masked(p[:n]) == binary.LittleEndian.Uint32(p[n:]) {
				sh.facts.add(p[:n])
			}
		}
		switch left, err := win.Left(s.off+headLen, n+footLen); {
		case err != nil:
			return nil, err
		case left < n+footLen:
			return nil, s.damaged(s.off, "it ends inside a record of %d bytes, of which %d are there", n, max(left-footLen, 0))
		}
		sh.start = append(sh.start, s.off)
		s.off += headLen + n + footLen
		progress(win.At(s.off))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	sh.size = s.off
	if sh.points, err = win.Finish(); err != nil {
		return nil, err
	}
	return sh, nil
}

// firstTries is how many records are looked at for one that is whole.
const firstTries = 64

// first reports whether the first whole payload of a file is an Example: a damaged one
// must not decide what the others are. any is false if there is no payload.
func first(ctx context.Context, src source.Source, obj source.Info) (example, any bool, err error) {
	win, err := compressed.NewWindow(ctx, src, obj)
	if err != nil {
		return false, false, err
	}
	s := &scanner{obj: obj, win: win}
	for try := 0; ; try++ {
		n, more, err := s.next()
		if err != nil || !more {
			return false, any && err == nil, err
		}
		any = true
		if n > parseBytes {
			return false, true, nil
		}
		p, err := win.Bytes(s.off+headLen, int(n)+footLen)
		whole := int64(len(p)) == n+footLen && masked(p[:n]) == binary.LittleEndian.Uint32(p[n:])
		if err != nil || whole || try == firstTries-1 {
			return whole && isExample(p[:n]), true, err
		}
		s.off += headLen + n + footLen
	}
}
