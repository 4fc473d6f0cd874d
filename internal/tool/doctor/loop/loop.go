// Package loop is the model of one loop: what follows by arithmetic from the figures of
// its evidence. A [View] says what a sample's time is spent on, what the loop loses and
// where, how many workers it needs and has cores for, and how it would go after a change
// (tool/model); and it puts these figures into lines for a report. It gives no verdict.
package loop

import (
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/model"
)

// View is the Evidence as rules look at it: of one loop, with what follows from
// its figures by arithmetic.
type View struct {
	Evidence evidence.Evidence
	Loop     evidence.Loop
	Job      model.Job // the loop as it is
	Now      float64   // seconds a batch, the starts of epochs spread over them; measured

	Wait  float64 // share of the time in __next__, in the middle of epochs
	Start float64 // share of the time that epochs' starts take beyond that
	Batch float64 // samples a batch
	extra float64 // seconds that rare long steps add to the mean of a step
	Parts []part  // of a sample, costliest group first
}

// part is a group of stages of one kind, in seconds a sample.
type part struct {
	Kind    string
	Name    string  // of its costliest stage
	CPU     float64 // on a core
	Blocked float64 // neither on a core nor waiting for one
}

func (p part) Seconds() float64 { return p.CPU + p.Blocked }

// Paced says whether batches went into steps. Without any a loop does nothing but wait,
// and how much less it would wait is not a speed-up of anything. What is a script's own is
// a loop, however short its step.
func (v *View) Paced() bool {
	gain := slices.ContainsFunc(v.Evidence.Tiers, func(t evidence.Tier) bool { return t.Of == evidence.OfGain })
	return v.Loop.Step.Value >= 0.02*v.Now || v.Evidence.Subject.Kind != evidence.OfSpec && !gain
}

// Threshold is the share of the time below which waiting is not worth a change:
// without it a loop would be at most 1.11 times faster, which is as much as runs
// of the same loop differ on a machine that does other things too.
const Threshold = 0.10

func New(ev evidence.Evidence, l evidence.Loop) *View {
	v := &View{Evidence: ev, Loop: l, Batch: float64(max(1, l.Settings.BatchSize))}
	cycle := l.Wait.Value + l.Step.Value
	if l.Wait.Known() && l.Step.Known() && cycle > 0 {
		v.Wait = l.Wait.Value / cycle
		v.Now = cycle
	}
	v.split()
	v.Job = v.asJob(cycle)
	v.evenSteps()
	again := l.Epochs >= 2 || l.Settings.Workers > 0 && !l.Settings.Persistent // else it is not known to come again
	if extra := l.First.Value - l.Wait.Value; l.First.Known() && l.PerEpoch.Known() && again && extra > 0 && cycle > 0 {
		v.Job.First, v.Job.Batches = extra, l.PerEpoch.Value
		v.Now += extra / l.PerEpoch.Value
		v.Start = extra / l.PerEpoch.Value / v.Now
	}
	return v
}

// asJob is the loop as the model has it.
func (v *View) asJob(cycle float64) model.Job {
	l, c := v.Loop, v.Loop.Cost
	j := model.Job{
		Step: l.Step.Value, Take: min(l.Take.Value, l.Wait.Value), Trainer: l.Trainer.Value * cycle,
		Workers: l.Settings.Workers, Cores: v.Evidence.Machine.Cores.Value, Prefetch: max(2, l.Settings.Prefetch),
	}
	if l.Settings.Workers == 0 { // its making of batches is the trainer's time too
		j.Trainer = max(0, j.Trainer-c.CPU.Value)
	}
	for _, p := range v.Parts {
		n := v.Batch
		j.CPU, j.Blocked = j.CPU+p.CPU*n, j.Blocked+p.Blocked*n
	}
	if len(v.Parts) == 0 {
		j.CPU, j.Blocked = c.CPU.Value, max(0, c.Batch.Value-c.CPU.Value)
	}
	if c.Process.Known() && l.Settings.Workers > 0 {
		j.Threads = max(0, c.Process.Value-j.CPU)
	}
	return j
}

// KeepUp says whether workers do: they are idle, and the queue is full. What the
// trainer waits then, beyond taking a batch, it waits for a core.
func (v *View) KeepUp() bool {
	l, s := v.Loop, v.Loop.Settings
	full := l.Ready.Value / float64(max(1, s.Workers*max(1, s.Prefetch)))
	return s.Workers > 0 && l.Take.Known() && (l.Cost.Idle.Value >= 0.9 && full >= 0.75 || (!v.Alone() || v.Ranks() > 1) && l.Cost.Idle.Value >= 0.5 && full >= 0.9)
}

// Part is the group of a kind; nothing if there is none.
func (v *View) Part(kind string) part {
	for _, p := range v.Parts {
		if p.Kind == kind {
			return p
		}
	}
	return part{Kind: kind}
}

// Costliest is the group that takes the most of a sample.
func (v *View) Costliest() part {
	if len(v.Parts) == 0 {
		return part{}
	}
	return v.Parts[0]
}

