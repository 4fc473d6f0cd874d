package parquet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/pages"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// scan finds the pages of one file.
func scan(ctx context.Context, src source.Source, obj source.Info) (*part, error) {
	f, err := meta.ReadFooter(ctx, src, obj)
	if err != nil {
		return nil, err
	}
	hf, err := f.Features()
	if err != nil {
		e := errs.From(err)
		e.Where.Shard = obj.Name
		return nil, e
	}
	p := &part{obj: obj, columns: f.Columns, hf: hf}
	for i := range p.columns {
		c := &p.columns[i]
		if n := p.hf[c.Name].Length; c.List() && n > 0 && n < 1<<24 {
			c.Fixed = n
		}
	}
	meta.ArrowLists(f.Arrow, p.columns)
	s := scanner{ctx: ctx, src: src, obj: obj, end: f.End}
	for g := range f.Groups {
		chunks := make([]chunkRef, len(f.Columns))
		for c := range f.Columns {
			if chunks[c], err = s.chunk(&f.Columns[c], &f.Groups[g].Chunks[c], f.Groups[g].Rows); err != nil {
				e := *errs.From(err)
				if e.Code == errs.Damaged {
					e.What = fmt.Sprintf("column %q of row group %d: %s", f.Columns[c].Name, g, e.What)
					e.Where.Field = f.Columns[c].Name
				}
				return nil, &e
			}
		}
		p.rows, p.chunks = append(p.rows, f.Groups[g].Rows), append(p.chunks, chunks)
	}
	return p, s.apart()
}

// span is bytes of the file that pages take.
type span struct{ off, end int64 }

// scanner walks the pages of one file.
type scanner struct {
	ctx   context.Context
	src   source.Source
	obj   source.Info
	end   int64 // of the part that holds pages
	buf   []byte
	at    int64 // offset of buf
	spans []span
}

func (s *scanner) damaged(off int64, why string, a ...any) error {
	return meta.DamagedAt(s.obj, off, why, a...)
}

