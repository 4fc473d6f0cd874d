package fill

import (
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Fields that follow one another and are pictures made of one stored value are views of
// it: the lane decodes it once for all of them, if that costs less.

// viewsOf is, for each field of a part, how many views begin with it; 0 if it is a later
// one of them, 1 if it is alone.
func viewsOf(part *dataset.Part) []int {
	out := make([]int, len(part.Programs))
	first := 0
	for i, prog := range part.Programs {
		image := prog != nil && prog.Kind() == "image"
		if i > 0 && image && out[first] > 0 && part.Value[i] == part.Value[first] && part.Programs[first] != nil && part.Programs[first].Kind() == "image" {
			out[first]++
			continue
		}
		first = i
		out[i] = 1
	}
	return out
}

// share decodes the picture of the views that begin with field i for all of them. value
// is as parse returns it.
func (f *Filler) share(s *State, part *dataset.Part, programs []*transform.Program, value []int, i int, t *Task) {
	n := f.views[part.Number][i]
	if n == 0 { // the views before it are not done
		return
	}
	s.Lane.Unshare()
	if n == 1 {
		return
	}
	at := func(i int) []byte {
		if value != nil {
			i = value[i]
		}
		return s.sample.Fields[i].Data
	}
	data := at(i)
	s.keys = s.keys[:0]
	for k := range n {
		if !mem.Same(at(i+k), data) {
			return // kept in the cache after different steps
		}
		s.keys = append(s.keys, t.Key.With(uint64(i+k)))
	}
	if s.Lane.Shared(programs[i:i+n], s.keys, data) {
		f.decoded(s)
	}
}
