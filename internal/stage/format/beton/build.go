package beton

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The columns in addition to those that every index has. A place is a run of bytes in
// the pages; rows are sample by sample, and within one in the order of the fields.
const (
	placeOff    = "place.off"    // int64
	placeSize   = "place.size"   // int64: bytes
	pictureHead = "picture.head" // int64: mode | width << 8 | height << 24
	numberValue = "number.value" // bytes: 8 of every number, as they are stored in the file
	pageSize    = "page"         // int64, one row: bytes
	columnText  = "column"       // bytes: []column as JSON
)

const (
	modeJPEG = 0
	modeRaw  = 1
)

// step is the bytes that are read at once.
const step = 4 << 20

// alloc is one row of the allocations.
type alloc struct{ sample, off, size int64 }

// builder is one file as it is being indexed.
type builder struct {
	ctx  context.Context
	src  source.Source
	obj  source.Info
	tell index.Progress

	header
	cols   []column
	row    int   // bytes of a row of the samples
	rows   int64 // where they begin
	pages  int64 // where the pages begin
	allocs []alloc
	used   []bool // of allocs

	off, size, heads []int64
	value            []byte
}

func build(ctx context.Context, src source.Source, path string, b *index.Builder, progress index.Progress) error {
	objs, err := format.Stat(ctx, src, []string{path}, "FFCV file")
	if err != nil {
		return err
	}
	f := &builder{ctx: ctx, src: src, obj: objs[0], tell: progress}
	if err := format.Settled(ctx, src, f.obj, f.read); err != nil {
		return err
	}
	text, err := json.Marshal(f.cols)
	if err != nil {
		return errs.New(errs.Bug, "cannot write the columns").Because(err)
	}
	b.Meta.Samples = f.samples
	for _, c := range f.cols {
		if c.Why == "" {
			b.Meta.Fields = append(b.Meta.Fields, c.Name)
		}
	}
	if len(b.Meta.Fields) == 0 {
		return errs.New(errs.Unsupported, "the file has no field that can be read: %s", f.cols[0].Why).
			At(errs.Where{Shard: f.obj.Name, Offset: errs.Known(headerLen)})
	}
	format.Describe(b, objs)
	b.Int64s(placeOff, f.off, index.Aside)
	b.Int64s(placeSize, f.size, index.Identity)
	b.Int64s(pictureHead, f.heads, index.Identity)
	b.Bytes(numberValue, f.value, index.Identity)
	b.Int64s(pageSize, []int64{f.page}, index.Aside)
	b.Bytes(columnText, text, index.Identity)
	return nil
}

func (f *builder) wrong(off, sample int64, text string, a ...any) *errs.Error {
	return errs.New(errs.Damaged, text, a...).At(errs.Where{Shard: f.obj.Name, Offset: errs.Known(off), Sample: errs.Known(sample)}).
		Try("copy the file again, or write it again")
}

func (f *builder) read() error {
	b, err := format.Read(f.ctx, f.src, f.obj, 0, min(headerLen, f.obj.Size))
	if err != nil {
		return err
	}
	var wrong string
	if f.header, wrong = parseHeader(b, f.obj.Size); wrong != "" {
		return f.wrong(0, -1, "cannot read the file: %s", wrong)
	}
	if f.version != version {
		return errs.New(errs.Unsupported, "the file is of version %d; version %d can be read", f.version, version).
			At(errs.Where{Shard: f.obj.Name, Offset: errs.Known(0)}).Try("is it one of FFCV's? If it is an old one, write it again with FFCV 1.0")
	}
	if err := f.readFields(); err != nil {
		return err
	}
	if err := f.readAllocs(); err != nil {
		return err
	}
	return f.readRows()
}

