// Package judge says what evidence means. [Judge] is pure: rules in a fixed order, of
// which the first that holds is the verdict, and findings, each a known mistake with a
// name. A rule that lacks a figure is passed over and says so; nothing is guessed.
package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/model"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// The verdicts.
const (
	NotDataBound = "not data-bound"
	EpochStart   = "epoch start"
	Latency      = "storage latency (few large reads)"
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
	Misset       = "misconfigured"
	Insufficient = "insufficient evidence"
)

// Verdict is the one answer.
type Verdict struct {
	Name      string   `json:"name"`
	Of        string   `json:"of,omitempty"` // the transform, the mistake
	DataBound bool     `json:"data_bound"`
	Sentence  string   `json:"sentence"`
	Loader    string   `json:"loader,omitempty"` // where it was made
	Line      string   `json:"line,omitempty"`   // of the script, that is to change; empty: the loader's
	Rank      int      `json:"rank"`
	Lines     []Line   `json:"evidence"`
	Changes   []Change `json:"changes,omitempty"`

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

// Line is one figure of the evidence, and where it was measured.
type Line struct {
	What   string `json:"what"`
	Text   string `json:"text"`
	Source string `json:"source"`
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

// view is the Evidence as rules look at it: of one loop, with what follows from
// its figures by arithmetic.
type view struct {
	ev  evidence.Evidence
	l   evidence.Loop
	job model.Job // the loop as it is
	now float64   // seconds a batch, the starts of epochs spread over them; measured

	wait  float64 // share of the time in __next__, in the middle of epochs
	start float64 // share of the time that epochs' starts take beyond that
	batch float64 // samples a batch
	extra float64 // seconds that rare long steps add to the mean of a step
	parts []part  // of a sample, costliest group first
}

// part is a group of stages of one kind, in seconds a sample.
type part struct {
	kind    string
	name    string  // of its costliest stage
	cpu     float64 // on a core
	blocked float64 // neither on a core nor waiting for one
}

func (p part) seconds() float64 { return p.cpu + p.blocked }

// paced says whether batches went into steps. Without any a loop does nothing but wait,
// and how much less it would wait is no speed-up of anything. What is a script's own is
// a loop, however short its step.
func (v *view) paced() bool {
	gain := slices.ContainsFunc(v.ev.Tiers, func(t evidence.Tier) bool { return t.Of == evidence.OfGain })
	return v.l.Step.Value >= 0.02*v.now || v.ev.Subject.Kind != evidence.OfSpec && !gain
}

// Threshold is the share of the time below which waiting is not worth a change:
// without it a loop would be at most 1.11 times faster, which is as much as runs
// of the same loop differ on a machine that does other things too.
const Threshold = 0.10

// boundless is a speed-up that is no prediction any more: a loop without a step,
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
		r.Verdict.Lines = []Line{}
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
		out := Verdict{Name: r.verdict, Over: v.l.Settings.Name, DataBound: r.verdict != NotDataBound, Loader: v.l.Settings.Where, Rank: v.l.Rank, Lines: r.why(v), Sentence: r.says(v), Thin: v.thin()}
		if v.start >= 0.05 && !slices.ContainsFunc(out.Lines, func(l Line) bool { return l.What == firstBatch }) {
			out.Lines = append(out.Lines, v.startLines()...)
		}
		if r.of != nil {
			out.Of = r.of(v)
		}
		if r.change != nil {
			out.Changes = r.change(v)
		}
		if r.after != nil && v.now > 0 && v.paced() {
			then := v.settled(r.after(v))
			if gain := model.Speedup(v.now, v.rare(then)); gain < boundless && then.Mean() < evidence.Most {
				out.Now, out.Then, out.Speedup = v.now, v.rare(then).Mean(), gain
				out.wholeScript(v.share())
			}
		}
		out.Line = v.line(r.verdict)
		return out
	}
	slices.Sort(missing)
	return v.insufficient(slices.Compact(missing))
}

