package npy

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// array is one array as it is stored in a file.
type array struct {
	header Header
	member *member // of a zip file; nil: the file itself
}

func (a array) deflated() bool { return a.member != nil && a.member.method == deflated }

// holding is what one stored file has of the arrays that are wanted.
type holding struct {
	only   *array           // of a .npy file
	arrays map[string]array // of a .npz file, those that are wanted
	names  []string         // of all its arrays, in its order
	others int64            // members that are not arrays
	left   []leftOut        // of a .npz file of which every array is wanted

	refused error // why the array of a .npy file is not read
}

// leftOut is an array that cannot be read, while others beside it can.
type leftOut struct{ name, why string }

// arrayName is the array that a member of a .npz holds.
func arrayName(member string) (string, bool) { return strings.CutSuffix(member, ".npy") }

// look finds the arrays of one file; all of them if names is nil. summed is called with
// the number of bytes that were read for checksums.
func look(ctx context.Context, src source.Source, obj source.Info, names map[string]bool, opt Options, summed func(n int64)) (*holding, error) {
	begin, err := format.Read(ctx, src, obj, 0, min(obj.Size, int64(len(Magic))))
	if err != nil {
		return nil, err
	}
	if string(begin) == Magic || !zipped(obj.Name) {
		at := errs.Where{Shard: obj.Name, Offset: errs.Known(0)}
		h, err := readHeader(&stretch{ctx: ctx, src: src, obj: obj, n: obj.Size}, obj.Size, at)
		if errs.CodeOf(err) == errs.Unsupported {
			return &holding{only: &array{}, refused: err}, nil
		}
		if err != nil {
			return nil, err
		}
		return &holding{only: &array{header: h}}, nil
	}
	z := &zipFile{ctx: ctx, src: src, obj: obj}
	members, err := z.members()
	if err != nil {
		return nil, err
	}
	out := &holding{arrays: make(map[string]array)}
	var refused error
	for _, m := range members {
		name, ok := arrayName(m.name)
		if !ok {
			out.others++
			continue
		}
		if names != nil && !names[name] {
			out.names = append(out.names, name)
			continue
		}
		if err := z.readable(m, opt.UnpackedBytes); err != nil {
			return nil, err
		}
		a, err := z.array(m, opt.UnpackedBytes)
		if names == nil && errs.CodeOf(err) == errs.Unsupported {
			out.left = append(out.left, leftOut{name, errs.From(err).What})
			if refused == nil {
				refused = err
			}
			continue
		}
		if err == nil && !a.deflated() {
			err = z.compare(m, summed)
		}
		if err != nil {
			return nil, err
		}
		out.names = append(out.names, name)
		out.arrays[name] = a
	}
	if len(out.names) == 0 && refused != nil {
		return nil, refused
	}
	return out, nil
}

// array reads the header of an array in a zip file.
func (z *zipFile) array(m member, limit int64) (array, error) {
	if err := z.readable(m, limit); err != nil {
		return array{}, err
	}
	in := &stretch{ctx: z.ctx, src: z.src, obj: z.obj, off: m.body, n: m.compressed}
	at := errs.Where{Shard: z.obj.Name, Member: m.name, Offset: errs.Known(m.body)}
	var r io.Reader = in
	if m.method == deflated {
		r, at.Offset = inflate(in, 4<<10).out, errs.Known(m.head)
	}
	h, err := readHeader(r, m.size, at)
	return array{header: h, member: &m}, err
}

// readHeader reads the header of an array that, with it, has size bytes.
func readHeader(r io.Reader, size int64, at errs.Where) (Header, error) {
	fail := func(err error) error {
		e := *errs.From(err)
		switch {
		case e.Where.Shard != "" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
			return err
		case e.Code == errs.Bug: // of package flate
			e = *errs.New(errs.Damaged, "cannot decompress an array").Because(err).Try("fetch or write the file again")
		}
		e.Where = at
		return &e
	}
	p := make([]byte, min(size, 12))
	if _, err := io.ReadFull(r, p); err != nil {
		return Header{}, fail(err)
	}
	n, err := HeaderLen(p)
	if err != nil {
		return Header{}, fail(err)
	}
	if n > size {
		return Header{}, fail(errs.New(errs.Damaged, "it ends inside its header, which should have %d bytes", n).Try("fetch or write the file again"))
	}
	p = append(p, make([]byte, max(0, n-int64(len(p))))...)
	if n > 12 {
		if _, err := io.ReadFull(r, p[12:]); err != nil {
			return Header{}, fail(err)
		}
	}
	h, err := ParseHeader(p)
	if err != nil {
		return Header{}, fail(err)
	}
	return h, fits(h, size, at)
}

