package parquet

import (
	"encoding/binary"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
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
func (s *scanner) places(col *column, ref *chunkRef, rows int64) error {
	if col.physical != physBytes || col.dtype != mem.Object || col.rep > 0 {
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
		case !h.holds() || int64(h.length)+int64(h.packed) != p.n || int64(h.values) != n || !h.plain(int(ref.codec)) || h.summed:
			continue
		}
		switch {
		case h.encoding == encPlain && p.n/n >= leastPlaced && n > 1:
			p.values, err = s.plainPlaces(col, int(ref.codec), &h, p)
		case h.dictionary() && inDict:
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
func (s *scanner) plainPlaces(col *column, codec int, h *pageHeader, p *pageRef) ([]place, error) {
	m, err := s.levels(col, codec, h, p.off, p.n)
	switch {
	case errs.CodeOf(err) == errs.Damaged:
		return nil, nil
	case err != nil:
		return nil, err
	}
	there, err := s.lengths(p.off+int64(h.length)+int64(m.base), p.off+p.n, m.n)
	if err != nil || there == nil || m.defs == nil {
		return there, err
	}
	all := make([]place, 0, h.values)
	for _, d := range m.defs {
		if int(d) < col.def {
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
	case h.kind != pageDict || h.encoding != encPlain && h.encoding != encPlainDict || int64(h.length)+int64(h.packed) != ref.dictLen ||
		!h.plain(int(ref.codec)) || h.summed || h.values < 2 || ref.dictLen/int64(h.values) < leastPlaced:
		return nil, nil
	}
	return s.lengths(ref.dict+int64(h.length), ref.dict+ref.dictLen, h.values)
}

// numberPlaces are those of a page of numbers in the dictionary.
func (s *scanner) numberPlaces(col *column, codec int, p *pageRef, dict []place) ([]place, error) {
	if dict == nil {
		return nil, nil
	}
	raw, err := format.Read(s.ctx, s.src, s.obj, p.off, p.n)
	if err != nil {
		return nil, err
	}
	known := make(block, 4*blockHead) // that the numbers are checked against: only how many there are
	binary.LittleEndian.PutUint32(known[4*blockValues:], uint32(len(dict)))
	b, err := decode(col, codec, raw, known, false)
	if err != nil {
		return nil, nil //nolint:nilerr // reading a row reports it
	}
	all := make([]place, b.get(blockRows))
	for i := range all {
		if all[i].n = -1; b.null(i) == 0 {
			all[i] = dict[b.u32(b.get(blockData)+4*i)]
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
	if col := &d.columns[c]; col.physical != physBytes || col.dtype != mem.Object || col.rep > 0 || col.why != "" {
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
