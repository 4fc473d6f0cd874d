package fill

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/fetch"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Samples of a few kilobytes that need no decoding are filled in by the reader that
// reads them, several at a time: passing each to a lane would cost several times
// what reading and converting it costs. A sample that fails takes the usual way by
// itself, so that errors and the policy for bad samples are the same.

const (
	// directBytes is the length of the longest sample that takes this way.
	directBytes = 64 << 10
	// bunchBytes is how much one bunch reads before it fills rows; it should stay
	// in the CPU cache.
	bunchBytes = 64 << 10
	// bunchTime is how long the reads of one bunch may take: if they are slow,
	// several readers should share a batch.
	bunchTime = 200 * time.Microsecond
	// bunchCPU is the work on bunches, for one whose CPU time is measured.
	bunchCPU = int64(4 * time.Millisecond)
)

// plain is a dataset whose Parse only returns slices of what was read.
type plain interface{ Plain() bool }

// Small reports whether Readers may fill the samples.
func (f *Filler) Small() bool {
	for _, p := range f.data.Parts {
		ds, ok := p.Dataset.(plain)
		if !ok || !ds.Plain() || p.N == 0 {
			return false
		}
		for _, prog := range p.Programs {
			if prog.Kind() == "image" {
				return false
			}
		}
	}
	return true
}

// Readers fill small samples where they are read: in goroutines of fetch. Safe for
// concurrent use.
type Readers struct {
	ReadTime atomic.Int64 // ns that one read takes, a running mean

	filler *Filler
	desk   ReadersDesk
	due    stats.Seldom // chooses bunches whose CPU time is measured
	states sync.Pool    // *readerState
}

// ReadersDesk is where Readers return tasks: the loader.
type ReadersDesk interface {
	// Stamp is told of a task whose row is filled, before Read gets it with others. No lock
	// is held.
	Stamp(t *Task)
	// Read takes back tasks of a batch, except for those that are Apart. They are filled but
	// for the failed ones, which take the usual way by themselves; if the batch is Gone, some
	// were not done. As soon as it has counted the batch's last task, the batch may be
	// reused. now is the current stats.Monotonic. No lock is held.
	Read(b *Batch, tasks []Task, failed []*Task, now int64)
}

// NewReaders returns Readers that fill samples as f does, and return them to desk.
func NewReaders(f *Filler, desk ReadersDesk) *Readers { return &Readers{filler: f, desk: desk} }

// Bunches are what Readers do for one batch. They may be used again for another.
type Bunches []bunch

// bunch is a group of tasks of one batch that one reader works on.
type bunch struct {
	readers *Readers
	batch   *Batch
	tasks   []Task
	spent   spent
}

// spent is the cost of a bunch: ns to read, ns to fill, items, bytes.
type spent struct{ read, fill, items, bytes int64 }

// rows is the number of reads in a bunch.
func (r *Readers) rows() int { return max(1, int(int64(bunchTime)/max(r.ReadTime.Load(), 1))) }

// Begin passes small samples to the readers, in bunches. It returns the others, which the
// caller submits: long samples, and those that are read over a link, where neighbours are read
// together. Every bunch has a sample that the batch waits for: otherwise it might run after
// the batch is used again.
func (r *Readers) Begin(b *Batch, bunches *Bunches, fetcher *fetch.Fetcher) (usual []*fetch.Request) {
	most := r.rows()
	*bunches = (*bunches)[:0]
	begin, own, bytes := 0, 0, int64(0)
	send := func(end int) {
		if own > 0 {
			*bunches = append(*bunches, bunch{readers: r, batch: b, tasks: b.Tasks[begin:end]})
		}
		begin, own, bytes = end, 0, 0
	}
	for i := range b.Tasks {
		t := &b.Tasks[i]
		if t.Apart = t.Sample < 0; t.Apart {
			continue
		}
		r.filler.Locate(t)
		n := t.Req.Bytes()
		if n > directBytes || fetcher.Waits(&t.Req) {
			t.Apart = true
			usual = append(usual, &t.Req)
			continue
		}
		if bytes+n > bunchBytes || i-begin >= most {
			send(i)
		}
		own, bytes = own+1, bytes+n
	}
	send(len(b.Tasks))
	for i := range *bunches {
		fetcher.Do(&(*bunches)[i])
	}
	return usual
}

