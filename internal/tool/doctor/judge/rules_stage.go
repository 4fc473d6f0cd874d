package judge

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
	"github.com/stoker-data/stoker/internal/tool/model"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// The rules for the costliest part of a sample: more workers than there are cores
// would be needed, so that it has to become cheaper.

// whole is a file so large that opening it is not what costs: 1 MiB takes longer
// to read than to open, on every disk that is worth training from.
const whole = 1 << 20

// refusing is the share of requests that a store refuses which has a limit, at least:
// requests are spaced until few more are refused, and others refuse none.
const refusing = 0.005

// throttled: a store that refuses requests as too many.
var throttled = rule{
	verdict: Throttled,
	needs:   []need{aWait, aSample, refusals},
	holds: func(v *view) bool {
		return v.Beyond() && v.Costliest().Kind == evidence.Read && v.Evidence.Storage.Refused.Value >= refusing
	},
	says: func(v *view) string {
		return fmt.Sprintf("%s refuses %s of the requests because there are too many: reads wait.", v.Evidence.Storage.Remote, show.Percent(v.Evidence.Storage.Refused.Value))
	},
	why:    func(v *view) []evidence.Line { return append(v.StorageLines(), v.PartLines()...) },
	change: changeOfRemote,
	after:  (*view).readAside,
}

var smallFiles = rule{
	verdict: SmallFiles,
	needs:   []need{aWait, aSample, someOpens, someBytes},
	holds: func(v *view) bool {
		c := v.Loop.Cost
		return v.Beyond() && v.Costliest().Kind == evidence.Read && c.Opens.Value >= 0.5 && c.Read.Value/c.Opens.Value < whole && !v.Mapped() && !v.Full()
	},
	says: func(v *view) string {
		c := v.Loop.Cost
		return fmt.Sprintf("Every sample opens %.1f files of about %s, and waits for that.", c.Opens.Value, show.Bytes(c.Read.Value/c.Opens.Value))
	},
	why:    func(v *view) []evidence.Line { return append(v.StorageLines(), v.PartLines()...) },
	change: changeOfFiles,
	after:  (*view).readAside,
}

var bandwidth = rule{
	verdict: Bandwidth,
	needs:   []need{aWait, aSample, aRate},
	holds: func(v *view) bool {
		return v.Beyond() && v.Costliest().Kind == evidence.Read && v.Full()
	},
	says: func(v *view) string {
		return fmt.Sprintf("Reading takes %s of a sample's time, and the storage delivers no more than %s per second, however many readers there are.", show.Percent(v.Part(evidence.Read).Seconds()/v.Sum()), show.Bytes(v.Evidence.Storage.Rate.Value))
	},
	why:    func(v *view) []evidence.Line { return append(v.StorageLines(), v.PartLines()...) },
	change: changeOfBytes,
	after:  func(v *view) model.Job { return v.Without(evidence.Read) },
}

var latency = rule{
	verdict: Latency,
	needs:   []need{aWait, aSample, aRate},
	holds:   func(v *view) bool { return v.Beyond() && v.Costliest().Kind == evidence.Read },
	says: func(v *view) string {
		return fmt.Sprintf("Each sample waits %s for reads to begin, and does not read much.", show.Seconds(v.Part(evidence.Read).Seconds()))
	},
	why:    func(v *view) []evidence.Line { return append(v.StorageLines(), v.PartLines()...) },
	change: changeOfReads,
	after:  (*view).readAside,
}