func newView(ev evidence.Evidence, l evidence.Loop) *view {
	v := &view{ev: ev, l: l, batch: float64(max(1, l.Settings.BatchSize))}
	cycle := l.Wait.Value + l.Step.Value
	if l.Wait.Known() && l.Step.Known() && cycle > 0 {
		v.wait = l.Wait.Value / cycle
		v.now = cycle
	}
	v.split()
	v.job = v.asJob(cycle)
	v.evenSteps()
	again := l.Epochs >= 2 || l.Settings.Workers > 0 && !l.Settings.Persistent // else it is not known to come again
	if extra := l.First.Value - l.Wait.Value; l.First.Known() && l.PerEpoch.Known() && again && extra > 0 && cycle > 0 {
		v.job.First, v.job.Batches = extra, l.PerEpoch.Value
		v.now += extra / l.PerEpoch.Value
		v.start = extra / l.PerEpoch.Value / v.now
	}
	return v
}

// asJob is the loop as the model has it.
func (v *view) asJob(cycle float64) model.Job {
	l, c := v.l, v.l.Cost
	j := model.Job{
		Step: l.Step.Value, Hand: min(l.Hand.Value, l.Wait.Value), Trainer: l.Trainer.Value * cycle,
		Workers: l.Settings.Workers, Cores: v.ev.Machine.Cores.Value, Prefetch: max(2, l.Settings.Prefetch),
	}
	if l.Settings.Workers == 0 { // its making of batches is the trainer's time too
		j.Trainer = max(0, j.Trainer-c.CPU.Value)
	}
	for _, p := range v.parts {
		n := v.batch
		j.CPU, j.Blocked = j.CPU+p.cpu*n, j.Blocked+p.blocked*n
	}
	if len(v.parts) == 0 {
		j.CPU, j.Blocked = c.CPU.Value, max(0, c.Batch.Value-c.CPU.Value)
	}
	if c.Process.Known() && l.Settings.Workers > 0 {
		j.Threads = max(0, c.Process.Value-j.CPU)
	}
	return j
}

// keepUp says whether workers do: they are idle, and the queue is full. What the
// trainer waits then, beyond taking a batch, it waits for a core.
func (v *view) keepUp() bool {
	l, s := v.l, v.l.Settings
	full := l.Ready.Value / float64(max(1, s.Workers*max(1, s.Prefetch)))
	return s.Workers > 0 && l.Hand.Known() && (l.Cost.Idle.Value >= 0.9 && full >= 0.75 || (!v.alone() || v.ranks() > 1) && l.Cost.Idle.Value >= 0.5 && full >= 0.9)
}

// part is the group of a kind; nothing if there is none.
func (v *view) part(kind string) part {
	for _, p := range v.parts {
		if p.kind == kind {
			return p
		}
	}
	return part{kind: kind}
}

// costliest is the group that takes the most of a sample.
func (v *view) costliest() part {
	if len(v.parts) == 0 {
		return part{}
	}
	return v.parts[0]
}

// sum is the seconds of a sample.
func (v *view) sum() (s float64) {
	for _, p := range v.parts {
		s += p.seconds()
	}
	return s
}

// waits says whether the loop loses time in the middle of epochs: it stands there, or its
// steps stand still because workers have its cores.
func (v *view) waits() bool { return v.stands() || v.competes() }

// stands says whether the loop loses more than the threshold in the middle of epochs, or
// with their starts, and most of it there.
func (v *view) stands() bool {
	share := v.wait
	if v.keepUp() {
		share = v.job.Hand / (v.l.Wait.Value + v.l.Step.Value)
	}
	return v.seenEnough() && (share >= Threshold || v.middle()+v.start >= Threshold && v.middle() > v.start)
}

// starts says whether it loses more than that, and most of it before the first batches of
// epochs.
func (v *view) starts() bool {
	return v.middle()+v.start >= Threshold && v.start >= v.middle() && !v.competes()
}

// bound says whether it loses that at all.
func (v *view) bound() bool { return v.waits() || v.starts() }

// usable is the workers that the machine has cores for, beside the trainer and
// for each rank its part. A quarter of a core is forgiven: nobody keeps one
// entirely busy.
func (v *view) usable() int {
	return max(1, int(math.Floor(v.free()+0.25)))
}

func (v *view) free() float64 {
	j := v.job
	j.Cores /= float64(v.ranks())
	return j.Free()
}

// ranks is the training processes on this machine that were seen.
func (v *view) ranks() int {
	seen := map[int]bool{}
	for _, l := range v.ev.Loops {
		if l.Settings.Workers > 0 || l.Batches.Value > 0 {
			seen[l.PID] = true
		}
	}
	return max(1, len(seen))
}

