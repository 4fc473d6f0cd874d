package parquet

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The columns in addition to those that every index has. Chunks are numbered row
// group by row group, column by column.
const (
	columnName = "column.name" // strings
	columnPath = "column.path" // strings: parts joined by zeros
	columnWhy  = "column.why"  // strings: why it cannot be read; "": it can
	columnNull = "column.null" // int64: rows without a value, or without a list
	columnHole = "column.hole" // int64: nulls in its lists
	columnSpec = "column.spec" // int32: columnInts a column, see spec
	labelOf    = "label.of"    // int32: one row, the column whose values are the classes; -1: none
	labelValue = "label.value" // int64: class of every sample; no rows: no classes
	groupFirst = "group.first" // int64, one more than row groups: number of the first sample
	groupFile  = "group.file"  // int32
	chunkPage  = "chunk.page"  // int64, one more than chunks: number of the first page
	chunkCodec = "chunk.codec" // int32
	chunkDict  = "chunk.dict"  // int64: offset of the dictionary page, bytes
	chunkDictN = "chunk.dictn" // int64: its bytes; 0: there is none
	pageOff    = "page.off"    // int64: bytes
	pageLen    = "page.len"    // int64: bytes, with the header
	pageRow    = "page.row"    // int64: the first row of its group that begins in it
	pageFlags  = "page.flags"  // int32
	pageValue  = "page.value"  // int64: number of the place of its first row; -1: it is read whole
	valueOff   = "value.off"   // int64: offset of a value, bytes, see place
	valueLen   = "value.len"   // int32: its bytes; -1: null
)

// Flags of a page.
const (
	flagMid   = 1 // its first values end a list that began before it
	flagPlain = 2 // it needs no dictionary
)

// pageRef is where a page is stored and which rows begin in it.
type pageRef struct {
	off, n, row int64
	flags       int32
	values      []place // one a row; nil: the page is read whole
}

// chunkRef is where the pages of one column of one row group are stored.
type chunkRef struct {
	codec         int32
	absent        absent
	dict, dictLen int64
	pages         []pageRef
}

// part is what the index will have of one file.
type part struct {
	obj     source.Info
	no      int // of the file
	columns []meta.Column
	rows    []int64      // a row group
	chunks  [][]chunkRef // a row group, then a column
	classes *classes
	hf      map[string]meta.Feature
}

func build(ctx context.Context, src source.Source, paths []string, opt Options, b *index.Builder) error {
	objs, err := format.Stat(ctx, src, paths, "Parquet file")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	done := int64(0)
	parts := make([]*part, len(objs))
	err = format.EachOf(ctx, src, objs[0].Name, len(objs), func(i int) error {
		err := format.Settled(ctx, src, objs[i], func() (err error) {
			parts[i], err = scan(ctx, src, objs[i])
			if err == nil && parts[i].samples() > 0 {
				err = parts[i].label(ctx, src, opt.Label)
			}
			return err
		})
		if err == nil && opt.Progress != nil {
			mu.Lock()
			defer mu.Unlock()
			done++
			opt.Progress(done, int64(len(objs)), "files")
		}
		return err
	})
	if err != nil {
		return err
	}
	var full []*part // writers leave files without a row, whose columns may have no type
	for i, p := range parts {
		if p.no = i; p.samples() > 0 {
			full = append(full, p)
		}
	}
	if full == nil {
		return errs.New(errs.Empty, "there is no row in %s", objs[0].Name).At(errs.Where{Shard: objs[0].Name}).
			Try("check what wrote the file: it has columns and no rows")
	}
	for _, p := range full[1:] {
		if err := p.conform(full[0]); err != nil {
			return err
		}
	}
	return merge(objs, full, b)
}

// samples is the rows of all row groups.
func (p *part) samples() (n int64) {
	for _, rows := range p.rows {
		n += rows
	}
	return n
}

