// Package dataset opens what a Spec names: it detects formats, opens or builds indexes,
// puts the members of a mixture one after the other, and compiles the fields of the Spec
// against what is stored. It reads a few samples to do so, and starts nothing: tools
// that look at samples need no loader.
package dataset

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/browse"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
)

// Options are what Open needs in addition to the Spec.
type Options struct {
	Formats  []Format                             // nil: Formats()
	Sources  []source.Scheme                      // nil: Sources()
	Progress func(done, total int64, what string) // of indexing; may be nil
	// Wrap wraps the source of the dataset; may be nil.
	Wrap func(source.Source) source.Source
	// Stored means that stored data is inspected and no batch is made, so all fields may
	// be left out.
	Stored bool
	// Order means that only the order of samples is asked for and no batch is made. Where the
	// Spec names no fields, its batch transform need not fit those that are stored.
	Order bool
	// Bare means that floats of pictures are made by whoever gets the batches, as far as
	// Column.Left says how; nothing else differs, digests neither.
	Bare bool
	// Mixes means that whoever gets the batches does what the batch transform chooses, after
	// the device transform and the conversion to floats; nothing else differs.
	Mixes bool
	// Crew means that something else than this process makes samples, so datasets may be
	// of a format that cannot.
	Crew bool
}

// patience is how long Open waits, after its context has ended, for calls that respect
// it: then nothing of theirs is left running.
const patience = 200 * time.Millisecond

// Open opens what a Spec names. Errors name every problem of the Spec at once. It
// returns when ctx ends, even if a call of a source hangs: what that opens, should it
// ever return, is closed.
func Open(ctx context.Context, s spec.Spec, opt Options) (*Collection, error) {
	if ctx.Done() == nil {
		return open(ctx, s, opt)
	}
	var c *Collection
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err = open(ctx, s, opt)
	}()
	select {
	case <-done:
		return c, err
	case <-ctx.Done():
	}
	drop := func() {
		if c != nil {
			c.Close()
		}
	}
	select {
	case <-done:
		drop()
	case <-time.After(patience):
		go func() {
			<-done
			drop()
		}()
	}
	return nil, ctx.Err()
}

func open(ctx context.Context, s spec.Spec, opt Options) (*Collection, error) {
	if opt.Formats == nil {
		opt.Formats = Formats()
	}
	s = s.Defaults()
	s.Dataset = s.Dataset.Hidden()
	known := known(opt.Formats)
	p := s.Check(known)
	if !s.Dataset.Openable(known) {
		return nil, p.Err()
	}
	c, err := openCollection(ctx, s, opt)
	if err != nil && len(p) > 0 && ctx.Err() == nil {
		p.Addf("%s", withHint(err))
		err = p.Err()
	}
	if err != nil {
		return nil, err
	}
	c.spec = s
	if err := c.compile(ctx, p, opt); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// openPart opens one dataset.
func openPart(ctx context.Context, src source.Source, d spec.Dataset, opt Options) (*Part, error) {
	opt.Progress = inTurn(opt.Progress)
	look := browse.New(ctx, src, func(names int64) {
		if opt.Progress != nil {
			opt.Progress(names, 0, "names")
		}
	})
	look.Believe = d.Storage.Fresh == spec.FreshNever
	defer look.End()
	f := finder{ctx, look, opt.Formats}
	kind, paths, err := f.find(d)
	if err != nil {
		return nil, f.mistaken(d, err)
	}
	if err := meaningless(opt.Formats, d, kind); err != nil {
		return nil, err
	}
	ds, err := kind.open(ctx, d, format.Opening{Source: look, Paths: paths, Progress: opt.Progress})
	if err != nil {
		return nil, f.mistaken(d, err)
	}
	p, err := newPart(ctx, look, d, kind, ds, opt)
	if err != nil {
		if c, ok := ds.(io.Closer); ok {
			_ = c.Close()
		}
		return nil, err
	}
	return p, nil
}

// inTurn lets one call of tell happen at a time: listing and indexing do not know of each
// other.
func inTurn(tell func(done, total int64, what string)) func(done, total int64, what string) {
	if tell == nil {
		return nil
	}
	var mu sync.Mutex
	return func(done, total int64, what string) {
		mu.Lock()
		defer mu.Unlock()
		tell(done, total, what)
	}
}

// find is the format of a dataset, and its expanded paths; no paths for one that is not
// stored.
func (f finder) find(d spec.Dataset) (*Format, []string, error) {
	all := f.all
	if at := slices.IndexFunc(all, func(f Format) bool { return f.Made && f.Name == d.Format }); at >= 0 {
		return &all[at], nil, nil
	}
	if d.Manifest != "" && (d.Format == "" || d.Format == "auto") {
		d.Format = all[slices.IndexFunc(all, func(f Format) bool { return slices.Contains(f.Keys, "manifest") })].Name
	}
	paths, err := pattern.ExpandFrom(f.ctx, f.src, d.Paths(), d.Elsewhere)
	if err != nil {
		return nil, nil, err
	}
	dirs := make([]bool, len(paths)) // asked for together: one by one, each object would be a request
	if err := source.Stats(f.ctx, f.src, paths, func(i int, st source.Info, err error) error {
		dirs[i] = err == nil && st.Dir
		return nil
	}); err != nil {
		return nil, nil, err
	}
	for i, dir := range paths {
		if dirs[i] {
			if err := f.wholePacking(dir); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := f.wholeShards(d.Paths(), paths); err != nil {
		return nil, nil, err
	}
	return f.sniff(d.Format, paths)
}
