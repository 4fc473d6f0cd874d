package parquet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// scan finds the pages of one file.
func scan(ctx context.Context, src source.Source, obj source.Info) (*part, error) {
	f, err := readFooter(ctx, src, obj)
	if err != nil {
		return nil, err
	}
	hf, err := f.features()
	if err != nil {
		e := errs.From(err)
		e.Where.Shard = obj.Name
		return nil, e
	}
	p := &part{obj: obj, columns: f.columns, hf: hf}
	for i := range p.columns {
		c := &p.columns[i]
		if n := p.hf[c.name].Length; c.list() && n > 0 && n < 1<<24 {
			c.fixed = n
		}
	}
	arrowLists(f.arrow, p.columns)
	s := scanner{ctx: ctx, src: src, obj: obj, end: f.end}
	for g := range f.groups {
		chunks := make([]chunkRef, len(f.columns))
		for c := range f.columns {
			if chunks[c], err = s.chunk(&f.columns[c], &f.groups[g].chunks[c], f.groups[g].rows); err != nil {
				e := *errs.From(err)
				if e.Code == errs.Damaged {
					e.What = fmt.Sprintf("column %q of row group %d: %s", f.columns[c].name, g, e.What)
					e.Where.Field = f.columns[c].name
				}
				return nil, &e
			}
		}
		p.rows, p.chunks = append(p.rows, f.groups[g].rows), append(p.chunks, chunks)
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
	return damagedAt(s.obj, off, why, a...)
}

// apart says whether no two chunks share bytes.
func (s *scanner) apart() error {
	slices.SortFunc(s.spans, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	for i := 1; i < len(s.spans); i++ {
		if s.spans[i].off < s.spans[i-1].end {
			return s.damaged(s.spans[i].off, "the pages of two columns lie in the same place")
		}
	}
	return nil
}

// chunk finds the pages of one chunk.
func (s *scanner) chunk(col *column, c *chunk, rows int64) (chunkRef, error) {
	start := c.start()
	switch {
	case c.codec == codecLZO || c.codec < 0 || c.codec > codecLZ4:
		if col.why == "" {
			return chunkRef{}, errs.New(errs.Unsupported, "column %q is compressed by codec %d (3: LZO)", col.name, c.codec).
				At(errs.Where{Shard: s.obj.Name, Field: col.name, Offset: errs.Known(start)}).Try("write it with zstd, snappy, gzip, lz4, brotli or none")
		}
	case c.values < 0 || col.rep == 0 && c.values != rows || col.rep > 0 && c.values < rows:
		return chunkRef{}, s.damaged(start, "it has %d values for %d rows", c.values, rows)
	case c.values == 0 && (c.packed == 0 || rows == 0): // some write a dictionary of nothing
		return chunkRef{}, nil
	case start < 4 || c.packed < 0 || start > s.end || c.packed > s.end-start:
		return chunkRef{}, s.damaged(max(start, 0), "its %d bytes do not lie in front of the footer", c.packed)
	}
	end := start + c.packed
	s.spans = append(s.spans, span{start, end})
	ref := chunkRef{codec: int32(c.codec)}
	if col.why != "" {
		return ref, nil // it will not be read
	}
	find := s.walk
	if c.length > 0 {
		find = s.indexed
	}
	ref, err := find(col, c, rows, ref, start, end)
	if err == nil {
		err = s.places(col, &ref, rows)
	}
	if err != nil || col.side {
		return ref, err // no path beside a picture is delivered unasked
	}
	var told bool
	if ref.absent, told = c.counted(col, rows); !told {
		ref.absent, err = s.count(col, int(c.codec), ref.pages)
	}
	return ref, err
}

// indexed takes the places of pages from the offset index that the writer left.
func (s *scanner) indexed(col *column, c *chunk, rows int64, ref chunkRef, start, end int64) (chunkRef, error) {
	raw, err := format.Read(s.ctx, s.src, s.obj, c.at, c.length)
	if err != nil {
		return ref, err
	}
	t := &thrift{p: raw}
	t.fields(0, func(id int64, typ byte) bool {
		if id != 1 || typ != thriftList {
			return false
		}
		t.list(0, thriftStruct, func() {
			p := pageRef{off: -1, n: -1, row: -1}
			t.fields(1, func(id int64, typ byte) bool {
				switch {
				case !isInt(typ):
					return false
				case id == 1:
					p.off = t.int()
				case id == 2:
					p.n = t.int()
				case id == 3:
					p.row = t.int()
				default:
					return false
				}
				return true
			})
			ref.pages = append(ref.pages, p)
		})
		return true
	})
	if t.err != nil || len(ref.pages) == 0 {
		return ref, s.damaged(c.at, "its offset index can not be read")
	}
	at, row := start, int64(0)
	for i, p := range ref.pages {
		if p.off < at || p.n < 1 || p.n > end-p.off || p.off > end || i == 0 && p.row != 0 || p.row < row || p.row > rows {
			return ref, s.damaged(c.at, "page %d of its offset index (%d bytes at %d, from row %d on) makes no sense", i, p.n, p.off, p.row)
		}
		at, row = p.off+p.n, p.row
	}
	if first := ref.pages[0].off; first > start {
		ref.dict, ref.dictLen = start, first-start
		h, err := s.header(start, first)
		if err != nil {
			return ref, err
		}
		if h.kind != pageDict || int64(h.length+h.packed) > ref.dictLen {
			return ref, s.damaged(start, "a page of kind %d stands where the dictionary should", h.kind)
		}
		ref.dictLen = int64(h.length + h.packed)
	}
	return ref, nil
}

// walk steps from the header of one page to the next.
func (s *scanner) walk(col *column, c *chunk, rows int64, ref chunkRef, start, end int64) (chunkRef, error) {
	var row, values int64
	for at := start; at < end && values < c.values; {
		h, err := s.header(at, end)
		if err != nil {
			return ref, err
		}
		n := int64(h.length) + int64(h.packed)
		if n > end-at {
			return ref, s.damaged(at, "a page of %d bytes does not fit into its column's %d", n, end-start)
		}
		switch {
		case h.kind == pageDict && ref.dictLen == 0 && len(ref.pages) == 0:
			ref.dict, ref.dictLen = at, n
		case h.kind == pageDict:
			return ref, s.damaged(at, "there is a second dictionary")
		case h.holds():
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
			if !h.dictionary() {
				p.flags |= flagPlain
			}
			if h.values > 0 {
				ref.pages = append(ref.pages, p)
			}
			row, values = row+begun, values+int64(h.values)
		}
		at += n
	}
	if row != rows || values != c.values {
		return ref, s.damaged(start, "its pages have %d rows and %d values, instead of %d and %d", row, values, rows, c.values)
	}
	return ref, nil
}

// rows is how many rows begin in a page, and whether its first value continues one.
// For lists in pages of the first version only the levels tell.
func (s *scanner) rows(col *column, c *chunk, h *pageHeader, at, n int64) (begun int64, mid bool, err error) {
	switch {
	case col.rep == 0:
		return int64(h.values), false, nil
	case h.kind == pageDataV2:
		return int64(h.rows), false, nil
	}
	m, err := s.levels(col, int(c.codec), h, at, n)
	if err != nil {
		return 0, false, err
	}
	for _, r := range m.reps {
		if r == 0 {
			begun++
		}
	}
	return begun, len(m.reps) > 0 && m.reps[0] != 0, nil
}

// header reads the header of the page at off, which ends before end.
func (s *scanner) header(off, end int64) (pageHeader, error) {
	for window := int64(8 << 10); ; window *= 16 {
		most := min(window, end-off)
		if off < s.at || off+min(256, most) > s.at+int64(len(s.buf)) || window > 8<<10 {
			raw, err := format.Read(s.ctx, s.src, s.obj, off, most)
			if err != nil {
				return pageHeader{}, err
			}
			s.buf, s.at = raw, off
		}
		h, err := parseHeader(s.buf[off-s.at:])
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, errShort) && off+most > s.at+int64(len(s.buf)):
			s.buf = nil // a read in the middle of the buffer was cut
			window /= 16
		case !errors.Is(err, errShort) || most == end-off || window > maxHeader:
			e := errs.From(s.damaged(off, "the header of a page can not be read"))
			return h, e.Because(err)
		}
	}
}