// conform brings the columns of a file into the order of the first one's.
func (p *part) conform(first *part) error {
	at := errs.Where{Shard: p.obj.Name}
	order := make([]int, len(first.columns))
	for i, want := range first.columns {
		j := slices.IndexFunc(p.columns, func(c meta.Column) bool { return c.Name == want.Name })
		at.Field = want.Name
		if j < 0 {
			return errs.New(errs.Unsupported, "the file has no column %q, which %s has", want.Name, first.obj.Name).At(at).
				Try("give files of one schema as one dataset, and others as another")
		}
		if !slices.Equal(p.columns[j].Spec(), want.Spec()) {
			return errs.New(errs.Unsupported, "column %q has another type than in %s", want.Name, first.obj.Name).At(at).
				Try("write the files with one schema, and as nullable in all of them or in none")
		}
		order[i] = j
	}
	if len(p.columns) > len(order) {
		for _, c := range p.columns {
			if !slices.ContainsFunc(first.columns, func(o meta.Column) bool { return o.Name == c.Name }) {
				at.Field = c.Name
				return errs.New(errs.Unsupported, "the file has a column %q, which %s does not have", c.Name, first.obj.Name).At(at).
					Try("give files of one schema as one dataset, and others as another")
			}
		}
	}
	for g, chunks := range p.chunks {
		sorted := make([]chunkRef, len(chunks))
		for i, j := range order {
			sorted[i] = chunks[j]
		}
		p.chunks[g] = sorted
	}
	p.columns = first.columns
	return nil
}

// merge puts the files that have rows into the index, one after the other.
func merge(objs []source.Info, parts []*part, b *index.Builder) error {
	var (
		first, pages, dicts, dictLens, offs, lens, rows []int64
		files, codecs, flags, spec                      []int32
		values, places                                  []int64
		sizes                                           []int32
		names, paths, whys                              index.Texts
		samples                                         int64
	)
	nulls, holes := make([]int64, len(parts[0].columns)), make([]int64, len(parts[0].columns))
	for _, p := range parts {
		for g, chunks := range p.chunks {
			first, files = append(first, samples), append(files, int32(p.no))
			samples += p.rows[g]
			for k, c := range chunks {
				pages, codecs = append(pages, int64(len(offs))), append(codecs, c.codec)
				nulls[k], holes[k] = nulls[k]+c.absent.rows, holes[k]+c.absent.items
				dicts, dictLens = append(dicts, c.dict), append(dictLens, c.dictLen)
				for _, pg := range c.pages {
					offs, lens, rows, flags = append(offs, pg.off), append(lens, pg.n), append(rows, pg.row), append(flags, pg.flags)
					if pg.values == nil {
						values = append(values, -1)
						continue
					}
					values = append(values, int64(len(places)))
					for _, v := range pg.values {
						places, sizes = append(places, v.off), append(sizes, v.n)
					}
				}
			}
		}
	}
	first, pages = append(first, samples), append(pages, int64(len(offs)))
	for i := range parts[0].columns {
		c := &parts[0].columns[i]
		names.AppendString(c.Name)
		paths.AppendString(strings.Join(c.Path, "\x00"))
		whys.AppendString(c.Why)
		spec = append(spec, c.Spec()...)
		b.Meta.Fields = append(b.Meta.Fields, c.Name)
	}
	b.Meta.Samples = samples
	format.Describe(b, objs)
	b.Strings(columnName, &names, index.Identity)
	b.Int32s(columnSpec, spec, index.Identity)
	b.Strings(columnPath, &paths, index.Aside)
	b.Strings(columnWhy, &whys, index.Aside)
	b.Int64s(columnNull, nulls, index.Aside)
	b.Int64s(columnHole, holes, index.Aside)
	b.Int64s(groupFirst, first, index.Identity)
	b.Int32s(groupFile, files, index.Identity)
	b.Int64s(chunkPage, pages, index.Aside)
	b.Int32s(chunkCodec, codecs, index.Aside)
	b.Int64s(chunkDict, dicts, index.Aside)
	b.Int64s(chunkDictN, dictLens, index.Aside)
	b.Int64s(pageOff, offs, index.Aside)
	b.Int64s(pageLen, lens, index.Aside)
	b.Int64s(pageRow, rows, index.Identity)
	b.Int32s(pageFlags, flags, index.Aside)
	b.Int64s(pageValue, values, index.Aside)
	b.Int64s(valueOff, places, index.Aside)
	b.Int32s(valueLen, sizes, index.Aside)
	return writeClasses(parts, samples, b)
}
