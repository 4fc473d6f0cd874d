package parquet

import (
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/pages"
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
func (a *absent) level(col *meta.Column, d int, n int64) {
	switch {
	case d >= col.Def:
	case !col.List() || d < col.ListDef-1: // at listDef-1 a list is empty
		a.rows += n
	case d >= col.ListDef:
		a.items += n
	}
}

// counted is what the footer says is absent; false: it does not say.
func counted(c *meta.Chunk, col *meta.Column, rows int64) (absent, bool) {
	var a absent
	switch {
	case col.Def == 0:
		return a, true
	case !col.List() && c.Nulls >= 0 && c.Nulls <= rows:
		return absent{rows: c.Nulls}, true
	case len(c.Levels) != col.Def+1:
		return a, false
	}
	left := c.Values
	for d, n := range c.Levels {
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
func (s *scanner) count(col *meta.Column, codec int, stored []pageRef) (a absent, err error) {
	for _, p := range stored {
		var m *pages.Levels
		h, err := s.header(p.off, p.off+p.n)
		if err == nil && h.Holds() && int64(h.Length)+int64(h.Packed) == p.n {
			m, err = s.levels(col, codec, &h, p.off, p.n)
		}
		switch {
		case errs.CodeOf(err) == errs.Damaged || err == nil && m == nil:
			continue
		case err != nil:
			return a, err
		}
		n := make([]int64, col.Def+1)
		for _, d := range m.Defs {
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
func (s *scanner) levels(col *meta.Column, codec int, h *pages.Header, off, n int64) (*pages.Levels, error) {
	if err := h.Bounded(codec, int(n)); err != nil {
		return nil, errs.From(s.damaged(off, "cannot decode it")).Because(err)
	}
	bad := func(err error) error { return errs.From(s.damaged(off, "it cannot be decoded")).Because(err) }
	if h.Kind == pages.KindDataV2 {
		lead := int64(h.Length + h.RepLen + h.DefLen)
		raw, err := format.Read(s.ctx, s.src, s.obj, off, lead)
		if err != nil {
			return nil, err
		}
		l, err := pages.ReadLevels(col, h, raw[h.Length:])
		if err != nil {
			return nil, bad(err)
		}
		return l, nil
	}
	for _, most := range levelReads {
		if most >= n {
			break
		}
		raw, err := format.Read(s.ctx, s.src, s.obj, off, most)
		if err != nil {
			return nil, err
		}
		if int64(h.Length) >= most {
			continue
		}
		if l, err := pages.ReadLevels(col, h, pages.Front(codec, raw[h.Length:], min(h.Unpacked, levelLimit))); err == nil {
			return l, nil
		}
	}
	raw, err := format.Read(s.ctx, s.src, s.obj, off, n)
	if err != nil {
		return nil, err
	}
	body, err := pages.Unpacked(*h, codec, raw[h.Length:], 0)
	if err != nil {
		return nil, bad(err)
	}
	l, err := pages.ReadLevels(col, h, body)
	if err != nil {
		return nil, bad(err)
	}
	return l, nil
}