// Sum is the seconds of a sample.
func (v *View) Sum() (s float64) {
	for _, p := range v.Parts {
		s += p.Seconds()
	}
	return s
}

// Waits says whether the loop loses time in the middle of epochs: it waits there, or its
// steps wait because workers have its cores.
func (v *View) Waits() bool { return v.Stalls() || v.competes() }

// Stalls says whether the loop loses more than the threshold in the middle of epochs, or
// with their starts, and most of it there.
func (v *View) Stalls() bool {
	share := v.Wait
	if v.KeepUp() {
		share = v.Job.Take / (v.Loop.Wait.Value + v.Loop.Step.Value)
	}
	return v.SeenEnough() && (share >= Threshold || v.Middle()+v.Start >= Threshold && v.Middle() > v.Start)
}

// Starts says whether it loses more than that, and most of it before the first batches of
// epochs.
func (v *View) Starts() bool {
	return v.Middle()+v.Start >= Threshold && v.Start >= v.Middle() && !v.competes()
}

// Bound says whether it loses that at all.
func (v *View) Bound() bool { return v.Waits() || v.Starts() }

// Usable is the workers that the machine has cores for, beside the trainer and
// for each rank its part. A quarter of a core is forgiven: nobody keeps one
// entirely busy.
func (v *View) Usable() int {
	return max(1, int(math.Floor(v.free()+0.25)))
}

func (v *View) free() float64 {
	j := v.Job
	j.Cores /= float64(v.Ranks())
	return j.Free()
}

// Ranks is the training processes on this machine that were seen.
func (v *View) Ranks() int {
	seen := map[int]bool{}
	for _, l := range v.Evidence.Loops {
		if l.Settings.Workers > 0 || l.Batches.Value > 0 {
			seen[l.PID] = true
		}
	}
	return max(1, len(seen))
}

// Needed is the workers that keep the trainer busy, rounded up; a twentieth of
// one is forgiven.
func (v *View) Needed() int {
	n := v.Job.Needed()
	if n > 1e6 {
		return 1e6
	}
	return max(1, int(math.Ceil(n-0.05)))
}

// Without is the loop when a kind of its costs is gone.
func (v *View) Without(kind string) model.Job { return v.Less(v.Job, kind, 1) }

// Less takes a share of a kind of costs from a loop.
func (v *View) Less(j model.Job, kind string, share float64) model.Job {
	p := v.Part(kind)
	j.CPU = max(0, j.CPU-share*p.CPU*v.Batch)
	j.Blocked = max(0, j.Blocked-share*p.Blocked*v.Batch)
	return j
}

// WithoutStage is the loop without the stage that gives a group its name: the others of
// its kind stay.
func (v *View) WithoutStage(p part) model.Job {
	all, this := 0.0, 0.0
	for _, s := range v.Loop.Cost.Stages {
		if s.Kind != p.Kind {
			continue
		}
		all += s.Wall.Value
		if s.Name == p.Name {
			this += s.Wall.Value
		}
	}
	return v.Less(v.Job, p.Kind, this/max(all, 1e-9))
}

// Smaller is the loop over pictures that are stored as large as they are looked at:
// hardly anything is left of decoding them, nor of what works on all of their pixels
// before most are taken away.
func (v *View) Smaller() model.Job {
	return v.Less(v.Without(evidence.Decode), evidence.Transform, v.Large())
}

// Large is the share of its transforms that work on all pixels of a picture.
func (v *View) Large() float64 {
	all, large := 0.0, 0.0
	for _, s := range v.Loop.Cost.Stages {
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
func (v *View) onAllPixels(stage string) bool {
	name := evidence.Short(stage)
	if strings.HasPrefix(stage, "PIL.") || strings.HasPrefix(stage, "cv2.") {
		return true
	}
	first := slices.IndexFunc(v.Loop.Settings.Transforms, func(t string) bool { return slices.Contains(Shrinks, evidence.Short(t)) })
	if first < 0 { // their order is not known
		return slices.Contains(Shrinks, name)
	}
	return slices.ContainsFunc(v.Loop.Settings.Transforms[:first+1], func(t string) bool { return evidence.Short(t) == name })
}

// Settled is a loop after a change with what goes along with that. A batch that
// costs less is there sooner when an epoch starts. And other processes stay: of
// the cores that they take, half could be had, since the kernel shares. What is
// measured now has that in it.
func (v *View) Settled(j model.Job) model.Job {
	if less := v.Job.Batch() - j.Batch(); less > 0 {
		j.First = min(j.First, max(0, v.Loop.First.Value-less))
	}
	if before := v.Job.CPU + v.Job.Threads; before > 0 && v.Alone() {
		// A step that computes gets back what of it was waiting for a core that workers had.
		less := 1 - min(1, (j.CPU+j.Threads)/before)
		j.Step = max(min(j.Step, v.Job.Trainer), j.Step-less*v.queued())
	}
	if !v.Alone() {
		j.Cores = max(j.Cores/2, j.Cores-v.taken()/2)
	}
	return j
}

// With is the loop with so many workers.
func (v *View) With(workers int) model.Job {
	j := v.Job
	j.Workers = workers
	return j
}
