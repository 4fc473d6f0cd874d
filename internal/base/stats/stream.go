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
	n := 0
	stage := func(kind int, name string) *Stage {
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
		n++
		return st
	}
	s.Read, s.Decode = stage(KindRead, "read"), stage(KindDecode, "decode")
	s.Batch, s.Deliver, s.Wait = stage(KindBatch, "batch"), stage(KindDeliver, "deliver"), stage(KindWait, "wait")
	s.Plan = stage(KindPlan, "plan")
	for _, name := range transforms {
		s.Transforms = append(s.Transforms, stage(KindTransform, name))
	}
	w := s.row.words
	w[lID].Store(id)
	w[lOpened].Store(s.now())
	w[lLanes].Store(int64(lanes))
	w[lStages].Store(int64(n))
	w[lState].Store(1)
	w[lSeq].Add(1)
	return s
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

// Hand records that a batch was delivered. One goroutine at a time calls it.
func (s *Stream) Hand(p Progress) {
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
