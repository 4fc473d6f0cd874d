// Package stats is how everything in stoker reports numbers: what every stage of
// every loader did and waited for, what each worker is doing right now, and the
// page in which other processes of the same user can read it.
//
//	Stage, Stream   the counters of a stage, and of a loader
//	Worker, Board   the times of a lane or reader, and its current sample
//	Page            the memory of all that: layout.go
//	Open, Reader    another process's page
//	Snapshot        a loader's numbers at one moment; Since: between two
package stats

import (
	"sync/atomic"
)

// StageSnapshot is the numbers of one stage.
type StageSnapshot struct {
	Name          string  `json:"name,omitempty"`
	BusySeconds   float64 `json:"busy_s"`
	InputSeconds  float64 `json:"blocked_in_s"`
	OutputSeconds float64 `json:"blocked_out_s"`
	WaitedSeconds float64 `json:"waited_s,omitempty"` // of a device: how long what uses its work waited for that to end
	CPUSeconds    float64 `json:"cpu_s"`              // of all items, estimated from those that were measured
	Items         int64   `json:"items"`
	Bytes         int64   `json:"bytes"`
	P50           float64 `json:"p50_s"` // per item
	P99           float64 `json:"p99_s"`
	Queue         int64   `json:"queue"` // waiting before it when the last batch was delivered
	QueueMean     float64 `json:"queue_mean"`
	Queues        int64   `json:"queues"` // batches of the mean

	kind    int64
	buckets []int64
}

// Snapshot is the numbers of a loader at one moment, since it was opened.
type Snapshot struct {
	Plan       StageSnapshot   `json:"plan"`
	Read       StageSnapshot   `json:"read"`
	Decode     StageSnapshot   `json:"decode"` // transforms included
	Transforms []StageSnapshot `json:"transforms,omitempty"`
	Batch      StageSnapshot   `json:"batch"`
	Deliver    StageSnapshot   `json:"deliver"`
	Wait       StageSnapshot   `json:"wait"`
	Python     StageSnapshot   `json:"python,omitzero"`
	Device     []StageSnapshot `json:"device,omitempty"` // copies, transforms and decoding there, of a client
	JPEG       Ways            `json:"jpeg"`             // decoded
	Bad        int64           `json:"bad"`              // samples skipped or replaced
	Ready      int             `json:"ready"`            // batches ready now
	Slots      int             `json:"slots"`            // batches in memory now
	Leased     int             `json:"leased"`           // of these, held by the user
	Memory     int64           `json:"memory"`           // bytes of batch memory
	Lanes      int             `json:"lanes"`            // lanes this stream may use
	Samples    int64           `json:"samples"`          // samples delivered
	Batches    int64           `json:"batches"`          // batches delivered
	Epoch      int64           `json:"epoch"`            // of the last batch
	Step       int64           `json:"step"`             // of the last batch
	Passes     int64           `json:"passes"`           // passes that gave a batch
	First      float64         `json:"first_batch_s"`    // seconds for the last pass's first batch
	FirstMean  float64         `json:"first_batch_mean_s"`
	Loader     int64           `json:"loader"`
	Open       bool            `json:"open"`
	Opened     float64         `json:"opened_s"` // CLOCK_MONOTONIC
	At         float64         `json:"at_s"`     // CLOCK_MONOTONIC
	Cache      *Cache          `json:"cache,omitempty"`
	Entries    *Entries        `json:"entries,omitempty"` // nil: none are kept
	Ahead      *Ahead          `json:"ahead,omitempty"`   // nil: nothing was planned
	// Sources is what was asked of each server, by its host, by all loaders of the process
	// together: they share connections.
	Sources map[string]Source `json:"sources,omitempty"`
}

// Ahead is what was read for later batches, from slow storage. It is not on the page.
type Ahead struct {
	Planned int64 `json:"planned"` // extents
	Reads   int64 `json:"reads"`   // reads after joining the extents
	Claimed int64 `json:"claimed"` // extents that batches needed later
	Dropped int64 `json:"dropped"` // extents that no batch needed
	Bytes   int64 `json:"bytes"`   // held now
	Limit   int64 `json:"limit"`   // of these
}

