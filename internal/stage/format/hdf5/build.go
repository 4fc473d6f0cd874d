package hdf5

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5/tree"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// maxUnwritten is how many rows of variable length a file may have in addition to one
// for each of its bytes.
const maxUnwritten = 1 << 19

// builder collects the columns of all files.
type builder struct {
	Dataset
	ctx  context.Context
	src  source.Source
	objs []source.Info
	opt  Options
	left []left // of the first file
}

func build(ctx context.Context, src source.Source, paths []string, opt Options, b *index.Builder) error {
	objs, err := format.Stat(ctx, src, paths, "HDF5 file")
	if err != nil {
		return err
	}
	bd := &builder{ctx: ctx, src: src, objs: objs, opt: opt}
	for i, obj := range objs {
		if err := format.Settled(ctx, src, obj, func() error { return bd.add(obj) }); err != nil {
			return err
		}
		// One file after the other, so that the error names the file that it is
		// about.
		one := Dataset{fields: bd.fields, files: bd.files[i:], chunkOff: bd.chunkOff, chunkSize: bd.chunkSize, chunkMask: bd.chunkMask, valueOff: bd.valueOff, valueSize: bd.valueSize}
		if err := one.checkFiles([]int64{obj.Size}); err != nil {
			return errs.New(errs.Damaged, "the file contradicts itself").At(errs.Where{Shard: obj.Name}).Because(err).
				Try("write the file again; h5stat and h5dump -pH show how the HDF5 library reads it")
		}
		if opt.Progress != nil {
			opt.Progress(int64(i+1), int64(len(objs)), "files")
		}
	}
	for _, f := range bd.files {
		b.Meta.Samples += f.Rows
	}
	if b.Meta.Samples == 0 {
		return errs.New(errs.Empty, "there is no row in %s", paths[0]).At(errs.Where{Shard: paths[0]}).
			Try("the datasets have a first dimension of 0")
	}
	for _, f := range bd.fields {
		b.Meta.Fields = append(b.Meta.Fields, f.Name)
	}
	return bd.write(b)
}

func (bd *builder) write(b *index.Builder) error {
	fields, err := json.Marshal(bd.fields)
	if err != nil {
		return err
	}
	files, err := json.Marshal(bd.files)
	if err != nil {
		return err
	}
	format.Describe(b, bd.objs)
	for i := range bd.left {
		if l := &bd.left[i]; !utf8.ValidString(l.Name) {
			l.Name = errs.Plain(l.Name)
		}
	}
	left, err := json.Marshal(leftOut{bd.left[:min(len(bd.left), shownLeft)], len(bd.left)})
	if err != nil {
		return err
	}
	b.Bytes(leftColumn, left, index.Aside)
	b.Bytes(fieldsColumn, fields, index.Identity)
	b.Bytes(layoutColumn, files, index.Aside)
	b.Int64s(chunkOff, bd.chunkOff, index.Aside)
	b.Int64s(chunkSize, bd.chunkSize, index.Aside)
	b.Int32s(chunkMask, bd.chunkMask, index.Aside)
	b.Int64s(valueOff, bd.valueOff, index.Aside)
	b.Int64s(valueSize, bd.valueSize, index.Identity)
	return nil
}

// add indexes one file.
func (bd *builder) add(obj source.Info) error {
	f, err := tree.Open(bd.ctx, bd.src, obj)
	if err != nil {
		return err
	}
	items, err := f.Items(false)
	if err != nil {
		return err
	}
	c := chooser{file: obj.Name, group: strings.Trim(bd.opt.Group, "/"), items: items, unread: func(d *tree.Dataset) (string, error) {
		_, l := laidOut("", d)
		why, _, err := bd.unread(d, &l)
		return why, err
	}}
	if i, path := c.follow(c.group); i >= 0 && items[i].Group {
		c.group = path // which its contents are listed under
	}
	chosen, err := c.choose(bd.opt.Columns, bd.fields)
	if err != nil {
		return err
	}
	one := file{Rows: chosen[0].Dims[0]}
	free := bd.opt.Columns == nil && len(bd.files) == 0 // nobody asked for this dataset or that
	var first error
	for i, d := range chosen {
		fd, l, err := bd.sound(f, c.names[i], d, obj.Size)
		switch {
		case err != nil && free && ofData(err):
			bd.left = append(bd.left, spoilt(c.names[i], err))
			if first == nil {
				first = err
			}
			continue
		case err != nil:
			return err
		}
		if len(bd.files) == 0 {
			bd.fields = append(bd.fields, fd)
		} else if have := bd.fields[i]; have.Class != fd.Class || have.DType != fd.DType || !slices.Equal(have.Shape, fd.Shape) {
			return errs.New(errs.Config, "the dataset %q holds %v of %v, and in %s %v of %v", d.Path, fd.DType, fd.Shape, bd.objs[0].Name, have.DType, have.Shape).
				At(errs.Where{Shard: obj.Name, Field: fd.Name}).Try("files that are read together need fields of one type and one shape")
		}
		one.Layouts = append(one.Layouts, l)
	}
	if len(one.Layouts) == 0 {
		return first
	}
	bd.left = append(bd.left, c.left...)
	bd.files = append(bd.files, one)
	return nil
}

