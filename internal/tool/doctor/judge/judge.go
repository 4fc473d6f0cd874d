// Package judge says what evidence means. [Judge] is pure: rules in a fixed order, of
// which the first that holds is the verdict, and findings, each a known mistake with a
// name. A rule that lacks a figure is passed over and says so; nothing is guessed.
package judge

import (
	"fmt"
	"slices"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
	"github.com/stoker-data/stoker/internal/tool/model"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// The verdicts.
const (
	NotDataBound = "not data-bound"
	EpochStart   = "epoch start"
	Latency      = "storage latency (few large reads)"
	Throttled    = "throttled storage"
	SmallFiles   = "many small files"
	Bandwidth    = "storage bandwidth"
	CPULimit     = "CPU limit (cgroup)"
	TheDecode    = "decode"
	TheTransform = "transform" // with the NAME in Verdict.Of
	PythonCode   = "Python code"
	TooFew       = "too few workers"
	TooMany      = "too many workers"
	Repeated     = "repeated for every sample" // with WHAT in Verdict.Of
	Contention   = "lock contention"
	FewSlow      = "few slow samples"
	Assembly     = "batch assembly"
	Shallow      = "prefetch too small"
	Pressure     = "memory pressure"
	Imbalance    = "imbalance of ranks on this machine"
	Paged        = "pageable transfer"
	ForDevice    = "copies to the device"
	Misset       = "misconfigured"
	Insufficient = "insufficient evidence"
)

// Verdict is the one answer.
type Verdict struct {
	Name      string          `json:"name"`
	Of        string          `json:"of,omitempty"` // the transform, the mistake
	DataBound bool            `json:"data_bound"`
	Sentence  string          `json:"sentence"`
	Loader    string          `json:"loader,omitempty"` // where it was made
	Line      string          `json:"line,omitempty"`   // of the script, that is to change; empty: the loader's
	Rank      int             `json:"rank"`
	Lines     []evidence.Line `json:"evidence"`
	Changes   []Change        `json:"changes,omitempty"`

	// Speedup is how many times faster the loop goes after the change, or without
	// what the verdict names; 0: not predicted. Now and Then are seconds a batch.
	Speedup float64 `json:"speedup,omitempty"`
	// Where the script has other loops or does other things, Speedup is that of all of it,
	// and LoopSpeedup that of this loop.
	LoopSpeedup float64 `json:"loop_speedup,omitempty"`
	Over        string  `json:"over,omitempty"` // the script's name of the loader

	Now  float64 `json:"seconds_per_batch,omitempty"`
	Then float64 `json:"seconds_per_batch_then,omitempty"`

	// Thin says on how little it rests, where that is little.
	Thin string `json:"thin,omitempty"`
	// Preliminary says why a longer look may say otherwise; of a verdict while a script runs.
	Preliminary string `json:"preliminary,omitempty"`

	Missing []string `json:"missing,omitempty"` // figures without which rules were passed over
}

// Change is what to do: code or a command to paste, and why in a sentence.
type Change struct {
	Code string `json:"code"`
	Why  string `json:"why"`
}

// Report is what Judge says of an Evidence.
type Report struct {
	Schema   int               `json:"schema"`
	Verdict  Verdict           `json:"verdict"`
	Findings []Finding         `json:"findings"`
	Evidence evidence.Evidence `json:"evidence"`
}

// Threshold is the share of the time from which on waiting is a verdict.
const Threshold = loop.Threshold

// boundless is a speed-up too large to be a prediction: a loop without a step,
// rid of all that it costs.
const boundless = 1e4

// Judge says what an Evidence means. It is pure: the same Evidence, the same
// Report.
func Judge(ev evidence.Evidence) Report {
	r := Report{Schema: evidence.Schema, Evidence: ev}
	v := newView(ev, ev.Worst())
	r.Verdict = v.verdict()
	if most, ok := atMost(ev); ok && ev.Subject.Kind == evidence.OfLoader {
		r.Verdict.atMost(max(1, most))
	}
	r.Findings = findings(ev)
	if r.Findings == nil { // an empty list is [] to machines, not null
		r.Findings = []Finding{}
	}
	if r.Verdict.Lines == nil {
		r.Verdict.Lines = []evidence.Line{}
	}
	return r
}

// atMost keeps a prediction below what batches bring that cost nothing, where that was
// measured: no change gains more.
func (v *Verdict) atMost(gain float64) {
	if v.Speedup > gain {
		v.Speedup, v.Then = gain, v.Now/gain
	}
}

func (v *view) verdict() Verdict {
	var missing []string
	for _, r := range rules() {
		if lacks := r.lacks(v); len(lacks) > 0 {
			missing = append(missing, lacks...)
			continue
		}
		if !r.holds(v) {
			continue
		}
		if low, high, is := v.undecided(); is {
			return v.either(low, high)
		}
		out := Verdict{Name: r.verdict, Over: v.Loop.Settings.Name, DataBound: r.verdict != NotDataBound, Loader: v.Loop.Settings.Where, Rank: v.Loop.Rank, Lines: r.why(v), Sentence: r.says(v), Thin: v.thin()}
		if v.Start >= 0.05 && !slices.ContainsFunc(out.Lines, func(l evidence.Line) bool { return l.What == loop.FirstBatch }) {
			out.Lines = append(out.Lines, v.StartLines()...)
		}
		if r.of != nil {
			out.Of = r.of(v)
		}
		if r.change != nil {
			out.Changes = r.change(v)
		}
		if r.after != nil && v.Now > 0 && v.Paced() {
			then := v.Settled(r.after(v))
			rare := v.Rare(then)
			if gain := model.Speedup(v.Now, rare); gain < boundless && then.Mean() < evidence.Most && rare.Mean() < evidence.Most {
				out.Now, out.Then, out.Speedup = v.Now, rare.Mean(), gain
				out.wholeScript(v.Share())
			}
		}
		out.Line = v.line(r.verdict)
		return out
	}
	slices.Sort(missing)
	return v.insufficient(slices.Compact(missing))
}

// Title is the verdict in a few words.
func (v Verdict) Title() string {
	if v.Of != "" {
		if v.Name == Repeated || v.Name == PythonCode || v.Name == Assembly {
			return v.Name + ": " + v.Of
		}
		return v.Name + " " + v.Of
	}
	return v.Name
}

// WorthGaining is how many times faster a loop has to be to be called that.
const WorthGaining = 1.05

// atMost is how many times faster the loop is over batches that cost nothing, as that
// was measured; ok is false where it was not, or where there is no step.
func atMost(ev evidence.Evidence) (gain float64, ok bool) {
	none, real := ev.Tier(evidence.OfGain, evidence.OutOfNothing), ev.Tier(evidence.OfGain, evidence.TheDataset)
	if ev.PretendedStep() == 0 || !none.Rate.Known() || !real.Rate.Known() || real.Rate.Value <= 0 {
		return 0, false
	}
	return none.Rate.Value / real.Rate.Value, true
}

// Elsewhere says where the gain comes from that is not waiting in __next__, as the end of a
// sentence: making batches takes cores and caches from the step. Empty: not known.
func Elsewhere(ev evidence.Evidence) string {
	with, alone := ev.Worst().Step, ev.Tier(evidence.OfGain, evidence.OutOfNothing).Batch
	if !with.Known() || !alone.Known() || with.Value-alone.Value < (ev.Tier(evidence.OfGain, evidence.TheDataset).Batch.Value-alone.Value)/2 {
		return ""
	}
	return fmt.Sprintf(": a step takes %s beside the making of batches, and %s without", show.Seconds(with.Value), show.Seconds(alone.Value))
}

// Measures are what follows from the figures of the loop that a verdict is about, for
// those who show it or decide how long to look.
type Measures struct {
	Now       float64 // seconds a batch, the starts of epochs spread over them; 0: too few batches
	Wait      float64 // share of the time in __next__, in the middle of epochs
	Start     float64 // share of the time that the starts of epochs take beyond that
	Lost      float64 // share of the time that waiting takes, starts included
	Unwaited  float64 // how many times faster the loop is that never waits
	Ranks     int     // training processes on this machine
	Needed    float64 // workers that keep the trainer busy
	Workers   int     // the same, whole
	Usable    int     // workers that the machine has cores for
	Paced     bool    // batches went into steps
	Alone     bool    // other processes leave the cores alone
	Bound     bool    // the loop loses more than the threshold
	Costliest string  // the kind of stages that takes the most of a sample
	Reads     bool    // no number of workers would end the waiting, and reading costs the most
}

// Measure is pure, as Judge is.
func Measure(ev evidence.Evidence) Measures {
	v := newView(ev, ev.Worst())
	return Measures{
		Now: v.Now, Wait: v.Wait, Start: v.Start, Lost: v.Lost(), Unwaited: v.Unwaited(), Ranks: v.Ranks(), Needed: v.Job.Needed(), Workers: v.Needed(), Usable: v.Usable(),
		Paced: v.Paced(), Alone: v.Alone(), Bound: v.Bound(), Costliest: v.Costliest().Kind, Reads: v.Beyond() && v.Costliest().Kind == evidence.Read,
	}
}

// Verdicts are the names of all that rules can say, in the order in which they are asked;
// "insufficient evidence" is not one of them.
func Verdicts() (names []string) {
	for _, r := range rules() {
		if !slices.Contains(names, r.verdict) {
			names = append(names, r.verdict)
		}
	}
	return names
}

// view is a loop as rules look at it, with what they say of it and advise.
type view struct{ *loop.View }

func newView(ev evidence.Evidence, l evidence.Loop) *view { return &view{loop.New(ev, l)} }