// fits holds the length that a header promises against the one there is.
func fits(h Header, size int64, at errs.Where) error {
	have := size - h.Off
	switch {
	case h.Bytes > have:
		at.Offset = errs.Known(at.Offset.Or(0) + size)
		return errs.New(errs.Damaged, "the array %s of %s has %d bytes, and only %d are there: it was cut off", shown(h.Shape), h.DType, h.Bytes, have).
			At(at).Try("fetch or write the file again")
	case h.Bytes < have:
		at.Offset = errs.Known(at.Offset.Or(0) + h.Off + h.Bytes)
		return errs.New(errs.Damaged, "the array %s of %s is followed by %d more bytes", shown(h.Shape), h.DType, have-h.Bytes).
			At(at).Try("if numpy.save wrote several arrays into one file, write each into its own, or all with numpy.savez")
	case len(h.Shape) == 0:
		return errs.New(errs.Unsupported, "the array is one number, a %s without an axis to take samples from", h.DType).
			At(at).Try("leave it out: name the arrays to load (columns=); or save it with an axis: array.reshape(1)")
	}
	return nil
}

func build(ctx context.Context, src source.Source, w want, files []string, opt Options, b *index.Builder) error {
	objs, err := format.Stat(ctx, src, files, "NumPy file")
	if err != nil {
		return err
	}
	names := make(map[string]map[string]bool) // of files: the arrays that are wanted
	for _, f := range w.fields {
		for _, p := range f.Paths {
			if names[p] == nil {
				names[p] = make(map[string]bool)
			}
			names[p][f.Array] = true
		}
	}
	found := make([]*holding, len(files))
	tally := format.NewTally(opt.Progress, objs)
	err = format.EachOf(ctx, src, files[0], len(files), func(i int) error {
		seen := int64(0)
		summed := func(n int64) {
			seen += n
			tally.Add(n)
		}
		if err := format.Settled(ctx, src, objs[i], func() (err error) {
			found[i], err = look(ctx, src, objs[i], names[files[i]], opt, summed)
			return err
		}); err != nil {
			return err
		}
		tally.Add(objs[i].Size - seen)
		return nil
	})
	if err != nil {
		return err
	}
	held := make(map[string]int, len(files))
	for i, f := range files {
		held[f] = i
	}
	if w.fields, err = w.readable(found, held); err != nil {
		return err
	}
	fields, err := w.resolved(found, held)
	if err != nil {
		return err
	}
	format.Describe(b, objs)
	return merge(fields, files, found, held, opt, b)
}

// readable is the fields of .npy files that are read. One that is not is an error if
// it was named, or if there is no other; else it is left out.
func (w want) readable(found []*holding, held map[string]int) (out []Field, err error) {
	var first error
	for _, f := range w.fields {
		i := slices.IndexFunc(f.Paths, func(p string) bool { return found[held[p]].refused != nil })
		if i < 0 {
			out = append(out, f)
			continue
		}
		h := found[held[f.Paths[i]]]
		if first == nil {
			first = h.refused
		}
		h.left = append(h.left, leftOut{f.Name, errs.From(h.refused).What})
	}
	if first != nil && (!w.grouped || len(out) == 0) {
		return nil, first
	}
	return out, nil
}

// resolved is the fields, with those of .npz files that are all wanted: each has
// the arrays of the first.
func (w want) resolved(found []*holding, held map[string]int) ([]Field, error) {
	if w.every == nil {
		return w.fields, nil
	}
	first := found[held[w.every[0]]]
	for _, p := range w.every {
		if found[held[p]].only != nil {
			return nil, errs.New(errs.Config, "the content of %s is a .npy file", p).At(errs.Where{Shard: p, Offset: errs.Known(0)}).Try("rename it")
		}
	}
	at := errs.Where{Shard: w.every[0]}
	if len(first.names) == 0 {
		return nil, errs.New(errs.Empty, "there is no array in %s", w.every[0]).At(at).Try("an array is a member whose name ends in .npy, as numpy.savez writes it")
	}
	for _, p := range w.every[1:] {
		if n := len(found[held[p]].names); n != len(first.names) {
			return nil, errs.New(errs.Config, "%s has %d arrays, and %s has %d", w.every[0], len(first.names), p, n).
				At(at).Try("name the fields to load, with their paths: Fields")
		}
	}
	var out []Field
	for _, name := range first.names {
		if !nameable(name) {
			return nil, unnamed(name)
		}
		out = append(out, Field{Name: name, Array: name, Paths: w.every})
	}
	return out, nil
}