// readerState is the state with which a reader fills rows.
type readerState struct {
	lane   transform.Lane // for all but pictures
	fill   State
	failed []*Task
}

// Run implements fetch.Direct. As soon as the desk has counted the batch's last task, the
// batch, and u with it, may be reused.
func (u *bunch) Run(rc *fetch.ReadContext) {
	r, b := u.readers, u.batch
	st := r.filler.Stats
	own, _ := r.states.Get().(*readerState)
	if own == nil {
		own = new(readerState)
	}
	defer r.states.Put(own)
	own.fill.Lane, own.failed = &own.lane, own.failed[:0]
	var thread stats.Thread
	begin := stats.Monotonic()
	onThread := st.Decode != nil && r.due.Due(begin)
	if onThread {
		thread = stats.OnThread()
	}
	count, bytes := u.read(rc)
	read := stats.Monotonic()
	if onThread {
		st.Read.CPU(thread.Lap(), int64(count))
	}
	for i := range u.tasks {
		t := &u.tasks[i]
		if t.Apart || b.Gone.Load() {
			continue
		}
		rc.Next(wire.StageDecode, t.Req.Sample)
		if err := r.filler.Fill(&own.fill, t); err != nil {
			own.failed = append(own.failed, t)
			continue
		}
		r.desk.Stamp(t)
	}
	rc.At(0, 0)
	if onThread {
		st.Decode.CPU(thread.Used(), int64(count))
	}
	end := stats.Monotonic()
	if count > 0 {
		each := (read - begin) / int64(count)
		r.ReadTime.Store(r.ReadTime.Load() + (each-r.ReadTime.Load())/8)
	}
	u.spent = spent{read: read - begin, fill: end - read, items: int64(count), bytes: bytes}
	if onThread {
		r.due.Took(end-begin, bunchCPU)
	}
	r.desk.Read(b, u.tasks, own.failed, end)
}

// read reads what the tasks need: first everything, to be checked together. If that
// finds a file that was changed, it reads each by itself, to find out whose file it
// is.
func (u *bunch) read(rc *fetch.ReadContext) (count int, bytes int64) {
	rc.Together()
	count, bytes = u.readEach(rc)
	if !rc.Checked() {
		rc.Reset()
		count, bytes = u.readEach(rc)
	}
	return count, bytes
}

func (u *bunch) readEach(rc *fetch.ReadContext) (count int, bytes int64) {
	for i := range u.tasks {
		t := &u.tasks[i]
		if t.Apart || u.batch.Gone.Load() {
			continue
		}
		rc.At(wire.StageRead, t.Req.Sample)
		raw, err := rc.Read(u.batch.Ctx, t.Req.Extents)
		t.Req.Raw, t.Req.Err = append(t.Req.Raw[:0], raw...), err
		for _, p := range raw {
			bytes += int64(len(p))
		}
		count++
	}
	return count, bytes
}

// Enter adds the cost of bunches to the statistics, all at once: every
// reader writes the same words there, and a bunch may take only some microseconds.
// It is called after the batch's last task; calling it again does nothing.
func (u *Bunches) Enter(st *stats.Stream) {
	if len(*u) == 0 || st.Decode == nil {
		return
	}
	var read, fill stats.Sum
	var bytes int64
	for i := range *u {
		at := &(*u)[i].spent
		st.Read.Several(&read, at.read, at.items)
		st.Decode.Several(&fill, at.fill, at.items)
		bytes += at.bytes
	}
	st.Read.Put(&read, bytes)
	st.Decode.Put(&fill, 0)
	*u = (*u)[:0]
}
