package judge

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/model"
)

// Where in the script a verdict is, and how much of the script it is about.

// line is the script's line that a verdict is about; empty where that is the loader's.
func (v *view) line(verdict string) string {
	s := v.l.Settings
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
		return lineOnly(a.at)
	case Contention:
		return lineOnly(v.stageOf(evidence.Lock).At)
	case FewSlow, PythonCode:
		if verdict == PythonCode && len(v.l.Steps.Inside) > 0 && sampled.holds(v) {
			return lineOnly(v.l.Steps.Inside[0].At)
		}
		return v.hot(PythonCode == verdict)
	case TheDecode:
		return cmp.Or(lineOnly(v.stageNamed(v.part(evidence.Decode)).At), v.hot(false))
	case SmallFiles, Bandwidth, Latency:
		return cmp.Or(lineOnly(v.stageNamed(v.costliest()).At), v.hot(false))
	case TheTransform:
		return v.ofTransform()
	case Assembly:
		return v.ofCollate()
	}
	return ""
}

// stageNamed is the stage that a part of a sample has its name of.
func (v *view) stageNamed(p part) evidence.Stage {
	for _, s := range v.l.Cost.Stages {
		if s.Name == p.name {
			return s
		}
	}
	return v.stageOf(p.kind)
}

// hot is where workers stood most of the time; with own, of the calls without a name if
// the costliest part has one.
func (v *view) hot(named bool) string {
	if p := v.costliest(); named && p.name != "Python code" && p.name != "" {
		if at := lineOnly(v.stageNamed(p).At); at != "" {
			return at
		}
	}
	if f := v.l.Cost.Frames; len(f) > 0 {
		return lineOnly(f[0].At)
	}
	return ""
}

// ofTransform is a transform's own line: of one that the script defines where it computes,
// of a library's where the script makes it.
func (v *view) ofTransform() string {
	s := v.stageNamed(v.costliest())
	library := false
	for _, prefix := range []string{"torchvision.", "PIL.", "cv2.", "albumentations.", "transformers", "tiktoken", "sentencepiece", "tokenizers"} {
		library = library || strings.HasPrefix(s.Name, prefix)
	}
	if !library {
		i := slices.IndexFunc(v.l.Cost.Frames, func(f evidence.Frame) bool {
			return strings.Contains(f.At, ":__call__:") || strings.Contains(f.At, ":forward:")
		})
		if i >= 0 && v.l.Cost.Frames[i].Share >= 0.1 {
			return lineOnly(v.l.Cost.Frames[i].At)
		}
	}
	return lineOnly(s.At)
}

// ofCollate is where the script's own collate function stands most of the time.
func (v *view) ofCollate() string {
	name := v.l.Settings.Collate
	if name == "" || name == "default" {
		return ""
	}
	for _, f := range v.l.Cost.Frames {
		if strings.Contains(f.At, ":"+evidence.Short(name)+":") {
			return lineOnly(f.At)
		}
	}
	return v.l.Settings.Lines["collate_fn"]
}

// share is how much of the script's time goes into this loop; 1 where that is not known,
// or is nearly all.
func (v *view) share() float64 {
	if v.ev.Subject.Kind != evidence.OfScript || !v.l.Elapsed.Known() || v.l.Elapsed.Value < 1 {
		return 1
	}
	if s := v.l.Spent.Value / v.l.Elapsed.Value; s < 0.95 && s > 0 {
		return s
	}
	return 1
}

// wholeScript makes a loop's speed-up that of the script, of which the loop is a share.
func (v *Verdict) wholeScript(share float64) {
	if share >= 1 || v.Speedup <= 1 {
		return
	}
	v.LoopSpeedup = v.Speedup
	v.Speedup = 1 / (1 - share + share/v.LoopSpeedup)
}

// evenSteps takes what rare long steps add to the mean out of the job's step: workers have
// to keep up with the others. It comes again in what a batch takes after a change.
func (v *view) evenSteps() {
	t := v.l.Steps.Tail
	if !t.Time.Known() || t.Count.Value > 0.2 || t.Time.Value < 0.1 || v.l.Hung.Known() {
		return
	}
	usual := v.l.Step.Value * (1 - t.Time.Value) / max(1-t.Count.Value, 1e-9)
	v.extra = max(0, v.job.Step-usual)
	v.job.Step -= v.extra
}

// rare is a job after a change with the rare long steps that stay as they are.
func (v *view) rare(j model.Job) model.Job {
	if v.extra > 0 {
		// Batches are made during a long step, too: the queue is full after it, and what was
		// prefetched is gained.
		ahead := min(v.extra, max(0, j.Cycle()-j.Step-j.Hand))
		j.First += (v.extra - ahead) * max(1, j.Batches)
		j.Batches = max(1, j.Batches)
	}
	return j
}

// stageOfName is the seconds a sample of the stages whose names begin so.
func (v *view) stageOfName(prefix string) (sum float64) {
	for _, s := range v.l.Cost.Stages {
		if strings.HasPrefix(s.Name, prefix) {
			sum += s.Wall.Value
		}
	}
	return sum
}
