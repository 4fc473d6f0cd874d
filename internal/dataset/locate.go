package dataset

import (
	"context"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Locate adds the location of a field's bytes to a codec's error.
func (d *Part) Locate(err error, s *format.Sample, at, i int) error {
	e := *errs.From(err)
	f := &s.Fields[at]
	e.Where.Field = d.Fields[i].Name
	if f.File >= 0 {
		path := string(d.Stored.Index().AppendPath(f.File, nil))
		if f.Member != nil {
			e.Where.Shard, e.Where.Member = path, string(f.Member)
			if e.Where.Offset.Or(-1) < 0 || f.Unpacked {
				e.Where.Offset = errs.Known(f.Off)
			} else {
				e.Where.Offset = errs.Known(e.Where.Offset.Or(0) + f.Off)
			}
		} else {
			e.Where.File = path
			e.Where.Offset = errs.Known(e.Where.Offset.Or(0))
		}
	}
	return &e
}

// Where is the file or shard of a sample.
func (c *Collection) Where(sample int64) errs.Where {
	w := errs.Where{Sample: errs.Known(sample)}
	if sample < 0 {
		return w
	}
	if extents := c.Extents(sample, nil); len(extents) > 0 {
		e := extents[0]
		path := string(c.AppendPath(e.File, nil))
		if e.Whole {
			w.File, w.Offset = path, errs.Known(0)
		} else {
			w.Shard, w.Offset = path, errs.Known(e.Off)
		}
	}
	return w
}

// Located is an error of a sample with its id, and with its file or shard and offset if
// they are not set yet.
func (c *Collection) Located(err error, sample int64) *errs.Error {
	e := *errs.From(err)
	where := c.Where(sample)
	if e.Where.File == "" && e.Where.Shard == "" {
		e.Where.File, e.Where.Shard = where.File, where.Shard
		if e.Where.Offset.Or(-1) < 0 {
			e.Where.Offset = where.Offset
		}
	}
	if where.Shard != "" && e.Where.File == where.Shard { // a source knows only files
		e.Where.File, e.Where.Shard, e.Where.Offset = "", where.Shard, errs.Known(max(e.Where.Offset.Or(-1), where.Offset.Or(-1)))
	}
	e.Where.Sample = errs.Known(sample)
	return &e
}

// Read reads the stored bytes of one sample directly, without read-ahead.
func (c *Collection) Read(ctx context.Context, sample int64) (raw [][]byte, err error) {
	for _, e := range c.Extents(sample, nil) {
		size, version := c.Stamp(e.File)
		obj := source.Info{Name: string(c.AppendPath(e.File, nil)), Size: size, Version: version}
		buf := make([]byte, e.Len)
		if err := c.src.ReadAt(ctx, obj, buf, e.Off); err != nil {
			return nil, err
		}
		raw = append(raw, buf)
	}
	return raw, nil
}
