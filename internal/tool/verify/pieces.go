package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/pack"
)

// piece is a run of bytes of a shard that may be one of its samples; its digest
// decides.
type piece struct {
	off int64
	sum uint64
}

// damaged returns the samples of shard s whose bytes are no longer those that were
// packed, found by their digests, without the dataset, which may not open. known is
// false if samples cannot be told apart: in compressed shards, and if the bytes are
// damaged that say how to read all of them. at is the file that differs.
func (p *packed) damaged(ctx context.Context, s *pack.Shard, at string) (broken []*errs.Error, known bool, err error) {
	want := p.sums[digestBytes*s.First : digestBytes*(s.First+s.Samples)]
	var found []piece
	switch o := p.manifest.Options; {
	case o.Compress != "":
		return nil, false, nil
	case o.Output == pack.OutputTar:
		found, err = p.within(ctx, s, tarPieces)
	case o.Output == pack.OutputTFRecord:
		found, err = p.within(ctx, s, recordPieces)
	case o.Output == pack.OutputNpy:
		found, err = p.rows(ctx, s)
	case o.Output == pack.OutputTokens:
		found, err = p.documents(ctx, s)
	default:
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for i, off := range unmatched(found, want) {
		e := errs.New(errs.Damaged, "its bytes differ from those that were packed")
		e.Where = errs.Where{Shard: at, Offset: errs.Known(off), Sample: errs.Known(s.First + i)}
		if path.Base(at) != path.Base(s.Files[0].Name) {
			e.Where.Offset = errs.Number{} // it is an offset in the first file
		}
		broken = append(broken, e)
	}
	slices.SortFunc(broken, func(a, b *errs.Error) int { return int(a.Where.Sample.Or(-1) - b.Where.Sample.Or(-1)) })
	// The bytes outside all samples of arrays and tokens say how to read them.
	lead := p.manifest.Options.Output == pack.OutputNpy || p.manifest.Options.Output == pack.OutputTokens
	return broken, len(broken) > 0 || !lead, nil
}

// unmatched are the samples, by their number in the shard, that match none of the
// pieces, and where each should be; -1 if unknown.
func unmatched(found []piece, want []byte) map[int64]int64 {
	n := int64(len(want) / digestBytes)
	sum := func(i int64) uint64 { return binary.LittleEndian.Uint64(want[digestBytes*i:]) }
	missing := map[int64]int64{}
	if int64(len(found)) == n {
		for i := range n {
			if found[i].sum != sum(i) {
				missing[i] = found[i].off
			}
		}
		return missing
	}
	at := map[uint64][]int{} // indices of pieces, by digest
	for i, p := range found {
		at[p.sum] = append(at[p.sum], i)
	}
	next := 0
	for i := range n {
		found := at[sum(i)]
		j, _ := slices.BinarySearch(found, next)
		if j == len(found) {
			missing[i] = -1
			continue
		}
		next = found[j] + 1
	}
	return missing
}

// within finds the pieces of a shard that is one file.
func (p *packed) within(ctx context.Context, s *pack.Shard, scan func(ctx context.Context, f io.ReaderAt, size int64) ([]piece, error)) ([]piece, error) {
	f := p.open(ctx, s.Files[0].Name)
	if f == nil {
		return nil, ctx.Err()
	}
	return scan(ctx, f, f.Size())
}

// open is a file of the packing; nil: it cannot be read, and the shard is told to be
// missing.
func (p *packed) open(ctx context.Context, name string) *io.SectionReader {
	st, err := p.src.Stat(ctx, source.Join(p.dir, path.Base(name)))
	if err != nil || st.Dir {
		return nil
	}
	return source.Reader(ctx, p.src, st)
}

// digestAt is the digest of [from, to).
func digestAt(f io.ReaderAt, from, to int64) (uint64, error) {
	h := xxhash.New()
	_, err := io.Copy(h, io.NewSectionReader(f, from, to-from))
	return h.Sum64(), err
}

// tarPieces are runs of members with the same key. A damaged header ends one; the
// next begins at the next header with a valid checksum.
func tarPieces(ctx context.Context, f io.ReaderAt, size int64) (found []piece, err error) {
	begin, off, key := int64(-1), int64(0), ""
	end := func() {
		if begin >= 0 {
			sum, e := digestAt(f, begin, off)
			if err == nil {
				err = e
			}
			found = append(found, piece{begin, sum})
		}
		begin, key = -1, ""
	}
	head := make([]byte, blockBytes)
	for off+blockBytes <= size && err == nil && ctx.Err() == nil {
		if _, e := f.ReadAt(head, off); e != nil {
			return found, e
		}
		name, next := tarMember(f, head, off)
		if next > size || next < 0 {
			end()
			off += blockBytes
			continue
		}
		if k := tarKey(name); k != key || begin < 0 {
			end()
			begin, key = off, k
		}
		off = next
	}
	end()
	if err == nil {
		err = ctx.Err()
	}
	return found, err
}

// tarMember is the name of the member whose header is at off, with the pax header
// before it, and where the next one begins; -1 if it is not a header.
func tarMember(f io.ReaderAt, head []byte, off int64) (name string, next int64) {
	n, ok := tarHead(head)
	if !ok {
		return "", -1
	}
	next = off + blockBytes + (n+blockBytes-1)/blockBytes*blockBytes
	if head[156] != 'x' {
		return string(bytes.TrimRight(head[:100], "\x00")), next
	}
	const most = 1 << 20 // of names
	pax := make([]byte, min(n, most))
	if _, err := f.ReadAt(pax, off+blockBytes); err != nil {
		return "", -1
	}
	_, rest, _ := strings.Cut(string(pax), " path=")
	name, _, _ = strings.Cut(rest, "\n")
	if _, err := f.ReadAt(head, next); err != nil {
		return "", -1
	}
	if n, ok = tarHead(head); !ok {
		return "", -1
	}
	if _, long, is := strings.Cut(string(pax), " size="); is {
		long, _, _ = strings.Cut(long, "\n")
		if n, _ = strconv.ParseInt(long, 10, 64); n <= 0 || n > 1<<60 {
			return "", -1
		}
	}
	return name, next + blockBytes + (n+blockBytes-1)/blockBytes*blockBytes
}

// tarHead is the size in a header, if its checksum is valid (POSIX.1-1988).
func tarHead(h []byte) (size int64, ok bool) {
	octal := func(p []byte) int64 {
		n, err := strconv.ParseInt(strings.Trim(string(p), "\x00 "), 8, 64)
		if err != nil {
			return -1
		}
		return n
	}
	sum := int64(0)
	for i, c := range h {
		if i >= 148 && i < 156 {
			c = ' '
		}
		sum += int64(c)
	}
	size = octal(h[124:136])
	return size, size >= 0 && octal(h[148:156]) == sum
}

// tarKey is the part of a name's last component before the first dot.
func tarKey(name string) string {
	base := strings.LastIndexByte(name, '/') + 1
	if dot := strings.IndexByte(name[base:], '.'); dot >= 0 {
		return name[:base+dot]
	}
	return name
}

// recordFrame is the size of a record's frame: length and CRC before, CRC after.
const recordFrame = 16

// recordPieces are frames of TFRecord. After a damaged length, the next frame is at
// the next length that matches its CRC.
func recordPieces(ctx context.Context, f io.ReaderAt, size int64) (found []piece, err error) {
	for off := int64(0); off+recordFrame <= size; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at, n, err := nextRecord(f, off, size)
		if err != nil || at < 0 {
			return found, err
		}
		off = at + recordFrame + n
		sum, err := digestAt(f, at, off)
		if err != nil {
			return found, err
		}
		found = append(found, piece{at, sum})
	}
	return found, nil
}