// taking: workers keep up, and the trainer itself takes long to take what is ready:
// to unpickle it, to pin it, to map it.
var taking = rule{
	verdict: Assembly,
	needs:   []need{aWait, {"what taking a ready batch costs", func(v *view) evidence.Figure { return v.Loop.Take }}},
	holds: func(v *view) bool {
		// No copying is as slow as five megabytes a second: what takes that long is a worker
		// that does not come to answer.
		copied := !v.Loop.BatchBytes.Known() || v.Loop.BatchBytes.Value >= 5e6*v.Loop.Take.Value
		return v.Waits() && !v.collates() && v.Loop.Settings.Workers > 0 && v.Loop.Take.Value >= max(0.6*v.Loop.Wait.Value, loop.Threshold*v.Now) && copied
	},
	says: func(v *view) string {
		return fmt.Sprintf("Batches are ready, and taking one takes the trainer %s.", show.Seconds(v.Loop.Take.Value))
	},
	why: func(v *view) []evidence.Line {
		var out loop.Lines
		out.Add("taking a batch", v.Loop.Take, "%s when one is ready", show.Seconds(v.Loop.Take.Value))
		out.Add("a batch is", v.Loop.BatchBytes, "%s", show.Bytes(v.Loop.BatchBytes.Value))
		return append(out, v.LoopLines()...)
	},
	change: func(v *view) []Change {
		if v.Integers() {
			return []Change{{"return torch.from_numpy(tokens.astype(np.int32))", "half the bytes; call .long() on the device. One tensor per sample, not many"}}
		}
		if !v.pictures() && v.Data() != loop.OfPictures {
			return []Change{{"return torch.from_numpy(a.astype(np.float16))", "fewer bytes per batch, and one tensor per sample: each passes through shared memory separately; widen it on the device"}}
		}
		return []Change{
			{"return torch.from_numpy(image)  # uint8", "send bytes, and make them floats on the device: a quarter of the copying"},
			{"stoker.DataLoader(...)", "returns mapped memory, and copies nothing"},
		}
	},
	after: func(v *view) model.Job { j := v.Job; j.Take = 0; return j },
}

// readAside is the loop whose workers are as many as its reads ask for, where that is the
// first change, or else without its reads.
func (v *view) readAside() model.Job {
	if v.waitsAside() {
		return v.With(v.waiting())
	}
	return v.Without(evidence.Read)
}

// unprobed: reads are what costs, and what the storage gives to many at once is not
// known. More workers cost little to try where cores are idle.
var unprobed = rule{
	verdict: TooFew,
	needs:   []need{aWait, aSample, aBatch, aCores},
	holds: func(v *view) bool {
		return v.Beyond() && v.Costliest().Kind == evidence.Read && !v.Evidence.Storage.Rate.Known() && v.Loop.Settings.Class != evidence.OwnClass && v.waiting() > v.Loop.Settings.Workers && v.idle()
	},
	says: func(v *view) string {
		return fmt.Sprintf("Reads take %s of a sample's time, and the cores are idle meanwhile: %s would read in parallel. How much the storage delivers to parallel reads was not measured.", show.Percent(v.Part(evidence.Read).Seconds()/v.Sum()), show.Things(v.waiting(), "worker"))
	},
	why:    func(v *view) []evidence.Line { return append(v.StorageLines(), v.PartLines()...) },
	change: func(v *view) []Change { return []Change{v.raised(v.waiting(), "waiting needs no core")} },
	after:  func(v *view) model.Job { return v.With(v.waiting()) },
}

// idle says whether a good part of the cores has nothing to do while the loop waits.
func (v *view) idle() bool {
	return (v.Job.CPU+v.Job.Threads+v.Job.Trainer)/max(v.Now, 1e-9) <= 0.7*v.Evidence.Machine.Cores.Value
}

// waiting is the workers to ask for where samples mostly wait: the fewest that are as good
// as all that are needed, and no more than a few for each core.
func (v *view) waiting() int {
	return v.Job.Fewest(min(v.Needed(), waiters, 4*max(1, int(v.Evidence.Machine.Cores.Value))), 0.05)
}

var assembly = rule{
	verdict: Assembly,
	needs:   []need{aWait, aCollate, aSample},
	holds: func(v *view) bool {
		return v.Beyond() && v.Costliest().Kind == evidence.Collate || v.Waits() && v.collates()
	},
	of: func(v *view) string {
		if c := v.Loop.Settings.Collate; c != "default" {
			return evidence.Short(c) // the script's own function; "": not known
		}
		return ""
	},
	says: func(v *view) string {
		return fmt.Sprintf("Putting samples together into a batch takes %s of the time that it takes to make.", show.Percent(v.Part(evidence.Collate).Seconds()/v.Sum()))
	},
	why:    func(v *view) []evidence.Line { return append(v.PartLines(), v.LoopLines()...) },
	change: changeOfCollate,
	after:  (*view).uncollated,
}

var decoding = rule{
	verdict: TheDecode,
	needs:   []need{aWait, aSample},
	holds:   func(v *view) bool { return v.Beyond() && v.decodes() },
	says: func(v *view) string {
		more, large := "", v.Part(evidence.Transform).Seconds()*v.Large()/v.Sum()
		if large >= 0.02 {
			more = fmt.Sprintf(", and what else looks at all pixels of a picture %s", show.Percent(large))
		}
		return fmt.Sprintf("Decoding (%s) takes %s of a sample's time%s: more than these cores can give.", v.Part(evidence.Decode).Name, show.Percent(v.Part(evidence.Decode).Seconds()/v.Sum()), more)
	},
	why:    func(v *view) []evidence.Line { return append(v.PartLines(), v.NeededLines()...) },
	change: changeOfDecode,
	after:  func(v *view) model.Job { return v.Smaller() },
}