// Source counts the requests to one server.
type Source struct {
	Requests  int64 `json:"requests"`    // sent, including retries and hedges
	Bytes     int64 `json:"bytes"`       // received and used
	Retries   int64 `json:"retries"`     // requests repeated after a fault
	Hedges    int64 `json:"hedges"`      // requests sent because the first was slow
	Twice     int64 `json:"bytes_twice"` // received a second time
	Throttled int64 `json:"throttled"`   // requests refused for being too many
	Faults    int64 `json:"faults"`      // failed attempts that were followed by another, including Throttled
	Limit     int   `json:"limit"`       // current limit of concurrent requests
}

func (s Source) less(b Source) Source {
	return Source{s.Requests - b.Requests, s.Bytes - b.Bytes, s.Retries - b.Retries, s.Hedges - b.Hedges, s.Twice - b.Twice, s.Throttled - b.Throttled, s.Faults - b.Faults, s.Limit}
}

// sourcesSince is what was asked between two snapshots, of those that were asked anything.
func sourcesSince(now, before map[string]Source) (out map[string]Source) {
	for host, s := range now {
		if d := s.less(before[host]); d.Requests > 0 {
			if out == nil {
				out = map[string]Source{}
			}
			out[host] = d
		}
	}
	return out
}

// Ways is how many JPEGs each decoder decoded.
type Ways struct {
	Own     int64 `json:"own"`     // stoker's own: nearly all photographs
	Libjpeg int64 `json:"libjpeg"` // libjpeg-turbo: progressive, four components, unusual sampling, several scans
	Go      int64 `json:"go"`      // the standard library, for these if libjpeg-turbo is not built in
}

// WayCount is how many decoders there are.
const WayCount = 3

// Others is the share of JPEGs that another decoder than stoker's own decoded; 0
// without JPEGs.
func (w Ways) Others() float64 {
	return per(float64(w.Libjpeg+w.Go), w.Own+w.Libjpeg+w.Go)
}

func (w Ways) less(b Ways) Ways { return Ways{w.Own - b.Own, w.Libjpeg - b.Libjpeg, w.Go - b.Go} }

// Cache is the contents of a cache of samples.
type Cache struct {
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
	Limit   int64 `json:"limit"` // bytes
	Full    bool  `json:"full"`  // it takes no more samples
}

// Entries is what is known of entry points of JPEGs, and what they save. It is not on the
// page. MCUs are the blocks of a picture that are coded together.
type Entries struct {
	Pictures int64 `json:"pictures"` // decoded, of those that can have entry points
	Known    int64 `json:"known"`    // of them, those that had some
	Wrong    int64 `json:"wrong"`    // of them, those whose entry points were another picture's
	Learned  int64 `json:"learned"`  // pictures whose entry points were written, or written again
	MCUs     int64 `json:"mcus"`     // of these pictures, up to the last that was needed
	Leapt    int64 `json:"leapt"`    // of them, those that were leapt over
	Stored   int64 `json:"stored"`   // pictures with entry points when the store was opened
	Bytes    int64 `json:"bytes"`    // of the store
}

// less is what was done since b; what is stored is as now.
func (e *Entries) less(b *Entries) Entries {
	s := *e
	if b != nil {
		s.Pictures, s.Known, s.Wrong, s.Learned = s.Pictures-b.Pictures, s.Known-b.Known, s.Wrong-b.Wrong, s.Learned-b.Learned
		s.MCUs, s.Leapt = s.MCUs-b.MCUs, s.Leapt-b.Leapt
	}
	return s
}

// Add adds another store's.
func (e *Entries) Add(o Entries) {
	e.Pictures += o.Pictures
	e.Known += o.Known
	e.Wrong += o.Wrong
	e.Learned += o.Learned
	e.MCUs += o.MCUs
	e.Leapt += o.Leapt
	e.Stored += o.Stored
	e.Bytes += o.Bytes
}

// row is an entry of a table as its writer made it: words that an older writer
// lacks are 0.
type row struct{ words []atomic.Int64 }

func (r row) at(i int) int64 {
	if i >= len(r.words) {
		return 0
	}
	return r.words[i].Load()
}

// set stores v unless it is there already: a store takes ten times as long as a
// load.
func set(w *atomic.Int64, v int64) {
	if w.Load() != v {
		w.Store(v)
	}
}

// patience is how often a row that is being written is read again.
const patience = 1000

// steady runs read until no writer interfered; false if a writer did not finish, or
// died.
func (r row) steady(seq int, read func()) bool {
	for range patience {
		before := r.at(seq)
		if before&1 != 0 {
			continue
		}
		read()
		if r.at(seq) == before {
			return true
		}
	}
	return false
}