// sound describes a dataset and checks it by itself; after an error the columns are
// as they were before.
func (bd *builder) sound(f *tree.File, name string, d *tree.Dataset, size int64) (field, layout, error) {
	chunks, values := len(bd.chunkOff), len(bd.valueOff)
	fd, l, err := bd.describe(f, name, d)
	if err == nil {
		if _, why := bd.checkLayout(&l, &fd, d.Dims[0], size, nil); why != nil {
			err = errs.New(errs.Damaged, "the dataset %q contradicts itself", d.Path).
				At(errs.Where{Shard: bd.objs[len(bd.files)].Name, Member: d.Path}).Because(why).
				Try("write the file again; h5stat and h5dump -pH show how the HDF5 library reads it")
		}
	}
	if err != nil {
		bd.chunkOff, bd.chunkSize, bd.chunkMask = bd.chunkOff[:chunks], bd.chunkSize[:chunks], bd.chunkMask[:chunks]
		bd.valueOff, bd.valueSize = bd.valueOff[:values], bd.valueSize[:values]
	}
	return fd, l, err
}

// laidOut is what a dataset holds and where, but for its chunks.
func laidOut(name string, d *tree.Dataset) (field, layout) {
	fd := field{Name: name, Class: d.Type.Class, DType: d.Type.DType, Shape: slices.Concat(d.Dims[1:], d.Type.Dims)}
	l := layout{Path: d.Path, Elem: d.Type.Size, Dims: d.Dims, Swapped: d.Type.Swapped, Unit: 1, Pad: d.Type.Pad, Fill: d.Fill, Chunk: d.Layout.Chunk, Off: d.Layout.Off, Filters: d.Filters}
	switch d.Type.Class {
	case tree.Number:
		l.Unit = int64(d.Type.DType.Size())
	case tree.Text, tree.Opaque, tree.VLenText:
		fd.DType, fd.Shape = mem.Object, nil
	case tree.VLen:
		l.Unit, l.Swapped, fd.DType, fd.Shape = int64(d.Type.Base.DType.Size()), d.Type.Base.Swapped, d.Type.Base.DType, nil
	}
	if fd.Shape == nil {
		fd.Shape = []int64{}
	}
	return fd, l
}

// describe is what a dataset holds and where, with its chunks or values entered.
func (bd *builder) describe(f *tree.File, name string, d *tree.Dataset) (field, layout, error) {
	fd, l := laidOut(name, d)
	switch why, hint, err := bd.unread(d, &l); {
	case err != nil:
		return fd, l, err
	case why != "":
		return fd, l, bd.refuse(d, hint, "%s", why)
	}
	if l.Chunk != nil {
		chunks, err := f.Chunks(d)
		if err != nil {
			return fd, l, err
		}
		l.First = int64(len(bd.chunkOff))
		for _, c := range chunks {
			bd.chunkOff, bd.chunkSize, bd.chunkMask = append(bd.chunkOff, c.Off), append(bd.chunkSize, c.Size), append(bd.chunkMask, int32(c.Mask))
		}
	}
	if d.Dims[0] == 0 {
		l.Chunk, l.Off = nil, -1
	}
	if d.Type.Class != tree.VLen && d.Type.Class != tree.VLenText {
		return fd, l, nil
	}
	return fd, l, bd.values(f, d, &l)
}

// values records where each value of variable length is stored, in place of the
// chunks that hold the references.
func (bd *builder) values(f *tree.File, d *tree.Dataset, l *layout) error {
	if d.Dims[0] > maxUnwritten+bd.objs[len(bd.files)].Size {
		return bd.refuse(d, "write the rows that there are, or fewer", "it has %d rows in a file of %d bytes", d.Dims[0], bd.objs[len(bd.files)].Size)
	}
	refs, err := bd.raw(d, l)
	if err != nil {
		return err
	}
	if l.Chunk != nil { // they were needed for this only
		bd.chunkOff, bd.chunkSize, bd.chunkMask = bd.chunkOff[:l.First], bd.chunkSize[:l.First], bd.chunkMask[:l.First]
	}
	unit := int64(1)
	if d.Type.Base != nil {
		unit = d.Type.Base.Size
	}
	found, err := f.Values(refs, unit)
	if err != nil {
		return err
	}
	l.First, l.Chunk, l.Filters, l.Fill, l.Off = int64(len(bd.valueOff)), nil, nil, nil, -1
	for _, v := range found {
		bd.valueOff, bd.valueSize = append(bd.valueOff, v.Off), append(bd.valueSize, v.Size)
	}
	return nil
}