func (f *builder) readFields() error {
	b, err := format.Read(f.ctx, f.src, f.obj, headerLen, int64(f.fields)*fieldLen)
	if err != nil {
		return err
	}
	for i := range f.fields {
		at := headerLen + int64(i)*fieldLen
		c, p := parseField(b[i*fieldLen : (i+1)*fieldLen])
		if p == nil && slices.ContainsFunc(f.cols, func(o column) bool { return o.Name == c.Name }) {
			p = &problem{what: fmt.Sprintf("there are two fields called %q; FFCV cuts names to %d bytes", c.Name, nameLen), hint: "write the file again with other names"}
		}
		if p != nil {
			e := f.wrong(at, -1, "cannot read the file: %s", p.what)
			if p.unsupported {
				e.Code = errs.Unsupported
			}
			if p.hint != "" {
				e.Hint = p.hint
			}
			return e
		}
		f.cols = append(f.cols, c)
	}
	f.row = layout(f.cols)
	number(f.cols)
	f.rows = headerLen + int64(f.fields)*fieldLen
	if f.samples > (f.header.allocs-f.rows)/int64(f.row) {
		return f.wrong(8, -1, "cannot read the file: %d samples of %d bytes do not fit into %d", f.samples, f.row, f.header.allocs-f.rows)
	}
	if f.samples == 0 {
		return errs.New(errs.Empty, "there is no sample in %s", f.obj.Name).At(errs.Where{Shard: f.obj.Name})
	}
	end := f.rows + f.samples*int64(f.row)
	f.pages = (end + f.page - 1) / f.page * f.page
	return nil
}

// readAllocs reads the allocations, in the order of their places.
func (f *builder) readAllocs() error {
	base := f.header.allocs
	for at := base; at < f.obj.Size; {
		b, err := format.Read(f.ctx, f.src, f.obj, at, min(step/allocLen*allocLen, f.obj.Size-at))
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += allocLen {
			sample, off, size := binary.LittleEndian.Uint64(b[i:]), binary.LittleEndian.Uint64(b[i+8:]), binary.LittleEndian.Uint64(b[i+16:])
			if size == 0 {
				continue // FFCV allocates no page for an empty value, and its place means nothing
			}
			if sample >= uint64(f.samples) || off < uint64(f.pages) || off > uint64(base) || size > uint64(base)-off || size > uint64(f.page) {
				return f.wrong(at+int64(i), -1, "an allocation is damaged: %d bytes at %d for sample %d, in a file with %d samples and pages of %d bytes from %d to %d",
					size, off, sample, f.samples, f.page, f.pages, base)
			}
			f.allocs = append(f.allocs, alloc{int64(sample), int64(off), int64(size)})
		}
		at += int64(len(b))
	}
	slices.SortFunc(f.allocs, func(a, b alloc) int { return cmp.Compare(a.off, b.off) })
	for i := 1; i < len(f.allocs); i++ {
		if a, b := f.allocs[i-1], f.allocs[i]; a.off+a.size > b.off {
			return f.wrong(b.off, b.sample, "two allocations share bytes: %d at %d for sample %d and %d at %d for sample %d", a.size, a.off, a.sample, b.size, b.off, b.sample)
		}
	}
	f.used = make([]bool, len(f.allocs))
	return nil
}

// readRows reads the samples.
func (f *builder) readRows() error {
	for i := range f.cols {
		f.cols[i].Fixed = f.cols[i].Kind == image
	}
	many := max(1, step/f.row)
	for id := int64(0); id < f.samples; {
		n := min(int64(many), f.samples-id)
		b, err := format.Read(f.ctx, f.src, f.obj, f.rows+id*int64(f.row), n*int64(f.row))
		if err != nil {
			return err
		}
		for i := range n {
			if err := f.add(id+i, b[i*int64(f.row):(i+1)*int64(f.row)]); err != nil {
				return err
			}
		}
		if id += n; f.tell != nil {
			f.tell(id, f.samples, "samples")
		}
	}
	for i := range f.cols {
		if c := &f.cols[i]; c.Fixed {
			c.DType = mem.Uint8
		} else if c.Kind == image {
			c.Shape = nil
		}
	}
	return nil
}

