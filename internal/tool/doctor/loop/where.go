package loop

import (
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/model"
)

// StageNamed is the stage that a part of a sample has its name of.
func (v *View) StageNamed(p part) evidence.Stage {
	for _, s := range v.Loop.Cost.Stages {
		if s.Name == p.Name {
			return s
		}
	}
	return v.StageOf(p.Kind)
}

// Hot is where workers were most of the time; with own, of the calls without a name if
// the costliest part has one.
func (v *View) Hot(named bool) string {
	if p := v.Costliest(); named && p.Name != "Python code" && p.Name != "" {
		if at := LineOnly(v.StageNamed(p).At); at != "" {
			return at
		}
	}
	if f := v.Loop.Cost.Frames; len(f) > 0 {
		return LineOnly(f[0].At)
	}
	return ""
}

// OfTransform is a transform's own line: of one that the script defines where it computes,
// of a library's where the script makes it.
func (v *View) OfTransform() string {
	s := v.StageNamed(v.Costliest())
	library := false
	for _, prefix := range []string{"torchvision.", "PIL.", "cv2.", "albumentations.", "transformers", "tiktoken", "sentencepiece", "tokenizers"} {
		library = library || strings.HasPrefix(s.Name, prefix)
	}
	if !library {
		i := slices.IndexFunc(v.Loop.Cost.Frames, func(f evidence.Frame) bool {
			return strings.Contains(f.At, ":__call__:") || strings.Contains(f.At, ":forward:")
		})
		if i >= 0 && v.Loop.Cost.Frames[i].Share >= 0.1 {
			return LineOnly(v.Loop.Cost.Frames[i].At)
		}
	}
	return LineOnly(s.At)
}

// OfCollate is where the script's own collate function spends most of its time.
func (v *View) OfCollate() string {
	name := v.Loop.Settings.Collate
	if name == "" || name == "default" {
		return ""
	}
	for _, f := range v.Loop.Cost.Frames {
		if strings.Contains(f.At, ":"+evidence.Short(name)+":") {
			return LineOnly(f.At)
		}
	}
	return v.Loop.Settings.Lines["collate_fn"]
}

// Share is how much of the script's time goes into this loop; 1 where that is not known,
// or is nearly all.
func (v *View) Share() float64 {
	if v.Evidence.Subject.Kind != evidence.OfScript || !v.Loop.Elapsed.Known() || v.Loop.Elapsed.Value < 1 {
		return 1
	}
	if s := v.Loop.Spent.Value / v.Loop.Elapsed.Value; s < 0.95 && s > 0 {
		return s
	}
	return 1
}

// evenSteps takes what rare long steps add to the mean out of the job's step: workers have
// to keep up with the others. It comes again in what a batch takes after a change.
func (v *View) evenSteps() {
	t := v.Loop.Steps.Tail
	if !t.Time.Known() || t.Count.Value > 0.2 || t.Time.Value < 0.1 || v.Loop.Hung.Known() {
		return
	}
	usual := v.Loop.Step.Value * (1 - t.Time.Value) / max(1-t.Count.Value, 1e-9)
	v.extra = max(0, v.Job.Step-usual)
	v.Job.Step -= v.extra
}

// Rare is a job after a change with the rare long steps that stay as they are.
func (v *View) Rare(j model.Job) model.Job {
	if v.extra > 0 {
		// Batches are made during a long step, too: the queue is full after it, and what was
		// prefetched is gained.
		ahead := min(v.extra, max(0, j.Cycle()-j.Step-j.Take))
		j.First += (v.extra - ahead) * max(1, j.Batches)
		j.Batches = max(1, j.Batches)
	}
	return j
}

// StageOfName is the seconds a sample of the stages whose names begin so.
func (v *View) StageOfName(prefix string) (sum float64) {
	for _, s := range v.Loop.Cost.Stages {
		if strings.HasPrefix(s.Name, prefix) {
			sum += s.Wall.Value
		}
	}
	return sum
}

// StageOf is the costliest stage of a kind.
func (v *View) StageOf(kind string) evidence.Stage {
	for _, s := range v.Loop.Cost.Stages {
		if s.Kind == kind {
			return s
		}
	}
	return evidence.Stage{}
}

// LineOnly is FILE:LINE of FILE:FUNCTION:LINE.
func LineOnly(at string) string {
	at, _, _ = strings.Cut(at, " ")
	parts := strings.Split(at, ":")
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + ":" + parts[len(parts)-1]
}

// Shrinks are transforms that leave fewer pixels.
var Shrinks = []string{"RandomResizedCrop", "Resize", "RandomCrop", "CenterCrop"}
