package fill

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/entries"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// learned is the stores of entry points, one per part. They are opened by the first sample,
// so that a loader that is only looked at opens none.
type learned struct {
	ahead  atomic.Int32 // goroutines of Ahead
	once   sync.Once
	stores atomic.Pointer[[]*entries.Store] // one per part; nil: it has no JPEGs that are stored, or nothing is kept
}

// entriesOf opens the stores of all parts, once.
func (f *Filler) entriesOf(part *dataset.Part) *entries.Store {
	l := &f.learned
	l.once.Do(func() {
		stores := make([]*entries.Store, len(f.data.Parts))
		for i, p := range f.data.Parts {
			stores[i] = f.openEntries(p)
		}
		l.stores.Store(&stores)
	})
	return (*l.stores.Load())[part.Number]
}

func (f *Filler) openEntries(part *dataset.Part) *entries.Store {
	if f.spec.Entries.Off || part.Stored == nil || !readsPictures(part) {
		return nil
	}
	store, _ := entries.Open(part.Stored.Index(), entries.Options{ // what is wrong was noticed
		Limit: int64(f.spec.Entries.Limit), Beside: format.LocalBesidePath, Notice: f.Notice,
	})
	return store
}

func readsPictures(part *dataset.Part) bool {
	for _, p := range part.Programs {
		if p != nil && p.Kind() == "image" {
			return true
		}
	}
	return false
}

// points is a lane's access to the entry points of the field that it decodes next.
type points struct {
	lane entries.Lane
	part *dataset.Part // of file; nil: none yet
	file int
	key  uint64
	path []byte
}

// enter says which field is decoded next.
func (f *Filler) enter(s *State, part *dataset.Part, v *format.Field) {
	p := &s.points
	s.Lane.Points = nil
	if v.File < 0 || v.IsInt {
		return
	}
	store := f.entriesOf(part)
	if store == nil {
		return
	}
	if p.part != part || p.file != v.File {
		p.part, p.file = part, v.File
		p.key, p.path = entries.FileOf(part.Stored.Index(), v.File, p.path)
	}
	p.lane.At(store, p.key, entries.Offset(v.Off, v.Unpacked))
	s.Lane.Points = &p.lane
}

// left ends what enter began: the memory of the sample is not read any more.
func (s *State) left() {
	s.points.lane.End()
	s.Lane.Points = nil
}

// aheads is how many batches' records are read at a time. A cache folder that is slower than
// the data is not asked for more: lanes wait for the records, or for nothing.
const aheads = 4

// Ahead begins to read the records of samples that are about to be read into memory, so that
// no lane waits for them. It does not wait, nor keep the requests. Samples that are in memory
// are not asked for: their records, which are used as often, are there too. Where a format
// cannot say where its pictures are, such as TFRecord, all records are read, once.
func (f *Filler) Ahead(reqs []*fetch.Request) {
	type wanted struct {
		store *entries.Store
		file  uint64
		off   int64
		n     int64
	}
	var all []wanted
	var path [256]byte
	var places []format.Extent
	for _, r := range reqs {
		part, _ := f.data.Of(r.Sample)
		if part.Stored == nil || len(r.Extents) == 0 {
			continue
		}
		store := f.entriesOf(part)
		if store == nil {
			continue
		}
		if places = f.data.Places(r.Sample, places[:0]); len(places) == 0 {
			store.AheadAll()
		}
		for _, e := range places {
			_, version := f.data.Stamp(e.File)
			all = append(all, wanted{store, entries.FileKey(f.data.AppendPath(e.File, path[:0]), version), e.Off, e.Len})
		}
	}
	if len(all) == 0 {
		return
	}
	if f.learned.ahead.Add(1) > aheads {
		f.learned.ahead.Add(-1)
		return
	}
	go func() {
		defer f.learned.ahead.Add(-1)
		for _, w := range all {
			w.store.Ahead(w.file, w.off, w.n)
		}
	}()
}

// PassEnded writes the entry points that were found so far, for later passes and other
// processes. It does not wait.
func (f *Filler) PassEnded() {
	if all := f.learned.all(); len(all) > 0 {
		go func() {
			for _, s := range all {
				_ = s.Facts().Flush(context.Background()) // Close ends it
			}
		}()
	}
}

// End writes what was found and closes the stores, or returns when ctx ends. Lanes may go on.
func (f *Filler) End(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range f.learned.all() {
			_ = s.Close()
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// all are the stores that are open.
func (l *learned) all() []*entries.Store {
	all := l.stores.Load()
	if all == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*all), func(s *entries.Store) bool { return s == nil })
}

// Entries is what is known and learned of entry points, of all parts; nil: none are kept.
func (f *Filler) Entries() *stats.Entries {
	all := f.learned.all()
	if len(all) == 0 {
		return nil
	}
	sum := &stats.Entries{}
	for _, s := range all {
		sum.Add(s.Counts())
	}
	return sum
}
