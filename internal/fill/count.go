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

// State is what Fill needs besides the task. It belongs to one goroutine.
type State struct {
	Lane   *transform.Lane
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

// Took counts a sample on which Fill spent ns nanoseconds. It flushes when enough samples
// were counted.
func (s *State) Took(ns int64, book *stats.Worker) {
	s.tally.took[s.tally.n] = ns
	if s.tally.n++; s.tally.n == len(s.tally.took) {
		s.Flush(book)
	}
}

// Count makes s count the next samples for f. It flushes what was counted for another.
func (s *State) Count(f *Filler, book *stats.Worker) {
	if s.tally.of != f {
		s.Flush(book)
		s.tally.of = f
	}
}

// Timed reports whether f has transforms whose time is measured.
func (f *Filler) Timed() bool { return len(f.costs) > 0 }

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
