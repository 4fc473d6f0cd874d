package parquet

import (
	"context"
	"fmt"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/pages"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// A page, or a dictionary, that is longer than wholeBytes is not an extent of its
// samples: it would be read again with every batch that has one of them, although its
// block is kept. The extent is its beginning, which shows whether the file is still
// that of the index; the page is read when its block is made. This happens in a lane,
// which waits for the storage meanwhile; for pages of usual sizes it does not.
const (
	wholeBytes = 4 << 20
	frontBytes = 64
)

// atOnce is how many large pages are read and unpacked at once: each takes its own
// bytes, stored and unpacked, in addition to those that are kept.
const atOnce = 2

// stretch is the extent of n bytes of pages at off.
func stretch(file int, off, n int64) format.Extent {
	if n > wholeBytes {
		n = frontBytes
	}
	return format.Extent{File: file, Off: off, Len: n}
}

// whole is all n bytes of the page at off, of which raw is the extent, and a function
// to call when they are no longer needed. read says that nothing else holds them.
func (d *Dataset) whole(g int, off, n int64, raw []byte) (page []byte, read bool, done func(), err error) {
	if n <= wholeBytes {
		return raw, false, func() {}, nil
	}
	d.turn <- struct{}{}
	done = func() { <-d.turn }
	file := int(d.groupFile[g])
	size, version := d.x.Stamp(file)
	obj := source.Info{Name: string(d.x.AppendPath(file, nil)), Size: size, Version: version}
	if page, err = format.Read(context.Background(), d.src, obj, off, n); err != nil {
		done()
		return nil, false, nil, err
	}
	return page, true, done, nil
}

// Size is about the bytes of a field of sample id as they are stored, without any I/O:
// its own where the index has them, else its share of the page and of the dictionary;
// -1: there is no such field.
func (d *Dataset) Size(id int64, field string) int64 {
	n, share := d.size(id, field)
	return n + share
}

// Length is the exact bytes of a field of sample id, 0 for a null; -1 if the index has only
// its page, or there is no such field.
func (d *Dataset) Length(id int64, field string) int64 {
	n, share := d.size(id, field)
	if share > 0 {
		return -1
	}
	return n
}

// size is the bytes of a field of sample id, or its share of what it is stored in.
func (d *Dataset) size(id int64, field string) (n, share int64) {
	c := d.resolve(field)
	if c < 0 || c == d.label || d.columns[c].Why != "" || uint64(id) >= uint64(d.x.Len()) {
		return -1, 0
	}
	g := d.group(id)
	row := id - d.groupFirst[g]
	first, end := d.pages(g, c, row)
	if v, ok := d.placed(first, row); ok {
		return max(int64(v.n), 0), 0
	}
	for p := first; p < end; p++ {
		share += d.pageLen[p] / max(1, d.rowsOf(g, c, p))
	}
	if d.dictionary(g, c, first, end) {
		share += d.dictLen[g*len(d.columns)+c] / max(1, d.groupFirst[g+1]-d.groupFirst[g])
	}
	return 0, max(share, 1)
}

// rowsOf is how many rows begin in page p.
func (d *Dataset) rowsOf(g, c, p int) int64 {
	if int64(p)+1 < d.chunkPage[g*len(d.columns)+c+1] {
		return d.pageRow[p+1] - d.pageRow[p]
	}
	return d.groupFirst[g+1] - d.groupFirst[g] - d.pageRow[p]
}

// NotesFor says which of the wanted fields (nil: of all) cost a large page for every
// row that is read by itself, and how to write them.
func (d *Dataset) NotesFor(fields []string) (notes []string) {
	pick := d.wanted(fields, nil)
	for i, c := range pick {
		if !d.stored(pick, i) {
			continue
		}
		cost, row, packed := d.cost(c)
		if cost <= wholeBytes {
			continue
		}
		try := "smaller pages cost less (pyarrow: write_batch_size=16, data_page_size=65536, use_dictionary=False)"
		if packed {
			try = `with compression="none", each row is read by itself`
		}
		notes = append(notes, fmt.Sprintf("a row of %q has %s, but its whole page of %s is read and decompressed: "+
			"%s; `stoker pack` makes shards of the file as it is; a larger unpacked= keeps more pages (now %d MiB)",
			d.columns[c].Name, megabytes(row), megabytes(cost), try, d.keep>>20))
	}
	return notes
}

// cost is the mean bytes of column c that are read for a row by itself, and that a row
// has; packed: pages are compressed.
func (d *Dataset) cost(c int) (read, row int64, packed bool) {
	rows := int64(0)
	for g := range d.groupFile {
		at := g*len(d.columns) + c
		row += d.dictLen[at]
		for p := int(d.chunkPage[at]); p < int(d.chunkPage[at+1]); p++ {
			n := d.rowsOf(g, c, p)
			rows, row = rows+n, row+d.pageLen[p]
			if d.pageValue[p] >= 0 {
				continue
			}
			one := d.pageLen[p]
			if d.numbered(g, c, p) {
				one += d.dictLen[at]
			}
			read += n * one
			packed = packed || d.chunkCodec[at] != pages.CodecNone
		}
	}
	rows = max(rows, 1)
	return read / rows, row / rows, packed
}

func megabytes(n int64) string {
	if n < 1e6 {
		return fmt.Sprintf("%d kB", (n+500)/1000)
	}
	return fmt.Sprintf("%.0f MB", float64(n)/1e6)
}
