package parquet

import (
	"encoding/binary"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/pages"
)

// Writers close a page after some number of rows, so that a page of pictures may have
// a thousand of them, and so may a dictionary. Where neither is compressed, a value
// is stored in the file unchanged:
//
//	uint32 length of the value, then its bytes
//
// The index then has the place of every such value, found by reading the lengths
// alone, and a sample costs its own bytes. Values that are short are not worth a
// place: reading their lengths would mean reading all of the file. A page with a
// checksum is read whole, because a part of it cannot be checked.

// leastPlaced is the mean length of values, in bytes, from which on they get places.
const leastPlaced = 16 << 10

// lengthBytes is the size of the length that is stored before a value.
const lengthBytes = 4

// place is where a value is stored, without its length; n is -1 for a null.
type place struct {
	off int64
	n   int32
}

// places finds the values of the pages of a chunk that can be read one by one. Pages
// that are not as they should be get no places: reading a row of one reads the page,
// and reports the damage. Errors: those of reading.
func (s *scanner) places(col *meta.Column, ref *chunkRef, rows int64) error {
	if col.Physical != meta.PhysBytes || col.DType != mem.Object || col.Rep > 0 {
		return nil
	}
	var dict []place
	looked := false
	for i := range ref.pages {
		p := &ref.pages[i]
		end := rows
		if i+1 < len(ref.pages) {
			end = ref.pages[i+1].row
		}
		n := end - p.row
		inDict := ref.dictLen >= leastPlaced*2 && p.flags&flagPlain == 0
		if n < 1 || !inDict && p.n/n < leastPlaced {
			continue
		}
		h, err := s.header(p.off, p.off+p.n)
		switch {
		case errs.CodeOf(err) == errs.Damaged:
			continue
		case err != nil:
			return err
		case !h.Holds() || int64(h.Length)+int64(h.Packed) != p.n || int64(h.Values) != n || !h.Plain(int(ref.codec)) || h.Summed:
			continue
		}
		switch {
		case h.Encoding == pages.EncPlain && p.n/n >= leastPlaced && n > 1:
			p.values, err = s.plainPlaces(col, int(ref.codec), &h, p)
		case h.Dictionary() && inDict:
			if !looked {
				looked = true
				if dict, err = s.dictPlaces(ref); err != nil {
					return err
				}
			}
			p.values, err = s.numberPlaces(col, int(ref.codec), p, dict)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plainPlaces are those of a page of values stored one after the other; nil: they
// cannot be determined.
func (s *scanner) plainPlaces(col *meta.Column, codec int, h *pages.Header, p *pageRef) ([]place, error) {
	m, err := s.levels(col, codec, h, p.off, p.n)
	switch {
	case errs.CodeOf(err) == errs.Damaged:
		return nil, nil
	case err != nil:
		return nil, err
	}
	there, err := s.lengths(p.off+int64(h.Length)+int64(m.Front), p.off+p.n, m.Values)
	if err != nil || there == nil || m.Defs == nil {
		return there, err
	}
	all := make([]place, 0, h.Values)
	for _, d := range m.Defs {
		if int(d) < col.Def {
			all = append(all, place{n: -1})
			continue
		}
		all = append(all, there[0])
		there = there[1:]
	}
	return all, nil
}

// dictPlaces are those of the values of a dictionary.
func (s *scanner) dictPlaces(ref *chunkRef) ([]place, error) {
	h, err := s.header(ref.dict, ref.dict+ref.dictLen)
	switch {
	case errs.CodeOf(err) == errs.Damaged:
		return nil, nil
	case err != nil:
		return nil, err
	case h.Kind != pages.KindDict || h.Encoding != pages.EncPlain && h.Encoding != pages.EncPlainDict || int64(h.Length)+int64(h.Packed) != ref.dictLen ||
		!h.Plain(int(ref.codec)) || h.Summed || h.Values < 2 || ref.dictLen/int64(h.Values) < leastPlaced:
		return nil, nil
	}
	return s.lengths(ref.dict+int64(h.Length), ref.dict+ref.dictLen, h.Values)
}

// numberPlaces are those of a page of numbers in the dictionary.
func (s *scanner) numberPlaces(col *meta.Column, codec int, p *pageRef, dict []place) ([]place, error) {
	if dict == nil {
		return nil, nil
	}
	raw, err := format.Read(s.ctx, s.src, s.obj, p.off, p.n)
	if err != nil {
		return nil, err
	}
	known := make(pages.Block, 4*pages.BlockHead) // that the numbers are checked against: only how many there are
	binary.LittleEndian.PutUint32(known[4*pages.BlockValues:], uint32(len(dict)))
	b, err := pages.Decode(col, codec, raw, known, false)
	if err != nil {
		return nil, nil //nolint:nilerr // reading a row reports it
	}
	all := make([]place, b.Get(pages.BlockRows))
	for i := range all {
		if all[i].n = -1; b.Null(i) == 0 {
			all[i] = dict[b.U32(b.Get(pages.BlockData)+4*i)]
		}
	}
	return all, nil
}

// lengths walks over n values that fill the bytes from at to end exactly; nil: they
// do not.
func (s *scanner) lengths(at, end int64, n int) ([]place, error) {
	if int64(n) > (end-at)/lengthBytes {
		return nil, nil
	}
	all := make([]place, 0, n)
	var head [lengthBytes]byte
	for range n {
		if end-at < lengthBytes {
			return nil, nil
		}
		if err := s.src.ReadAt(s.ctx, s.obj, head[:], at); err != nil {
			return nil, format.InShard(err)
		}
		at += lengthBytes
		size := int64(binary.LittleEndian.Uint32(head[:]))
		if size > end-at {
			return nil, nil
		}
		all = append(all, place{at, int32(size)})
		at += size
	}
	if at != end {
		return nil, nil
	}
	return all, nil
}

// placed is the place of a row that begins in page p, where the index has it.
func (d *Dataset) placed(p int, row int64) (place, bool) {
	first := d.pageValue[p]
	if first < 0 {
		return place{}, false
	}
	i := first + row - d.pageRow[p]
	return place{d.valueOff[i], d.valueLen[i]}, true
}

// extent is what is read of a place: the value and its length.
func (v place) extent(file int) format.Extent {
	return format.Extent{File: file, Off: v.off - lengthBytes, Len: int64(v.n) + lengthBytes}
}

// validPlaces says whether the places of page p, which has n rows, are within a file
// of size bytes.
func (d *Dataset) validPlaces(c, p int, n, size int64) bool {
	first := d.pageValue[p]
	if first == -1 {
		return true
	}
	if col := &d.columns[c]; col.Physical != meta.PhysBytes || col.DType != mem.Object || col.Rep > 0 || col.Why != "" {
		return false
	}
	if first < 0 || n < 0 || n > int64(len(d.valueOff)) || first > int64(len(d.valueOff))-n {
		return false
	}
	for i := first; i < first+n; i++ {
		if off, n := d.valueOff[i], int64(d.valueLen[i]); n != -1 && (n < 0 || off < lengthBytes || off > size || n > size-off) {
			return false
		}
	}
	return true
}
