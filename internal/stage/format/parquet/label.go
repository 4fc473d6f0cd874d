package parquet

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
	"github.com/stoker-data/stoker/internal/stage/format/parquet/pages"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// classes are the labels of the rows of one file.
type classes struct {
	column string
	ids    []int64  // of texts: numbers in names
	names  []string // of texts, as they came; else those that the file tells, or nil
	texts  bool
	no     map[string]int64
}

// label reads the column that numbers the classes: want, or, if that is empty, the
// one column that is described as such. In the latter case, since nobody asked for
// it, there is no label if some rows would have no class.
func (p *part) label(ctx context.Context, src source.Source, want string) error {
	if want == None {
		return nil
	}
	asked := want != ""
	if !asked {
		for _, c := range p.columns {
			if p.hf[c.Name].Type != "ClassLabel" || c.List() || !whole(c.DType) {
				continue
			}
			if want != "" {
				return nil
			}
			want = c.Name
		}
		if want == "" {
			return nil
		}
	}
	at := errs.Where{Shard: p.obj.Name, Field: want}
	c := slices.IndexFunc(p.columns, func(c meta.Column) bool { return c.Name == want })
	if c < 0 {
		var have []string
		for _, c := range p.columns {
			have = append(have, c.Name)
		}
		e := errs.New(errs.Config, "there is no column %q to take the labels from", want).At(at)
		if near := errs.Nearest(want, have); near != "" {
			return e.Try("did you mean %q?", near)
		}
		return e.Try("there are %q", have)
	}
	col := &p.columns[c]
	if col.Why != "" || col.List() || col.DType != mem.Object && !whole(col.DType) {
		return errs.New(errs.Config, "column %q cannot number classes: labels are whole numbers or texts", want).At(at).
			Try("leave label out, and take the column as a field")
	}
	p.classes = &classes{column: want, texts: col.DType == mem.Object, no: make(map[string]int64)}
	if !p.classes.texts {
		p.classes.names = p.hf[want].Names
	}
	for g := range p.chunks {
		if err := p.readLabels(ctx, src, g, c); err != nil {
			if !asked && errs.CodeOf(err) == errs.MissingField {
				p.classes = nil
				return nil
			}
			return err
		}
	}
	return nil
}

func whole(t mem.DType) bool {
	return t != mem.Object && t != mem.Float16 && t != mem.Float32 && t != mem.Float64 && t != mem.Bool
}

// readLabels reads one chunk whole, page by page.
func (p *part) readLabels(ctx context.Context, src source.Source, g, c int) error {
	col, ref := &p.columns[c], &p.chunks[g][c]
	fail := func(off int64, err error) error {
		e := meta.DamagedAt(p.obj, off, "cannot decode column %q of row group %d", col.Name, g)
		e.Where.Field = col.Name
		return e.Because(err)
	}
	var dict pages.Block
	if ref.dictLen > 0 {
		raw, err := format.Read(ctx, src, p.obj, ref.dict, ref.dictLen)
		if err != nil {
			return err
		}
		if dict, err = pages.DecodeDict(col, int(ref.codec), raw); err != nil {
			return fail(ref.dict, err)
		}
	}
	have := int64(0)
	for _, pg := range ref.pages {
		raw, err := format.Read(ctx, src, p.obj, pg.off, pg.n)
		if err != nil {
			return err
		}
		b, err := pages.Decode(col, int(ref.codec), raw, dict, true)
		if err != nil {
			return fail(pg.off, err)
		}
		for i := range b.Get(pages.BlockRows) {
			if b.Null(i) != 0 {
				return p.unlabelled("has none")
			}
			if err := p.add(b.Value(i, raw, dict), col.DType); err != nil {
				return err
			}
		}
		have += int64(b.Get(pages.BlockRows))
	}
	if have != p.rows[g] {
		return meta.DamagedAt(p.obj, -1, "column %q of row group %d has %d rows instead of %d", col.Name, g, have, p.rows[g])
	}
	return nil
}

func (p *part) unlabelled(what string) error {
	return errs.New(errs.MissingField, "row %d of the file %s: every row needs a class in column %q", len(p.classes.ids), what, p.classes.column).
		At(errs.Where{Shard: p.obj.Name, Field: p.classes.column}).
		Try("number the classes from 0 on and fill in the nulls, or leave label out and take the column as a field")
}

func (p *part) add(v []byte, t mem.DType) error {
	k := p.classes
	if k.texts {
		id, known := k.no[string(v)]
		if !known {
			id = int64(len(k.names))
			k.no[string(v)] = id
			k.names = append(k.names, string(v))
		}
		k.ids = append(k.ids, id)
		return nil
	}
	n := number(v, t)
	if n < 0 || n > 1<<31-1 || k.names != nil && n >= int64(len(k.names)) {
		return p.unlabelled("has a number that is not a class")
	}
	k.ids = append(k.ids, n)
	return nil
}

// number is the value of an integer; of one beyond int64, -1.
func number(v []byte, t mem.DType) int64 {
	switch t {
	case mem.Int8:
		return int64(int8(v[0]))
	case mem.Uint8:
		return int64(v[0])
	case mem.Int16:
		return int64(int16(binary.LittleEndian.Uint16(v)))
	case mem.Uint16:
		return int64(binary.LittleEndian.Uint16(v))
	case mem.Int32:
		return int64(int32(binary.LittleEndian.Uint32(v)))
	case mem.Uint32:
		return int64(binary.LittleEndian.Uint32(v))
	}
	return max(int64(binary.LittleEndian.Uint64(v)), -1)
}

// writeClasses writes the classes of all files, if all have them. The classes of
// texts are all texts, sorted by their bytes.
func writeClasses(parts []*part, samples int64, b *index.Builder) error {
	label := int32(-1)
	for _, p := range parts {
		if p.classes == nil || p.classes.column != parts[0].classes.column || !slices.Equal(p.classes.known(), parts[0].classes.known()) {
			b.Int32s(labelOf, []int32{-1}, index.Aside)
			return nil
		}
	}
	k := parts[0].classes
	label = int32(slices.IndexFunc(parts[0].columns, func(c meta.Column) bool { return c.Name == k.column }))
	names := k.known()
	no := make(map[string]int64)
	if k.texts {
		for _, p := range parts {
			names = append(names, p.classes.names...)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		for i, n := range names {
			no[n] = int64(i)
		}
	}
	values, class := make([]int64, 0, samples), make([]int32, 0, samples)
	for _, p := range parts {
		for _, id := range p.classes.ids {
			if k.texts {
				id = no[p.classes.names[id]]
			}
			values, class = append(values, id), append(class, int32(id))
		}
	}
	b.Int32s(labelOf, []int32{label}, index.Aside)
	b.Int64s(labelValue, values, index.Aside)
	b.Int32s(index.SampleClass, class, index.Identity)
	if names != nil {
		var texts index.Texts
		for _, n := range names {
			texts.AppendString(n)
		}
		b.Strings(index.ClassName, &texts, index.Identity)
	}
	return nil
}

// known are the names of the classes that the file itself tells of numbers.
func (k *classes) known() []string {
	if k.texts {
		return nil
	}
	return k.names
}