// decodes says whether decoding is what costs most, of whole groups or, where what else
// looks at all pixels goes with it, of single calls: these cost what they do because the
// picture is as large as it is.
func (v *view) decodes() bool {
	d, t := v.Part(evidence.Decode), v.Part(evidence.Transform)
	if v.Costliest().Kind != evidence.Transform {
		return v.Costliest().Kind == evidence.Decode
	}
	for _, s := range v.Loop.Cost.Stages {
		if s.Kind == evidence.Transform && min(s.CPU.Value, s.Wall.Value) > d.Seconds() {
			return false
		}
	}
	large := v.Large()
	return (1-large)*t.Seconds() < d.Seconds() && d.Seconds()+large*t.Seconds() >= 0.5*v.Sum()
}

var transforming = rule{
	verdict: TheTransform,
	needs:   []need{aWait, aSample},
	holds: func(v *view) bool {
		k := v.Costliest().Kind
		return v.Beyond() && (k == evidence.Transform || k == evidence.Tokenize)
	},
	of: func(v *view) string { return evidence.Short(v.Costliest().Name) },
	says: func(v *view) string {
		return fmt.Sprintf("Transforms, %s before all, take %s of a sample's time.", evidence.Short(v.Costliest().Name), show.Percent(v.Costliest().Seconds()/v.Sum()))
	},
	why:    func(v *view) []evidence.Line { return append(v.PartLines(), v.NeededLines()...) },
	change: changeOfTransform,
	after:  func(v *view) model.Job { return v.WithoutStage(v.Costliest()) },
}

// aside: samples wait for something that takes no core, and more of them could wait at a
// time.
var aside = rule{
	verdict: TooFew,
	needs:   []need{aWait, aSample, aBatch, aCores},
	holds: func(v *view) bool {
		p := v.Costliest()
		return v.Beyond() && p.Kind == evidence.Python && p.Blocked > p.CPU && v.waitsAside()
	},
	says: func(v *view) string {
		return fmt.Sprintf("A sample spends %s of its time waiting, without using a core%s: %s could wait in parallel, and %s.", show.Percent(v.Part(evidence.Python).Blocked/v.Sum()), v.TopFrame(), show.Things(v.waiting(), "worker"), v.there())
	},
	why: func(v *view) []evidence.Line {
		return append(v.PartLines(), append(v.FrameLines(), v.NeededLines()...)...)
	},
	change: changeOfPython,
	after:  func(v *view) model.Job { return v.With(v.waiting()) },
}

// there says how many workers there are.
func (v *view) there() string {
	switch n := v.Loop.Settings.Workers; n {
	case 0:
		return "there are none"
	case 1:
		return "there is only one"
	default:
		return fmt.Sprintf("there are only %d", n)
	}
}

var inPython = rule{
	verdict: PythonCode,
	needs:   []need{aWait, aSample},
	holds:   func(v *view) bool { return v.Beyond() && v.Costliest().Kind == evidence.Python },
	says: func(v *view) string {
		p := v.Costliest()
		how := "computes"
		if p.Blocked > p.CPU {
			how = "waits"
		}
		return fmt.Sprintf("Python code of the dataset %s for %s of a sample's time%s.", how, show.Percent(p.Seconds()/v.Sum()), v.TopFrame())
	},
	why: func(v *view) []evidence.Line {
		return append(v.PartLines(), append(v.FrameLines(), v.NeededLines()...)...)
	},
	change: changeOfPython,
	after: func(v *view) model.Job {
		if p := v.Part(evidence.Python); p.Blocked > p.CPU && v.waitsAside() {
			return v.With(v.waiting())
		}
		return v.Less(v.Job, evidence.Python, v.atLine())
	},
}

// atLine is the share of the time of Python code that goes with the line that is named:
// all of it where that is one of a loop, or where lines are not known.
func (v *view) atLine() float64 {
	f, p := v.Loop.Cost.Frames, v.Part(evidence.Python).Seconds()
	if len(f) == 0 || f[0].Loop || f[0].Text == "" || p <= 0 {
		return 1
	}
	return min(1, f[0].Share*v.Sum()/p)
}