func (f *builder) add(id int64, row []byte) error {
	for i := range f.cols {
		c := &f.cols[i]
		v := row[c.At:]
		at := f.rows + id*int64(f.row) + int64(c.At)
		switch c.Kind {
		case float, whole:
			f.value = append(f.value, v[:8]...)
		case image:
			mode, w, h := int64(v[0]), int64(binary.LittleEndian.Uint16(v[1:])), int64(binary.LittleEndian.Uint16(v[3:]))
			if mode != modeJPEG && mode != modeRaw || w == 0 || h == 0 {
				return f.wrong(at, id, "the picture %q has the mode %d and %d x %d pixels", c.Name, mode, w, h)
			}
			want := int64(-1)
			if mode == modeRaw {
				want = w * h * 3
			}
			if err := f.place(id, c, at, binary.LittleEndian.Uint64(v[5:]), want); err != nil {
				return err
			}
			f.heads = append(f.heads, mode|w<<8|h<<24)
			shape := []int{int(h), int(w), 3}
			if id == 0 {
				c.Shape = shape
			}
			c.Fixed = c.Fixed && mode == modeRaw && slices.Equal(c.Shape, shape)
		case blob, text:
			n := binary.LittleEndian.Uint64(v[8:])
			if n > uint64(f.page) {
				return f.wrong(at, id, "%q has %d bytes, but a page %d", c.Name, n, f.page)
			}
			if err := f.place(id, c, at, binary.LittleEndian.Uint64(v), int64(n)); err != nil {
				return err
			}
		default:
			if err := f.place(id, c, at, binary.LittleEndian.Uint64(v), c.Bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// place records where a value is stored: the allocation at that place, which has to
// be the sample's and of want bytes (-1: of any number).
func (f *builder) place(id int64, c *column, at int64, off uint64, want int64) error {
	if want == 0 {
		f.off, f.size = append(f.off, f.pages), append(f.size, 0)
		return nil
	}
	i, found := 0, false
	if off <= uint64(f.obj.Size) {
		i, found = slices.BinarySearchFunc(f.allocs, int64(off), func(a alloc, off int64) int { return cmp.Compare(a.off, off) })
	}
	switch {
	case !found:
		return f.wrong(at, id, "%q should begin at byte %d, but nothing was allocated there", c.Name, off)
	case f.allocs[i].sample != id || f.used[i]:
		return f.wrong(at, id, "%q should begin at byte %d, where a value of sample %d is stored", c.Name, off, f.allocs[i].sample)
	case want >= 0 && f.allocs[i].size != want:
		return f.wrong(at, id, "%q should have %d bytes, but %d were allocated for it at byte %d", c.Name, want, f.allocs[i].size, off)
	}
	f.used[i] = true
	f.off, f.size = append(f.off, f.allocs[i].off), append(f.size, f.allocs[i].size)
	return nil
}

// valid says whether every number of the index can be used without further checks.
func valid(x *index.Index) bool {
	var cols []column
	if x.Files() != 1 || x.Len() < 1 || json.Unmarshal(x.Bytes(columnText), &cols) != nil || len(cols) == 0 {
		return false
	}
	before := slices.Clone(cols)
	places, heads, values := number(cols)
	for i := range cols {
		c := &cols[i]
		if c.Place != before[i].Place || c.Head != before[i].Head || c.Value != before[i].Value || c.Kind.String() == "" ||
			c.DType > mem.Float16 || c.Fixed && len(c.Shape) != 3 {
			return false
		}
	}
	if page := x.Int64s(pageSize); len(page) != 1 || page[0] < 1 {
		return false
	}
	off, size, n := x.Int64s(placeOff), x.Int64s(placeSize), x.Len()
	if int64(len(off)) != n*int64(places) || len(size) != len(off) || int64(len(x.Int64s(pictureHead))) != n*int64(heads) ||
		int64(len(x.Bytes(numberValue))) != n*int64(values)*8 {
		return false
	}
	end, _ := x.Stamp(0)
	for i := range off {
		if off[i] < 0 || size[i] < 0 || off[i] > end || size[i] > end-off[i] {
			return false
		}
	}
	return true
}
