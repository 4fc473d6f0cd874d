package verify

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/tool/inspect"
)

// plainly verifies a dataset that stoker pack has not written.
func plainly(ctx context.Context, c Config) (*Report, error) {
	r, err := verified(ctx, c)
	if err == nil || errs.CodeOf(err) != errs.Damaged || ctx.Err() != nil {
		return r, err
	}
	if shard := errs.From(err).Where.Shard; c.Dataset.Manifest == "" {
		if kind := c.depends(shard); kind != nil {
			return together(ctx, c, kind, source.Dir(shard), err)
		}
	}
	all := c.files(ctx, errs.From(err))
	if len(all) < 2 {
		return nil, err
	}
	// If one shard cannot be indexed, the others may still be undamaged: index each
	// by itself.
	var wrong []*wire.Error
	var sound []string
	for _, name := range all {
		one := c.Dataset
		one.Path = spec.Paths{name}
		_, e := inspect.Run(ctx, inspect.Config{Dataset: one, Formats: c.Formats, Sources: c.Sources, Check: -1})
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case e != nil:
			wrong = append(wrong, wire.FromError(errs.From(e)))
		default:
			sound = append(sound, name)
		}
	}
	if len(wrong) == 0 || len(sound) == 0 {
		if len(wrong) == 0 {
			return nil, err // the damage is in their combination
		}
		return unread(c, wrong, len(all), err), nil
	}
	c.Dataset.Path = sound
	if r, err = verified(ctx, c); err != nil {
		return nil, err
	}
	r.Shards, r.Sound = append(wrong, r.Shards...), sound
	return r, nil
}

// unread is the report on files of which no sample can be read.
func unread(c Config, wrong []*wire.Error, files int, err error) *Report {
	r := &Report{Report: &inspect.Report{Path: c.Dataset.Path, Format: c.Dataset.Format, Files: int64(files)}, Dataset: c.Dataset}
	r.Shards, r.Unread = wrong, wire.FromError(errs.From(err))
	return r
}

// depends is the format of a shard that is not a dataset by itself, by its name; nil: it
// is one.
func (c Config) depends(shard string) *dataset.Format {
	all := c.Formats
	if all == nil {
		all = dataset.Formats()
	}
	at := slices.IndexFunc(all, func(f dataset.Format) bool {
		return f.Damage != nil && slices.Contains(f.Endings, path.Ext(shard))
	})
	if at < 0 {
		return nil
	}
	return &all[at]
}

// together is the report on a dataset that does not open and whose shards depend on each
// other: all damaged ones are named, and no sample is read.
func together(ctx context.Context, c Config, kind *dataset.Format, root string, err error) (*Report, error) {
	src, e := c.source()
	if e != nil {
		return nil, e
	}
	defer src.Close()
	damage, files, e := kind.Damage(ctx, src, root)
	if e != nil || len(damage) == 0 {
		return nil, errors.Join(e, err)
	}
	var wrong []*wire.Error
	for _, d := range damage {
		wrong = append(wrong, wire.FromError(d))
	}
	return unread(c, wrong, files, err), nil
}

// verified is the report on a dataset that opens completely.
func verified(ctx context.Context, c Config) (*Report, error) {
	r := &Report{Dataset: c.Dataset, Opened: true}
	sums := &digests{}
	src, err := c.source()
	if err != nil {
		return nil, err
	}
	defer src.Close()
	var broken []*errs.Error
	report, err := inspect.Run(ctx, c.inspection(func(ds format.Stored) (err error) {
		if h, ok := ds.(hashed); ok && !c.Quick && c.Share == 0 {
			if broken, err = r.hashes(ctx, src, h, ds); err != nil {
				return err
			}
		}
		if ds, ok := ds.(lossy); ok {
			for _, e := range ds.Lost() {
				r.Lost = append(r.Lost, wire.FromError(e))
			}
		}
		return sums.open(ctx, src, ds.Index())
	}, sums.compare))
	if err != nil {
		return nil, err
	}
	r.Report, r.Digests, r.Compared = report, sums.path, sums.compared.Load()
	r.merge(broken)
	return r, nil
}

// files are the files of a dataset in which each is a shard by itself: the list in
// its paths, or for a folder those named like the damaged one.
func (c Config) files(ctx context.Context, damage *errs.Error) []string {
	d := c.Dataset
	bad := damage.Where.Shard
	if bad == "" {
		bad = damage.Where.File
	}
	if d.Manifest != "" || bad == "" {
		return nil
	}
	src, err := c.source()
	if err != nil {
		return nil
	}
	defer src.Close()
	paths, err := pattern.ExpandFrom(ctx, src, d.Path, d.Elsewhere)
	if err != nil {
		return nil
	}
	if len(paths) != 1 {
		return paths
	}
	if !source.IsDir(ctx, src, paths[0]) {
		return nil
	}
	entries, err := source.Names(ctx, src, source.Dir(bad))
	if err != nil {
		return nil
	}
	paths = nil
	for _, e := range entries {
		if !strings.HasPrefix(e.Base(), ".") && path.Ext(e.Name) == path.Ext(bad) {
			paths = append(paths, e.Name)
		}
	}
	return paths
}
