package parquet

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// What is delivered unasked must not fail at a row because a value is missing, so the
// nulls of every column are counted while it is indexed. Where the writer has counted
// them, its numbers are used; where it has not, or where they do not tell a null list
// from an empty one, the definition levels of the pages are read, and nothing of the
// values after them.

// absent is what a column lacks.
type absent struct {
	rows  int64 // that have no value, or no list
	items int64 // nulls in lists
}

// level counts n values of definition level d.
func (a *absent) level(col *column, d int, n int64) {
	switch {
	case d >= col.def:
	case !col.list() || d < col.listDef-1: // at listDef-1 a list is empty
		a.rows += n
	case d >= col.listDef:
		a.items += n
	}
}

// counted is what the footer says is absent; false: it does not say.
func (c *chunk) counted(col *column, rows int64) (absent, bool) {
	var a absent
	switch {
	case col.def == 0:
		return a, true
	case !col.list() && c.nulls >= 0 && c.nulls <= rows:
		return absent{rows: c.nulls}, true
	case len(c.levels) != col.def+1:
		return a, false
	}
	left := c.values
	for d, n := range c.levels {
		if n < 0 || n > left {
			return a, false
		}
		left -= n
		a.level(col, d, n)
	}
	return a, left == 0
}

// count reads what is absent from the pages of a column. A page that cannot be
// decoded does not count: reading a row of it reports the damage.
func (s *scanner) count(col *column, codec int, pages []pageRef) (a absent, err error) {
	for _, p := range pages {
		var m *maker
		h, err := s.header(p.off, p.off+p.n)
		if err == nil && h.holds() && int64(h.length)+int64(h.packed) == p.n {
			m, err = s.levels(col, codec, &h, p.off, p.n)
		}
		switch {
		case errs.CodeOf(err) == errs.Damaged || err == nil && m == nil:
			continue
		case err != nil:
			return a, err
		}
		n := make([]int64, col.def+1)
		for _, d := range m.defs {
			n[d]++
		}
		for d, n := range n {
			a.level(col, d, n)
		}
	}
	return a, nil
}

// This much of a page is read and unpacked for its levels, on the first and on the
// second try: enough for levels in a few runs, and for levels that come after a whole
// block of zstd's. How much may be unpacked from so little is limited too.
var levelReads = [...]int64{16 << 10, 192 << 10}

const levelLimit = 2 << 20

// levels reads the levels of the page of n bytes at off, whose values may be
// megabytes. Errors: those of reading, and damaged.
func (s *scanner) levels(col *column, codec int, h *pageHeader, off, n int64) (*maker, error) {
	if err := h.bounded(codec, int(n)); err != nil {
		return nil, errs.From(s.damaged(off, "it can not be decoded")).Because(err)
	}
	m := &maker{col: col, h: *h}
	if h.kind == pageDataV2 {
		lead := int64(h.length + h.repLen + h.defLen)
		raw, err := format.Read(s.ctx, s.src, s.obj, off, lead)
		if err != nil {
			return nil, err
		}
		m.body = raw[h.length:]
		if err := m.levels(); err != nil {
			return nil, errs.From(s.damaged(off, "it can not be decoded")).Because(err)
		}
		return m, nil
	}
	for _, most := range levelReads {
		if most >= n {
			break
		}
		raw, err := format.Read(s.ctx, s.src, s.obj, off, most)
		if err != nil {
			return nil, err
		}
		if int64(h.length) < most {
			m.body = front(codec, raw[h.length:], min(h.unpacked, levelLimit))
		}
		if m.levels() == nil {
			return m, nil
		}
	}
	raw, err := format.Read(s.ctx, s.src, s.obj, off, n)
	if err != nil {
		return nil, err
	}
	if m.body, err = unpacked(*h, codec, raw[h.length:], 0); err == nil {
		err = m.levels()
	}
	if err != nil {
		return nil, errs.From(s.damaged(off, "it can not be decoded")).Because(err)
	}
	return m, nil
}

// front is what the beginning of packed bytes unpacks to, no more than limit of
// it; nothing where the codec has no way to tell.
func front(codec int, src []byte, limit int) (out []byte) {
	defer func() {
		if recover() != nil { // as in unpack
			out = nil
		}
	}()
	var r io.Reader
	switch codec {
	case codecNone:
		return src
	case codecSnappy:
		return snappyFront(src, limit)
	case codecGzip:
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil
		}
		r = z
	case codecBrotli:
		r = brotli.NewReader(bytes.NewReader(src))
	case codecZstd:
		z, err := zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil
		}
		defer z.Close()
		r = z
	default:
		return nil
	}
	out, _ = io.ReadAll(io.LimitReader(r, int64(limit))) // ends in an error, src being cut
	return out
}

// snappyFront unpacks the beginning of a block of snappy's (google/snappy,
// "format_description.txt"), which the library unpacks whole only.
//
//	length of all, varint; then
//	literal  (n-1)<<2 | 0, or 60..63 in the place of n-1 and n-1 in 1 to 4 bytes; n bytes
//	copy     offset>>8<<5 | (n-4)<<2 | 1, offset&255
//	         (n-1)<<2 | 2, offset in 2 bytes; (n-1)<<2 | 3, offset in 4
func snappyFront(src []byte, limit int) (out []byte) {
	_, n := binary.Uvarint(src)
	if n <= 0 {
		return nil
	}
	for src = src[n:]; len(src) > 0 && len(out) < limit; {
		tag := int(src[0])
		size := [...]int{1, 2, 3, 5}[tag&3] // of the tag
		if tag&3 == 0 && tag>>2 >= 60 {
			size += tag>>2 - 59
		}
		if len(src) < size {
			break
		}
		var more int // little-endian, after the first byte
		for i := size - 1; i > 0; i-- {
			more = more<<8 | int(src[i])
		}
		src = src[size:]
		n := tag>>2 + 1
		switch {
		case tag&3 == 0:
			if size > 1 {
				n = more + 1
			}
			n = min(n, len(src))
			out, src = append(out, src[:n]...), src[n:]
			continue
		case tag&3 == 1:
			n, more = tag>>2&7+4, tag>>5<<8|more
		}
		if more < 1 || more > len(out) {
			break
		}
		for range n {
			out = append(out, out[len(out)-more])
		}
	}
	return out[:min(len(out), limit)]
}
