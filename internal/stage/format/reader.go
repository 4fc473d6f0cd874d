package format

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Reader reads samples one after the other, for tools: without the plan, the
// reading ahead and the shared reads of package fetch. It is for one goroutine;
// of one dataset there may be many.
type Reader struct {
	ds  Stored
	src source.Source

	extents []Extent
	before  []Extent // of the last sample
	raw     [][]byte
	buf     []byte
	path    []byte
}

// NewReader reads samples of ds, which is stored in src.
func NewReader(ds Stored, src source.Source) *Reader { return &Reader{ds: ds, src: src} }

// Read reads the wanted fields of a sample (nil: all of them). They are views,
// valid until the next Read. An error says where the sample is. Where the file
// is no longer the one that was indexed, the index is given up, so that the next
// Open makes a new one.
func (r *Reader) Read(ctx context.Context, id int64, fields []string, s *Sample) error {
	if err := r.Fetch(ctx, id, fields); err != nil {
		return err
	}
	return r.Parse(id, fields, s)
}

// Fetch is the first half of Read: what waits for the source.
func (r *Reader) Fetch(ctx context.Context, id int64, fields []string) error {
	err := r.fetch(ctx, id, fields)
	if err == nil {
		return nil
	}
	if errs.CodeOf(err) == errs.Changed {
		_ = r.ds.Index().Invalidate()
	}
	return Locate(r.ds, err, id, nil)
}

// Parse is the other half, of the sample that was fetched last: what computes.
func (r *Reader) Parse(id int64, fields []string, s *Sample) error {
	if err := r.ds.Parse(id, fields, r.raw, s); err != nil {
		return Locate(r.ds, err, id, nil)
	}
	return nil
}

// Trim gives memory back where more than keep bytes are held, and says whether it
// did; the sample that was read last is then gone.
func (r *Reader) Trim(keep int) bool {
	if cap(r.buf) <= keep {
		return false
	}
	r.buf, r.raw = nil, r.raw[:0]
	return true
}

// Stored is the bytes that Read had to read for its sample.
func (r *Reader) Stored() int64 {
	var n int64
	for _, p := range r.raw {
		n += int64(len(p))
	}
	return n
}

// fetch reads the extents of a sample; samples in a row that share all of theirs
// are read once.
func (r *Reader) fetch(ctx context.Context, id int64, fields []string) error {
	r.extents, r.before = r.ds.Extents(id, fields, r.before[:0]), r.extents
	if len(r.raw) > 0 && slices.Equal(r.extents, r.before) {
		return nil
	}
	var total int64
	for _, e := range r.extents {
		total += e.Len
	}
	if int64(cap(r.buf)) < total {
		r.buf = make([]byte, total)
	}
	r.raw = r.raw[:0]
	at := int64(0)
	x := r.ds.Index()
	for _, e := range r.extents {
		r.path = x.AppendPath(e.File, r.path[:0])
		size, version := x.Stamp(e.File)
		p := r.buf[at : at+e.Len : at+e.Len]
		if err := r.src.ReadAt(ctx, source.Info{Name: string(r.path), Size: size, Version: version}, p, e.Off); err != nil {
			r.raw = r.raw[:0]
			return err
		}
		r.raw = append(r.raw, p)
		at += e.Len
	}
	return nil
}

// Locate completes an error with where sample id is, and its field f where that
// is known; an error that is not the sample's fault (a context's) stays as it is.
func Locate(ds Stored, err error, id int64, f *Field) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := *errs.From(err)
	e.Where.Sample = errs.Known(id)
	e.Where.Field = strings.Clone(e.Where.Field) // names are views of an index that may be closed before the error is told
	if errors.Is(err, fs.ErrPermission) {
		e.Code = errs.Forbidden
	}
	extents := ds.Extents(id, nil, nil)
	if f != nil {
		e.Where.Field = strings.Clone(f.Name)
		if own := ds.Extents(id, []string{f.Name}, nil); len(own) > 0 {
			extents = own
		}
		extents = slices.DeleteFunc(extents, func(x Extent) bool { return x.File != f.File })
	}
	if len(extents) == 0 {
		return &e
	}
	x := extents[0]
	path := string(ds.Index().AppendPath(x.File, nil))
	switch known := e.Where.File != "" || e.Where.Shard != ""; {
	case known && (x.Whole || e.Where.File != path): // a source knows files only
		return &e
	case f != nil && f.Member != nil:
		e.Where.File, e.Where.Shard, e.Where.Member = "", path, string(f.Member)
		if e.Where.Offset = errs.Known(f.Off + max(e.Where.Offset.Or(-1), 0)); f.Unpacked {
			e.Where.Offset = errs.Known(f.Off)
		}
	case x.Whole:
		e.Where.File, e.Where.Offset = path, errs.Known(max(e.Where.Offset.Or(-1), 0))
	default: // where the sample begins, or further on
		e.Where.File, e.Where.Shard, e.Where.Offset = "", path, errs.Known(max(e.Where.Offset.Or(-1), x.Off))
	}
	return &e
}