// Snapshot reads the numbers of the loader; the caller fills in what only it knows.
func (s *Stream) Snapshot() Snapshot {
	if s.row.words == nil {
		return Snapshot{Bad: s.Bad.Load()}
	}
	out, _ := s.row.loader(geometry{loaderWords, stageWords, s.stages, sBuckets, bucketWords}, s.now())
	out.Bad = s.Bad.Load()
	return out
}

// geometry is the offsets of the tables within a loader's entry, in words.
type geometry struct{ stages, stage, count, buckets, bucketCount int }

// loader reads a loader's entry; false if its row is only half written.
func (r row) loader(g geometry, now int64) (out Snapshot, whole bool) {
	var stages []StageSnapshot
	var state int64
	whole = r.steady(lSeq, func() {
		out, stages = Snapshot{At: seconds(now)}, stages[:0]
		state = r.at(lState)
		out.Open, out.Loader, out.Lanes = state == 1, r.at(lID), int(r.at(lLanes))
		out.Opened = seconds(r.at(lOpened))
		if g.stages >= lJPEGEnd {
			out.JPEG = Ways{r.at(lJPEG), r.at(lJPEG + 1), r.at(lJPEG + 2)}
		}
		for i := range min(max(int(r.at(lStages)), 0), g.count) {
			at := g.stages + i*g.stage
			stages = append(stages, row{r.words[at : at+g.stage]}.stage(g))
		}
	})
	if !whole || state == 0 {
		return out, false
	}
	for _, s := range stages {
		switch s.kind {
		case KindRead:
			out.Read = s
		case KindDecode:
			out.Decode = s
		case KindTransform:
			out.Transforms = append(out.Transforms, s)
		case KindBatch:
			out.Batch = s
		case KindDeliver:
			out.Deliver = s
		case KindWait:
			out.Wait = s
		case KindPlan:
			out.Plan = s
		case KindPython:
			out.Python = s
		case KindDevice:
			out.Device = append(out.Device, s)
		}
	}
	return out, r.steady(lSeq2, func() {
		out.Epoch, out.Step, out.Samples, out.Batches = r.at(lEpoch), r.at(lStep), r.at(lSamples), r.at(lBatches)
		out.Bad, out.Ready, out.Slots, out.Leased = r.at(lBad), int(r.at(lReady)), int(r.at(lSlots)), int(r.at(lLeased))
		out.Memory, out.Passes, out.First = r.at(lMemory), r.at(lPasses), seconds(r.at(lFirst))
		out.FirstMean = per(seconds(r.at(lFirsts)), out.Passes)
	})
}

// stage reads a stage. CPU, and busy if only some items were timed, are scaled to
// all items.
func (r row) stage(g geometry) StageSnapshot {
	s := StageSnapshot{
		kind: r.at(sKind), Name: r.name(sName),
		BusySeconds: seconds(r.at(sBusy)), InputSeconds: seconds(r.at(sInput)), OutputSeconds: seconds(r.at(sOutput)), WaitedSeconds: seconds(r.at(sWaited)),
		Items: r.at(sItems), Bytes: r.at(sBytes), Queue: r.at(sQueue), QueueMean: per(float64(r.at(sQueued)), r.at(sQueues)), Queues: r.at(sQueues),
	}
	if timed := r.at(sTimed); timed > 0 {
		s.BusySeconds *= float64(max(s.Items, timed)) / float64(timed)
	}
	if n := r.at(sCPUItems); n > 0 {
		s.CPUSeconds = seconds(r.at(sCPU)) * float64(max(s.Items, n)) / float64(n)
	}
	s.buckets = make([]int64, min(g.bucketCount, buckets))
	for i := range s.buckets {
		s.buckets[i] = r.at(g.buckets + i)
	}
	s.P50, s.P99 = percentile(s.buckets, 0.5), percentile(s.buckets, 0.99)
	return s
}

func per(sum float64, n int64) float64 {
	if n <= 0 {
		return 0
	}
	return sum / float64(n)
}

// name is the text of nameWords words, without the padding.
func (r row) name(at int) string {
	var b [nameWords * word]byte
	n := 0
	for i := range nameWords {
		for v := uint64(r.at(at + i)); v != 0 && n < len(b); v >>= 8 {
			b[n] = byte(v)
			n++
		}
	}
	return string(b[:n])
}