// apart says whether no two chunks share bytes.
func (s *scanner) apart() error {
	slices.SortFunc(s.spans, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	for i := 1; i < len(s.spans); i++ {
		if s.spans[i].off < s.spans[i-1].end {
			return s.damaged(s.spans[i].off, "the pages of two columns overlap")
		}
	}
	return nil
}

// chunk finds the pages of one chunk.
func (s *scanner) chunk(col *meta.Column, c *meta.Chunk, rows int64) (chunkRef, error) {
	start := c.Start()
	switch {
	case c.Codec == pages.CodecLZO || c.Codec < 0 || c.Codec > pages.CodecLZ4:
		if col.Why == "" {
			return chunkRef{}, errs.New(errs.Unsupported, "column %q is compressed by codec %d (3: LZO)", col.Name, c.Codec).
				At(errs.Where{Shard: s.obj.Name, Field: col.Name, Offset: errs.Known(start)}).Try("write it with zstd, snappy, gzip, lz4, brotli or none")
		}
	case c.Values < 0 || col.Rep == 0 && c.Values != rows || col.Rep > 0 && c.Values < rows:
		return chunkRef{}, s.damaged(start, "it has %d values for %d rows", c.Values, rows)
	case c.Values == 0 && (c.Packed == 0 || rows == 0): // some write a dictionary of nothing
		return chunkRef{}, nil
	case start < 4 || c.Packed < 0 || start > s.end || c.Packed > s.end-start:
		return chunkRef{}, s.damaged(max(start, 0), "its %d bytes do not end before the footer", c.Packed)
	}
	end := start + c.Packed
	s.spans = append(s.spans, span{start, end})
	ref := chunkRef{codec: int32(c.Codec)}
	if col.Why != "" {
		return ref, nil // it will not be read
	}
	find := s.walk
	if c.Length > 0 {
		find = s.indexed
	}
	ref, err := find(col, c, rows, ref, start, end)
	if err == nil {
		err = s.places(col, &ref, rows)
	}
	if err != nil || col.Side {
		return ref, err // no path beside a picture is delivered unasked
	}
	var told bool
	if ref.absent, told = counted(c, col, rows); !told {
		ref.absent, err = s.count(col, int(c.Codec), ref.pages)
	}
	return ref, err
}

// indexed takes the places of pages from the offset index that the writer left.
func (s *scanner) indexed(col *meta.Column, c *meta.Chunk, rows int64, ref chunkRef, start, end int64) (chunkRef, error) {
	raw, err := format.Read(s.ctx, s.src, s.obj, c.At, c.Length)
	if err != nil {
		return ref, err
	}
	t := &meta.Thrift{P: raw}
	t.Fields(0, func(id int64, typ byte) bool {
		if id != 1 || typ != meta.ThriftList {
			return false
		}
		t.List(0, meta.ThriftStruct, func() {
			p := pageRef{off: -1, n: -1, row: -1}
			t.Fields(1, func(id int64, typ byte) bool {
				switch {
				case !meta.IsInt(typ):
					return false
				case id == 1:
					p.off = t.Int()
				case id == 2:
					p.n = t.Int()
				case id == 3:
					p.row = t.Int()
				default:
					return false
				}
				return true
			})
			ref.pages = append(ref.pages, p)
		})
		return true
	})
	if t.Err != nil || len(ref.pages) == 0 {
		return ref, s.damaged(c.At, "cannot read its offset index")
	}
	at, row := start, int64(0)
	for i, p := range ref.pages {
		if p.off < at || p.n < 1 || p.n > end-p.off || p.off > end || i == 0 && p.row != 0 || p.row < row || p.row > rows {
			return ref, s.damaged(c.At, "page %d of its offset index (%d bytes at %d, from row %d on) makes no sense", i, p.n, p.off, p.row)
		}
		at, row = p.off+p.n, p.row
	}
	if first := ref.pages[0].off; first > start {
		ref.dict, ref.dictLen = start, first-start
		h, err := s.header(start, first)
		if err != nil {
			return ref, err
		}
		if h.Kind != pages.KindDict || int64(h.Length+h.Packed) > ref.dictLen {
			return ref, s.damaged(start, "found a page of kind %d where the dictionary should be", h.Kind)
		}
		ref.dictLen = int64(h.Length + h.Packed)
	}
	return ref, nil
}

// walk steps from the header of one page to the next.
func (s *scanner) walk(col *meta.Column, c *meta.Chunk, rows int64, ref chunkRef, start, end int64) (chunkRef, error) {
	var row, values int64
	for at := start; at < end && values < c.Values; {
		h, err := s.header(at, end)
		if err != nil {
			return ref, err
		}
		n := int64(h.Length) + int64(h.Packed)
		if n > end-at {
			return ref, s.damaged(at, "a page of %d bytes does not fit into its column's %d", n, end-start)
		}
		switch {
		case h.Kind == pages.KindDict && ref.dictLen == 0 && len(ref.pages) == 0:
			ref.dict, ref.dictLen = at, n
		case h.Kind == pages.KindDict:
			return ref, s.damaged(at, "there is a second dictionary")
		case h.Holds():
			begun, mid, err := s.rows(col, c, &h, at, n)
			if err != nil {
				return ref, err
			}
			if len(ref.pages) == 0 && mid {
				return ref, s.damaged(at, "its first page begins within a row")
			}
			p := pageRef{off: at, n: n, row: row}
			if mid {
				p.flags |= flagMid
			}
			if !h.Dictionary() {
				p.flags |= flagPlain
			}
			if h.Values > 0 {
				ref.pages = append(ref.pages, p)
			}
			row, values = row+begun, values+int64(h.Values)
		}
		at += n
	}
	if row != rows || values != c.Values {
		return ref, s.damaged(start, "its pages have %d rows and %d values, instead of %d and %d", row, values, rows, c.Values)
	}
	return ref, nil
}

// rows is how many rows begin in a page, and whether its first value continues one.
// For lists in pages of the first version only the levels tell.
func (s *scanner) rows(col *meta.Column, c *meta.Chunk, h *pages.Header, at, n int64) (begun int64, mid bool, err error) {
	switch {
	case col.Rep == 0:
		return int64(h.Values), false, nil
	case h.Kind == pages.KindDataV2:
		return int64(h.Rows), false, nil
	}
	m, err := s.levels(col, int(c.Codec), h, at, n)
	if err != nil {
		return 0, false, err
	}
	for _, r := range m.Reps {
		if r == 0 {
			begun++
		}
	}
	return begun, len(m.Reps) > 0 && m.Reps[0] != 0, nil
}

// header reads the header of the page at off, which ends before end.
func (s *scanner) header(off, end int64) (pages.Header, error) {
	for window := int64(8 << 10); ; window *= 16 {
		most := min(window, end-off)
		if off < s.at || off+min(256, most) > s.at+int64(len(s.buf)) || window > 8<<10 {
			raw, err := format.Read(s.ctx, s.src, s.obj, off, most)
			if err != nil {
				return pages.Header{}, err
			}
			s.buf, s.at = raw, off
		}
		h, err := pages.ParseHeader(s.buf[off-s.at:])
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, meta.ErrShort) && off+most > s.at+int64(len(s.buf)):
			s.buf = nil // a read in the middle of the buffer was cut
			window /= 16
		case !errors.Is(err, meta.ErrShort) || most == end-off || window > pages.MaxHeader:
			e := errs.From(s.damaged(off, "cannot read the header of a page"))
			return h, e.Because(err)
		}
	}
}