// needed is the workers that keep the trainer busy, rounded up; a twentieth of
// one is forgiven.
func (v *view) needed() int {
	n := v.job.Needed()
	if n > 1e6 {
		return 1e6
	}
	return max(1, int(math.Ceil(n-0.05)))
}

// without is the loop when a kind of its costs is gone.
func (v *view) without(kind string) model.Job { return v.less(v.job, kind, 1) }

// less takes a share of a kind of costs from a loop.
func (v *view) less(j model.Job, kind string, share float64) model.Job {
	p := v.part(kind)
	j.CPU = max(0, j.CPU-share*p.cpu*v.batch)
	j.Blocked = max(0, j.Blocked-share*p.blocked*v.batch)
	return j
}

// withoutStage is the loop without the stage that gives a group its name: the others of
// its kind stay.
func (v *view) withoutStage(p part) model.Job {
	all, this := 0.0, 0.0
	for _, s := range v.l.Cost.Stages {
		if s.Kind != p.kind {
			continue
		}
		all += s.Wall.Value
		if s.Name == p.name {
			this += s.Wall.Value
		}
	}
	return v.less(v.job, p.kind, this/max(all, 1e-9))
}

// smaller is the loop over pictures that are stored as large as they are looked at:
// hardly anything is left of decoding them, nor of what works on all of their pixels
// before most are taken away.
func (v *view) smaller() model.Job {
	return v.less(v.without(evidence.Decode), evidence.Transform, v.large())
}

// large is the share of its transforms that work on all pixels of a picture.
func (v *view) large() float64 {
	all, large := 0.0, 0.0
	for _, s := range v.l.Cost.Stages {
		if s.Kind != evidence.Transform {
			continue
		}
		all += s.Wall.Value
		if v.onAllPixels(s.Name) {
			large += s.Wall.Value
		}
	}
	return large / max(all, 1e-9)
}

// onAllPixels says whether a transform works on a picture as large as it is stored:
// operations called outside of transforms, and those up to the first that leaves
// fewer pixels.
func (v *view) onAllPixels(stage string) bool {
	name := evidence.Short(stage)
	if strings.HasPrefix(stage, "PIL.") || strings.HasPrefix(stage, "cv2.") {
		return true
	}
	first := slices.IndexFunc(v.l.Settings.Transforms, func(t string) bool { return slices.Contains(shrinks, evidence.Short(t)) })
	if first < 0 { // their order is not known
		return slices.Contains(shrinks, name)
	}
	return slices.ContainsFunc(v.l.Settings.Transforms[:first+1], func(t string) bool { return evidence.Short(t) == name })
}

// settled is a loop after a change with what goes along with that. A batch that
// costs less is there sooner when an epoch starts. And other processes stay: of
// the cores that they take, half could be had, since the kernel shares. What is
// measured now has that in it.
func (v *view) settled(j model.Job) model.Job {
	if less := v.job.Batch() - j.Batch(); less > 0 {
		j.First = min(j.First, max(0, v.l.First.Value-less))
	}
	if before := v.job.CPU + v.job.Threads; before > 0 && v.alone() {
		// A step that computes gets back what of it was waiting for a core that workers had.
		less := 1 - min(1, (j.CPU+j.Threads)/before)
		j.Step = max(min(j.Step, v.job.Trainer), j.Step-less*v.queued())
	}
	if !v.alone() {
		j.Cores = max(j.Cores/2, j.Cores-v.taken()/2)
	}
	return j
}

// with is the loop with so many workers.
func (v *view) with(workers int) model.Job {
	j := v.job
	j.Workers = workers
	return j
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

// Elsewhere says where the gain lies that is no waiting in __next__, as the end of a
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
		Now: v.now, Wait: v.wait, Start: v.start, Lost: v.lost(), Unwaited: v.unwaited(), Ranks: v.ranks(), Needed: v.job.Needed(), Workers: v.needed(), Usable: v.usable(),
		Paced: v.paced(), Alone: v.alone(), Bound: v.bound(), Costliest: v.costliest().kind, Reads: v.beyond() && v.costliest().kind == evidence.Read,
	}
}

// Verdicts are the names of all that rules can say, in the order in which they are asked;
// "insufficient evidence" is no rule's.
func Verdicts() (names []string) {
	for _, r := range rules() {
		if !slices.Contains(names, r.verdict) {
			names = append(names, r.verdict)
		}
	}
	return names
}
