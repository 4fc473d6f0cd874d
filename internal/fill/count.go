package fill

import (
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// costs are the counters of the transforms of one program.
type costs struct{ stages []*stats.Stage }

// Measure begins the loader's statistics, and assigns each program's transforms to
// stages: transforms with the same name count together. stream makes the statistics for
// the names of the transforms.
func (f *Filler) Measure(stream func(transforms []string) *stats.Stream) *stats.Stream {
	var names []string
	programs := map[*transform.Program][]string{}
	for _, part := range f.data.Parts {
		for _, prog := range slices.Concat(part.Programs, f.cutsOf(part).before, f.cutsOf(part).after) {
			if prog == nil || prog.Kind() != "image" || len(prog.Names()) == 0 {
				continue
			}
			programs[prog] = prog.Names()
			for _, name := range prog.Names() {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	f.Stats = stream(names)
	f.costs = make(map[*transform.Program]*costs, len(programs))
	for prog, own := range programs {
		c := &costs{}
		for _, name := range own {
			c.stages = append(c.stages, f.Stats.Transforms[slices.Index(names, name)])
		}
		f.costs[prog] = c
	}
	return f.Stats
}

// What is measured, and how often:
//
//   - lanes: the time of every sample; the CPU time of about one sample per cpuTime of work; the time of each transform of about one sample per splitTime of work
//   - readers of small samples: the time of every bunch; the CPU time of about one bunch per bunchCPU of work
//
// Choosing by work and not by count keeps the cost of measuring independent of the
// size of samples. Samples of the measurements are scaled up by counts, which are
// exact. The first sample of a lane is not measured, because it allocates the
// lane's memory. All times are in ns.
const (
	cpuTime   = int64(8 * time.Millisecond)
	splitTime = int64(20 * time.Millisecond)
)

// State is what Fill needs besides the task. It belongs to one goroutine.
type State struct {
	Lane   *transform.Lane
	pace   pace
	sample format.Sample
	keys   []rng.Key // of views
	points points
	tally  tally
}

// tally is what a lane has counted but not yet added to the statistics of a loader.
// All lanes share the words there, and adding to them for every sample would cost
// more the more lanes there are.
type tally struct {
	of       *Filler   // nil: nothing was counted yet
	took     [16]int64 // ns, of n samples
	n        int
	programs []done
	jpeg     stats.Ways
}

type done struct {
	*costs
	n int64
}

// Flush adds what was counted to the statistics and to the lane's book.
func (s *State) Flush(book *stats.Worker) {
	s.points.lane.Flush()
	y := &s.tally
	if y.n == 0 {
		return
	}
	y.of.Stats.Decode.AddEach(y.took[:y.n])
	for _, p := range y.programs {
		for _, stage := range p.stages {
			stage.Count(p.n)
		}
	}
	y.of.Stats.Decoded(y.jpeg)
	book.Done(y.of.ID, int64(y.n))
	y.n, y.programs, y.jpeg = 0, y.programs[:0], stats.Ways{}
}

// took counts a sample on which Fill spent ns nanoseconds. It flushes when enough samples
// were counted.
func (s *State) took(ns int64, book *stats.Worker) {
	s.tally.took[s.tally.n] = ns
	if s.tally.n++; s.tally.n == len(s.tally.took) {
		s.Flush(book)
	}
}

// count makes s count the next samples for f. It flushes what was counted for another.
func (s *State) count(f *Filler, book *stats.Worker) {
	if s.tally.of != f {
		s.Flush(book)
		s.tally.of = f
	}
}

// pace is how long samples take a lane, and how many are left until one is measured.
type pace struct {
	begun          bool
	mean           int64 // ns per sample, of the last samples
	cpuIn, splitIn int64
}

// took adjusts the pace after a sample.
func (p *pace) took(ns int64) {
	if !p.begun {
		p.begun, p.cpuIn, p.splitIn = true, 1, 1
	}
	p.mean += (ns - p.mean) / 8
	p.cpuIn, p.splitIn = countdown(p.cpuIn, cpuTime/max(p.mean, 1)), countdown(p.splitIn, splitTime/max(p.mean, 1))
}

// countdown counts to the next sample to measure, one in every. Lanes that have
// slept do not measure the next sample, which finds cold caches.
func countdown(in, every int64) int64 {
	if in == 0 {
		return every
	}
	return in - 1
}

// CPUDue reports whether the CPU time of the next sample is measured.
func (s *State) CPUDue() bool { return s.pace.begun && s.pace.cpuIn == 0 }

// FillTimed is Fill, and measures its time from begin (stats.Monotonic) on, for the
// statistics and the lane's book. It returns when Fill ended.
func (f *Filler) FillTimed(s *State, t *Task, book *stats.Worker, begin int64) (end int64, err error) {
	if f.Stats.Decode == nil {
		err = f.Fill(s, t)
		return stats.Monotonic(), err
	}
	s.count(f, book)
	split, onThread := s.pace.begun && s.pace.splitIn == 0 && len(f.costs) > 0, s.CPUDue()
	s.Lane.Timed(split)
	var thread stats.Thread
	if onThread {
		thread = stats.OnThread()
	}
	err = f.Fill(s, t)
	end = stats.Monotonic()
	took := end - begin
	if onThread {
		f.Stats.Decode.CPU(thread.Used(), 1)
	}
	s.took(took, book)
	s.pace.took(took)
	return end, err
}

// decoded counts the JPEG that was decoded last, if it was one, by its decoder.
func (f *Filler) decoded(s *State) {
	way, ok := s.Lane.Way()
	if !ok || f.Stats.Decode == nil {
		return
	}
	switch way {
	case kernel.WayOwn:
		s.tally.jpeg.Own++
	case kernel.WayLibjpeg:
		s.tally.jpeg.Libjpeg++
	case kernel.WayGo:
		s.tally.jpeg.Go++
	}
}

// counted counts a JPEG by its decoder, and the transforms of a program that was
// just run.
func (f *Filler) counted(s *State, prog *transform.Program) {
	if prog.Kind() == "image" {
		f.decoded(s)
	}
	c := f.costs[prog]
	if c == nil {
		return
	}
	y := &s.tally
	i := slices.IndexFunc(y.programs, func(d done) bool { return d.costs == c })
	if i < 0 {
		i = len(y.programs)
		y.programs = append(y.programs, done{costs: c})
	}
	y.programs[i].n++
	var few [8]time.Duration // enough for most programs, on the stack
	if spent, timed := prog.Divide(s.Lane, few[:0]); timed {
		for k, stage := range c.stages {
			stage.Timed(spent[k])
		}
	}
}