// raw is all the bytes of a dataset of one dimension; bytes never written are
// zeros, which are not a valid reference.
func (bd *builder) raw(d *tree.Dataset, l *layout) ([]byte, error) {
	obj := bd.objs[len(bd.files)]
	n := d.Dims[0] * l.Elem
	if l.Chunk == nil {
		if l.Off < 0 {
			return make([]byte, n), nil
		}
		return format.Read(bd.ctx, bd.src, obj, l.Off, n)
	}
	out := make([]byte, n)
	for i := int64(0); i < l.grid(0) && n > 0; i++ {
		no := l.First + i
		if bd.chunkOff[no] < 0 {
			continue
		}
		at := errs.Where{Shard: obj.Name, Member: d.Path, Offset: errs.Known(bd.chunkOff[no])}
		err := l.fits(bd.chunkSize[no], bd.chunkMask[no])
		var block []byte
		if err == nil {
			if block, err = format.Read(bd.ctx, bd.src, obj, bd.chunkOff[no], bd.chunkSize[no]); err != nil {
				return nil, err
			}
			block, err = bd.packing.unpack(l.Filters, bd.chunkMask[no], block, l.unpacked())
		}
		if err != nil {
			return nil, broken(err, at)
		}
		copy(out[i*l.unpacked():], block)
	}
	return out, nil
}

func (bd *builder) refuse(d *tree.Dataset, hint, what string, a ...any) error {
	return errs.New(errs.Unsupported, "the dataset %q is not read: %s", d.Path, fmt.Sprintf(what, a...)).
		At(errs.Where{Shard: bd.objs[len(bd.files)].Name, Member: d.Path}).Try("%s", hint)
}

const leaveOut = "choose datasets without it: columns=[...]"

// unread says why a dataset cannot be read, and what to do; "": it can.
func (bd *builder) unread(d *tree.Dataset, l *layout) (why, hint string, err error) {
	switch {
	case d.Err != nil:
		return "", "", d.Err
	case !utf8.ValidString(d.Path):
		return "its name is not UTF-8", "write it under another name: f.move(old, new)", nil
	case d.Why != "":
		return d.Why, d.Hint, nil
	case d.Type.Class == tree.Refused:
		return fmt.Sprintf("it is a %s, and %s", d.Type.Name, d.Type.Why), leaveOut + ", or write it as arrays of numbers", nil
	case d.Type.Class != tree.Number && len(d.Dims) != 1:
		return fmt.Sprintf("a row has %v of type %s", d.Dims[1:], d.Type.Name), leaveOut + ", or write one " + d.Type.Name + " a row", nil
	case slices.Contains(d.Dims[1:], 0):
		return fmt.Sprintf("its rows of %v are empty", d.Dims[1:]), leaveOut, nil
	case l.row() < 0:
		return fmt.Sprintf("a row has %v elements of %d bytes", d.Dims[1:], l.Elem), "write rows of less than 1 GiB", nil
	case l.Chunk != nil && l.unpacked() < 0:
		return fmt.Sprintf("its chunks of %v elements take 1 GiB or more", l.Chunk), "write it in chunks of less than 1 GiB: h5repack -l NAME:CHUNK=...", nil
	}
	for i, f := range d.Filters {
		switch f.ID {
		case tree.Deflate, tree.LZF, tree.Fletcher, tree.Shuffle:
		default:
			return fmt.Sprintf("its chunks are compressed with %s (filter %d)", name(f), f.ID),
				"write it with gzip or lzf: h5repack -f NAME:GZIP=4 OLD NEW, where the filter is installed", nil
		}
		if ambiguous(d.Filters[:i+1], 0, sized(d.Filters[:i+1], 0, 0)) {
			return "its chunks are compressed twice", "write it with one compression", nil
		}
	}
	return "", "", nil
}

func name(f tree.Filter) string {
	if f.Name == "" {
		return "a filter without a name"
	}
	return f.Name
}

// broken is the error of bytes that could not be unpacked.
func broken(err error, at errs.Where) error {
	return errs.New(errs.Damaged, "cannot decompress a chunk").At(at).Because(err).Try("fetch or write the file again; stoker verify says what else of it is damaged")
}