// nextRecord is where the first frame at or after off is, and the length of its
// record; -1 if there is none. Windows overlap by the size of a head.
func nextRecord(f io.ReaderAt, off, size int64) (at, n int64, err error) {
	const head = 12
	table := crc32.MakeTable(crc32.Castagnoli)
	for want := int64(head); off+recordFrame <= size; want = 1 << 20 {
		window := make([]byte, min(want, size-off))
		if _, err := f.ReadAt(window, off); err != nil {
			return -1, 0, err
		}
		for ; len(window) >= head; off, window = off+1, window[1:] {
			n := binary.LittleEndian.Uint64(window)
			if n > uint64(size) || off+recordFrame+int64(n) > size {
				continue
			}
			if bits.RotateLeft32(crc32.Checksum(window[:8], table), -15)+0xa282ead8 == binary.LittleEndian.Uint32(window[8:]) {
				return off, int64(n), nil
			}
		}
	}
	return -1, 0, nil
}

// rows are the samples of arrays: a row of every file, one after the other.
func (p *packed) rows(ctx context.Context, s *pack.Shard) ([]piece, error) {
	type array struct {
		f         io.ReaderAt
		head, row int64
	}
	var arrays []array
	for _, made := range s.Files {
		f := p.open(ctx, made.Name)
		if f == nil {
			return nil, ctx.Err()
		}
		// The header of version 1 (numpy/lib/format.py): magic, version, its length.
		var lead [10]byte
		_, _ = f.ReadAt(lead[:], 0)
		head := 10 + int64(binary.LittleEndian.Uint16(lead[8:]))
		if head > made.Bytes || s.Samples == 0 || (made.Bytes-head)%s.Samples != 0 {
			return nil, nil
		}
		arrays = append(arrays, array{f, head, (made.Bytes - head) / s.Samples})
	}
	found := make([]piece, s.Samples)
	for i := range s.Samples {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h := xxhash.New()
		for _, a := range arrays {
			_, _ = io.Copy(h, io.NewSectionReader(a.f, a.head+i*a.row, a.row)) // a row that cannot be read gets another digest
		}
		found[i] = piece{arrays[0].head + i*arrays[0].row, h.Sum64()}
	}
	return found, nil
}

// documents are the samples of token files: the tokens, and their number from the
// index. The index entry of one is not used for another.
func (p *packed) documents(ctx context.Context, s *pack.Shard) ([]piece, error) {
	const head = 34 // bytes before the lengths, see shard.Tokens
	if len(s.Files) != 2 {
		return nil, nil
	}
	bin := p.open(ctx, s.Files[0].Name)
	if bin == nil {
		return nil, ctx.Err()
	}
	idx, err := source.ReadAll(ctx, p.src, source.Join(p.dir, path.Base(s.Files[1].Name)), math.MaxInt64)
	if err != nil || int64(len(idx)) < head+12*s.Samples {
		return nil, ctx.Err() // the shard is told to be missing
	}
	width := int64(2)
	if p.manifest.Options.TokenType == "uint32" {
		width = 4
	}
	found := make([]piece, s.Samples)
	for i := range s.Samples {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		length := idx[head+4*i:][:4]
		n := int64(binary.LittleEndian.Uint32(length)) * width
		at := int64(binary.LittleEndian.Uint64(idx[head+4*s.Samples+8*i:]))
		h := xxhash.New()
		if at >= 0 && at <= s.Files[0].Bytes && n <= s.Files[0].Bytes-at {
			_, _ = io.Copy(h, io.NewSectionReader(bin, at, n))
		}
		_, _ = h.Write(length)
		found[i] = piece{at, h.Sum64()}
	}
	return found, nil
}
