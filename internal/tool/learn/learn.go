// Package learn finds the entry points of all JPEGs of a dataset ahead of training, which
// would learn them in its first epochs.
package learn

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/entries"
	"github.com/stoker-data/stoker/internal/stage/facts"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Config is one run.
type Config struct {
	Data     format.Stored
	Source   source.Source
	Beside   string                  // the index that travels, beside which all are written too; "": none
	Progress func(done, total int64) // of samples; may be nil
}

// Report is what is known after a run.
type Report struct {
	Folder   string `json:"folder"`
	Beside   string `json:"beside,omitempty"` // the file beside the data
	Pictures int64  `json:"pictures"`         // JPEGs, of all samples
	Learned  int64  `json:"learned"`          // of them, those with entry points
	Known    int64  `json:"known"`            // of these, those of which all were known before
	Bad      int64  `json:"bad"`              // samples that could not be read
	Damaged  int64  `json:"damaged"`          // JPEGs that are: they have entry points up to there
	Bytes    int64  `json:"bytes"`            // of the store

	refused int64 // records: the limit
}

// block is how many samples a goroutine takes at a time: neighbours are often stored
// together.
const block = 64

// Run reads every sample, and decodes the pictures whose points are not all known: a run that
// was interrupted goes on where it was. It fails if nothing can be kept, or if the limit does
// not hold all; samples that cannot be read are counted.
func Run(ctx context.Context, c Config) (Report, error) {
	dir, limit := entries.Folder(c.Data.Index(), 0)
	if dir == "" {
		return Report{}, errs.New(errs.Config, "the index of this dataset is not kept, so its entry points cannot be").
			Because(errs.New(errs.Unreadable, "%s", c.Data.Index().Note())).Try("set STOKER_CACHE to a folder that can be written to")
	}
	o := entries.Options{Named: true, Beside: format.LocalBesidePath}
	if c.Beside != "" { // it is written anew
		o.Beside = nil
		if err := entries.CanWriteBeside(c.Beside); err != nil {
			return Report{}, err // before everything is read
		}
	}
	store, err := entries.Open(c.Data.Index(), o)
	if err != nil {
		return Report{}, err
	}
	defer store.Close()
	report, err := pass(ctx, c, store)
	if report.refused > 0 && err == nil {
		// Files may have changed since the store was filled: a merge makes room for the others.
		if err = store.Facts().Merge(ctx); err == nil {
			report, err = pass(ctx, c, store)
		}
	}
	report.Folder, report.Bytes = dir, store.Counts().Bytes
	if err == nil && report.refused > 0 {
		err = errs.New(errs.Space, "the entry points of %d pictures do not fit into their limit of %s", report.refused, mem.Size(limit)).
			At(errs.Where{File: dir}).Try("train with those that are kept: pictures without them are decoded as before")
	}
	if err == nil && c.Beside != "" {
		report.Beside, err = store.WriteBeside(c.Data.Index(), c.Beside)
	}
	return report, err
}

// pass reads every sample, and keeps what is not known.
func pass(ctx context.Context, c Config, store *entries.Store) (Report, error) {
	before := store.Facts().Counts().Refused
	r := run{Config: c, store: store, found: make(chan found, block), next: new(atomic.Int64)}
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.stop = stop
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() { r.read(reading) })
	}
	go func() { all.Wait(); close(r.found) }()
	err := store.Facts().Add(ctx, r.facts())
	if err == nil && reading.Err() != nil {
		err = context.Cause(reading)
	}
	stop(nil)
	for range r.found { // so that all goroutines end
	}
	r.report.refused = store.Facts().Counts().Refused - before
	r.report.Pictures, r.report.Bad, r.report.Known = r.pictures.Load(), r.bad.Load(), r.known.Load()
	r.report.Damaged = r.damaged.Load()
	r.report.Learned += r.report.Known - r.report.refused
	return r.report, err
}

type found struct {
	key    facts.Key
	record []byte
}

type run struct {
	Config
	store               *entries.Store
	known               atomic.Int64 // pictures whose records have all points
	found               chan found
	next                *atomic.Int64
	done, pictures, bad atomic.Int64
	damaged             atomic.Int64
	stop                context.CancelCauseFunc
	report              Report
	telling             sync.Mutex
}

// facts are what the goroutines find, for the store.
func (r *run) facts() iter.Seq2[facts.Key, []byte] {
	return func(yield func(facts.Key, []byte) bool) {
		for f := range r.found {
			if !yield(f.key, f.record) {
				return
			}
			r.report.Learned++
		}
	}
}

// read takes blocks of samples until there are none left.
func (r *run) read(ctx context.Context) {
	lane := kernel.NewLane()
	defer lane.Close()
	reader, x := format.NewReader(r.Data, r.Source), r.Data.Index()
	var s format.Sample
	var path []byte
	n := r.Data.Len()
	for ctx.Err() == nil {
		from := r.next.Add(block) - block
		if from >= n {
			return
		}
		for id := from; id < min(from+block, n) && ctx.Err() == nil; id++ {
			if err := reader.Read(ctx, id, nil, &s); errs.CodeOf(err) == errs.Changed {
				r.stop(err) // the index has been given up: what follows is in none
				return
			} else if err != nil {
				r.bad.Add(1)
				continue
			}
			for i := range s.Fields {
				v := &s.Fields[i]
				if v.IsInt || v.File < 0 || decode.Sniff(v.Data) != decode.KindJPEG {
					continue
				}
				r.pictures.Add(1)
				var file uint64
				file, path = entries.FileOf(x, v.File, path)
				key, record, err := r.store.Record(lane, file, entries.Offset(v.Off, v.Unpacked), v.Data)
				switch {
				case errors.Is(err, entries.ErrKnown):
					r.known.Add(1)
					continue
				case err != nil && !errors.Is(err, kernel.ErrElsewhere):
					r.damaged.Add(1)
				}
				if record == nil {
					continue
				}
				select {
				case r.found <- found{key, record}:
				case <-ctx.Done():
					return
				}
			}
		}
		r.tell(r.done.Add(min(block, n-from)))
	}
}

func (r *run) tell(done int64) {
	if r.Progress == nil {
		return
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	r.Progress(done, r.Data.Len())
}
