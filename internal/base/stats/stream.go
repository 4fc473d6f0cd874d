package stats

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// Stream is the counters of one loader, in the layout of a loader's entry of the
// page. A nil stage counts nothing. Stages are safe for concurrent use.
type Stream struct {
	Plan       *Stage // choosing the samples of batches, and beginning them
	Read       *Stage // reading stored bytes, summed over readers
	Decode     *Stage // parse, decode, transform and write, summed over lanes
	Transforms []*Stage
	Batch      *Stage // closing batches
	Deliver    *Stage // delivering and sending them
	Wait       *Stage // the consumer waiting for a batch
	Python     *Stage // the user's code making samples, summed over workers; nil without workers
	Bad        atomic.Int64

	page   *Page
	row    row
	stages int
	now    func() int64
}

// Off returns a Stream that counts nothing, for finding out what measuring costs.
func Off() *Stream { return &Stream{} }

// Stream returns an entry for a loader with these transforms: in the page or, if
// there is no page or no room, in memory of its own.
func (p *Page) Stream(id int64, lanes int, transforms []string) *Stream {
	s := &Stream{page: p, row: p.entry(), stages: mostStages, now: Monotonic}
	if p != nil {
		s.now, s.stages = p.now, int(p.words[hStageCount].Load())
	}
	s.row.words[lSeq].Add(1)
	for i := lState; i < len(s.row.words); i++ {
		if i != lSeq2 {
			s.row.words[i].Store(0)
		}
	}
	s.Read, s.Decode = s.stage(KindRead, "read"), s.stage(KindDecode, "decode")
	s.Batch, s.Deliver, s.Wait = s.stage(KindBatch, "batch"), s.stage(KindDeliver, "deliver"), s.stage(KindWait, "wait")
	s.Plan = s.stage(KindPlan, "plan")
	for _, name := range transforms {
		s.Transforms = append(s.Transforms, s.stage(KindTransform, name))
	}
	w := s.row.words
	w[lID].Store(id)
	w[lOpened].Store(s.now())
	w[lLanes].Store(int64(lanes))
	w[lState].Store(1)
	w[lSeq].Add(1)
	return s
}

// stage takes the next stage of the entry. Its seq is odd.
func (s *Stream) stage(kind int, name string) *Stage {
	n := int(s.row.words[lStages].Load())
	if n == s.stages {
		return nil
	}
	st := (*Stage)(unsafe.Pointer(&s.row.words[loaderWords+n*stageWords]))
	st[sKind].Store(int64(kind))
	var text [nameWords * word]byte
	copy(text[:], name)
	for i := range nameWords {
		st[sName+i].Store(int64(binary.LittleEndian.Uint64(text[i*word:])))
	}
	s.row.words[lStages].Add(1)
	return st
}

// WithPython adds the stage of Python workers. One goroutine calls it, before the first
// batch.
func (s *Stream) WithPython() {
	if s.row.words != nil {
		s.row.words[lSeq].Add(1)
		s.Python = s.stage(KindPython, "python")
		s.row.words[lSeq].Add(1)
	}
}

// entry is a free entry: one never used, or the one closed first.
func (p *Page) entry() row {
	if p == nil {
		return own()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	begin, size := p.words[hLoaders].Load()/word, p.words[hLoaderBytes].Load()/word
	best := row{}
	for i := range p.words[hLoaderCount].Load() {
		r := row{p.words[begin+i*size : begin+(i+1)*size]}
		switch r.at(lState) {
		case 0:
			r.words[lState].Store(1)
			return r
		case 2:
			if best.words == nil || r.at(lOpened) < best.at(lOpened) {
				best = r
			}
		}
	}
	if best.words == nil {
		p.words[hUnseen].Add(1)
		return own()
	}
	best.words[lState].Store(1)
	return best
}

func own() row { return row{make([]atomic.Int64, loaderWords+mostStages*stageWords)} }

// Close marks the loader as closed. Its numbers stay until another loader needs the
// entry; it must not count any more.
func (s *Stream) Close() {
	if s.row.words != nil {
		s.row.words[lSeq].Add(1)
		s.row.words[lState].Store(2)
		s.row.words[lSeq].Add(1)
	}
}

// Decoded counts JPEGs by their decoder.
func (s *Stream) Decoded(ways Ways) {
	if s.row.words == nil {
		return
	}
	for i, n := range [WayCount]int64{ways.Own, ways.Libjpeg, ways.Go} {
		if n != 0 {
			s.row.words[lJPEG+i].Add(n)
		}
	}
}

// Progress is what is known when a batch is delivered.
type Progress struct {
	At                            int64 // when, Monotonic; 0: now
	Epoch, Step, Samples, Batches int64
	Ready, Slots, Leased          int
	Memory                        int64
	Begins                        bool  // it is the first batch of a pass,
	First                         int64 // for which the consumer waited this many ns; 0: it was ready
}

// Delivered records that a batch was delivered. One goroutine at a time calls it.
func (s *Stream) Delivered(p Progress) {
	w := s.row.words
	if w == nil {
		return
	}
	if p.At == 0 {
		p.At = s.now()
	}
	w[lSeq2].Add(1)
	for i, v := range [...]int64{p.At, p.Epoch, p.Step, p.Samples, p.Batches, s.Bad.Load(), int64(p.Ready), int64(p.Slots), int64(p.Leased), p.Memory} {
		set(&w[lUpdated+i], v)
	}
	if p.Begins {
		w[lPasses].Add(1)
		w[lFirst].Store(p.First)
		w[lFirsts].Add(p.First)
	}
	w[lSeq2].Add(1)
}

// Span records a batch in the making.
func (s *Stream) Span(span Span) { s.page.Span(span) }
