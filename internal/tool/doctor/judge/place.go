package judge

import (
	"cmp"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
)

// Where in the script a verdict is, and how much of the script it is about.

// line is the script's line that a verdict is about; empty where that is the loader's.
func (v *view) line(verdict string) string {
	s := v.Loop.Settings
	set := func(names ...string) string {
		for _, name := range names {
			if at := s.Lines[name]; at != "" {
				return at
			}
		}
		return ""
	}
	switch verdict {
	case TooFew, TooMany:
		return set("num_workers")
	case Shallow:
		return set("prefetch_factor")
	case EpochStart:
		return set("persistent_workers")
	case Paged:
		return set("pin_memory")
	case Repeated:
		a, _ := v.repeats()
		return loop.LineOnly(a.at)
	case Contention:
		return loop.LineOnly(v.StageOf(evidence.Lock).At)
	case FewSlow, PythonCode:
		if verdict == PythonCode && len(v.Loop.Steps.Inside) > 0 && sampled.holds(v) {
			return loop.LineOnly(v.Loop.Steps.Inside[0].At)
		}
		return v.Hot(PythonCode == verdict)
	case TheDecode:
		return cmp.Or(loop.LineOnly(v.StageNamed(v.Part(evidence.Decode)).At), v.Hot(false))
	case SmallFiles, Bandwidth, Latency:
		return cmp.Or(loop.LineOnly(v.StageNamed(v.Costliest()).At), v.Hot(false))
	case TheTransform:
		return v.OfTransform()
	case Assembly:
		return v.OfCollate()
	}
	return ""
}

// wholeScript makes a loop's speed-up that of the script, of which the loop is a share.
func (v *Verdict) wholeScript(share float64) {
	if share >= 1 || v.Speedup <= 1 {
		return
	}
	v.LoopSpeedup = v.Speedup
	v.Speedup = 1 / (1 - share + share/v.LoopSpeedup)
}
