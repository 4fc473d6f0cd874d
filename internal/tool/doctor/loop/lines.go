package loop

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// The figures that a verdict shows. A figure that was not measured has no line.

type Lines []evidence.Line

// Add puts a line down if its figure was measured; text has one verb for it, by
// how it is shown.
func (l *Lines) Add(what string, f evidence.Figure, format string, a ...any) {
	if f.Known() {
		*l = append(*l, evidence.Line{What: what, Text: fmt.Sprintf(format, a...), Source: f.Source})
	}
}

func (v *View) LoopLines() []evidence.Line {
	var out Lines
	l := v.Loop
	p99 := ""
	if l.WaitP99.Known() {
		p99 = ", p99 " + show.Seconds(l.WaitP99.Value)
	}
	if !v.OneBatch() { // it has none in the middle of an epoch
		out.Add("wait in __next__", l.Wait, "%s per batch%s, %s of the time", show.Seconds(l.Wait.Value), p99, show.Percent(v.Wait))
	}
	out.Add("step", l.Step, "%s per batch, between two __next__", show.Seconds(l.Step.Value))
	out.Add("left out", l.Hung, "%s of %s in all: not counted as steps", show.Things(l.Hangs, "step"), show.Took(l.Hung.Value))
	of := ""
	if l.Settings.Prefetch > 0 {
		of = fmt.Sprintf(" of %d", max(1, l.Settings.Workers)*l.Settings.Prefetch)
	}
	out.Add("batches ready", l.Ready, "%.1f%s when __next__ is called", l.Ready.Value, of)
	out.Add("measured over", l.Batches, "%s batches, %s", show.Number(l.Batches.Value), show.Took(l.Seconds.Value))
	return out
}

// StepLines say where a step's time goes, and where that of the rare long ones.
func (v *View) StepLines() []evidence.Line {
	most := func(frames []evidence.Frame) []evidence.Frame {
		frames = frames[:min(3, len(frames))]
		if i := slices.IndexFunc(frames, func(f evidence.Frame) bool { return f.Share < 0.1 || LineOnly(f.At) == "" }); i >= 0 {
			return frames[:i]
		}
		return frames
	}
	return append(FrameLines("  of a step", most(v.Loop.Steps.Usual)), FrameLines("  of long steps", most(v.Loop.Steps.Long))...)
}

// FrameLines say what share of the time goes into each line of the script, and what is
// written there.
func FrameLines(what string, frames []evidence.Frame) (out []evidence.Line) {
	for _, f := range frames {
		text := fmt.Sprintf("%s at %s", show.Percent(f.Share), LineOnly(f.At))
		if f.Text != "" {
			text += ": " + show.Shortened(f.Text, 44)
		}
		out = append(out, evidence.Line{What: what, Text: text, Source: "hook's samples of the stack"})
	}
	return out
}

// FirstBatch is the line of what epochs' starts take.
const FirstBatch = "first batch"

func (v *View) StartLines() []evidence.Line {
	var out Lines
	l := v.Loop
	if l.First.Known() && l.PerEpoch.Known() {
		out.Add(FirstBatch, l.First, "after %s, %s begun; %s of the time", show.Took(l.First.Value), show.Things(l.Epochs, "epoch"), show.Percent(v.Start))
		out.Add("an epoch", l.PerEpoch, "%s", show.Count(int64(l.PerEpoch.Value), "batch", "batches"))
	} else {
		out.Add(FirstBatch, l.First, "after %s", show.Took(l.First.Value))
	}
	return out
}

func (v *View) CostLines() []evidence.Line {
	var out Lines
	c := v.Loop.Cost
	if v.Loop.Settings.Workers == 0 {
		out.Add("a batch", c.Batch, "%s in the training process itself", show.Seconds(c.Batch.Value))
	} else {
		out.Add("a batch", c.Batch, "%s in its worker, %s of that on a core", show.Seconds(c.Batch.Value), show.Seconds(c.CPU.Value))
	}
	return out
}

func (v *View) NeededLines() []evidence.Line {
	out := Lines(v.CostLines())
	if n := v.Job.Needed(); !math.IsInf(n, 0) && n < 1e4 {
		by := "a step"
		if v.TakingCounts() {
			by = fmt.Sprintf("a step and the %s of taking one", show.Seconds(v.Job.Take))
		}
		out.Add("workers needed", v.Loop.Cost.Batch, "%.1f (a batch by %s), %d set%s", n, by, v.Loop.Settings.Workers, v.another())
	}
	others := ""
	if !v.Alone() {
		others = fmt.Sprintf(", and other processes used %.1f", v.Evidence.Run.Others.Value)
	}
	out.Add("cores", v.Evidence.Machine.Cores, "%s, %.1f of them free beside the trainer%s", show.Number(v.Evidence.Machine.Cores.Value), v.free(), others)
	return out
}

func (v *View) QueueLines() []evidence.Line {
	var out Lines
	c := v.Loop.Cost
	out.Add("workers", v.Loop.Cost.Batch, "%d, on %s", v.Loop.Settings.Workers, show.Cores(v.Evidence.Machine.Cores.Value))
	out.Add("waiting for a core", c.Queue, "workers %s of the time that they could run", show.Percent(c.Queue.Value))
	out.Add("trainer for a core", v.Loop.TrainerQueue, "%s of the time that it could run", show.Percent(v.Loop.TrainerQueue.Value))
	out.Add("torch threads", c.Threads, "%.0f in each worker", c.Threads.Value)
	out.Add("taken off a core", c.Switches, "%s times per second in each worker", show.Number(c.Switches.Value))
	out.Add("other processes", v.Evidence.Run.Others, "use %.1f cores", v.Evidence.Run.Others.Value)
	return out
}

// PartLines say what a sample's time is spent on, down to a hundredth of it.
func (v *View) PartLines() []evidence.Line {
	var out Lines
	c := v.Loop.Cost
	spread := ""
	if c.P99.Known() && c.Spread == "sample" {
		spread = ", p99 " + show.Seconds(c.P99.Value)
	}
	out.Add("a sample", c.Sample, "%s%s, %s of that on a core", show.Seconds(c.Sample.Value), spread, show.Seconds(c.SampleCPU.Value))
	sum, kind := 0.0, 0.0 // of all stages, and of those that the verdict is about
	for _, s := range c.Stages {
		sum += s.Wall.Value
		if s.Kind == v.Costliest().Kind {
			kind += s.Wall.Value
		}
	}
	for _, s := range c.Stages {
		if s.Wall.Value < 0.01*sum || len(out) > 7 {
			continue
		}
		cpu := ""
		if s.CPU.Known() {
			cpu = ", " + show.Seconds(s.CPU.Value) + " on a core"
		}
		wall, of := s.Wall.Value, "sample"
		if s.Kind == evidence.Collate {
			wall, of, cpu = wall*v.Batch, "batch", ""
		}
		out.Add("  "+partName(s), s.Wall, "%s per %s (%s)%s", show.Seconds(wall), of, show.Percent(s.Wall.Value/sum), cpu)
	}
	if clock := show.Percent(kind / max(sum, 1e-12)); v.Beyond() && sum > 0 && v.Sum() > 0 && clock != show.Percent(v.Costliest().Seconds()/v.Sum()) {
		out.Add("shares", c.Sample, "of the time by the clock; the verdict leaves out waiting for a core, and takes what decoders wait for as reading")
	}
	return out
}

// partName is a stage as a row has it: a Compose has been freed of what has a name in it.
func partName(s evidence.Stage) string {
	name := strings.TrimPrefix(s.Name, "torchvision.transforms.")
	if s.Kind == evidence.Python && strings.HasSuffix(s.Name, ".Compose") {
		return "rest of " + evidence.Short(name)
	}
	return name
}

func (v *View) SpreadLines() []evidence.Line {
	var out Lines
	c := v.Loop.Cost
	out.Add("a "+cmp.Or(c.Spread, "sample"), c.P50, "%s in the middle, %s at p99, %s at most", show.Seconds(c.P50.Value), show.Seconds(c.P99.Value), show.Seconds(c.Most.Value))
	out.Add("workers idle", c.Idle, "%s of their time", show.Percent(c.Idle.Value))
	out.Add("prefetch", c.Batch, "%d batches a worker", v.Loop.Settings.Prefetch)
	return append(out, v.NeededLines()...)
}

func (v *View) FrameLines() []evidence.Line {
	var out []evidence.Line
	for i, f := range v.Loop.Cost.Frames {
		if i == 3 || f.Share < 0.05 {
			break
		}
		out = append(out, evidence.Line{What: "  at " + show.Percent(f.Share), Text: f.At, Source: "hook's samples of the stack"})
	}
	return out
}

func (v *View) StorageLines() []evidence.Line {
	var out Lines
	c, s := v.Loop.Cost, v.Evidence.Storage
	read := v.Part(evidence.Read)
	out.Add("waiting for reads", c.Sample, "%s per sample, %s of its time", show.Seconds(read.Blocked), show.Percent(read.Blocked/max(v.Sum(), 1e-9)))
	out.Add("files opened", c.Opens, "%.1f per sample", c.Opens.Value)
	out.Add("read", c.Read, "%s per sample in %.1f calls", show.Bytes(c.Read.Value), c.Reads.Value)
	out.Add("opening a file", s.Open, "%s", show.Seconds(s.Open.Value))
	stream := "stream"
	if s.Remote != "" {
		stream = "connection"
		out.Add("requests refused", s.Refused, "%s of those to %s", show.Percent(s.Refused.Value), s.Remote)
	}
	out.Add("small read", s.Latency, "%s", show.Seconds(s.Latency.Value))
	with := ", the script's reads with it"
	if s.Quiet {
		with = ""
	}
	out.Add("one "+stream, s.Alone, "%s per second%s", show.Bytes(s.Alone.Value), with)
	out.Add(fmt.Sprintf("%d %ss", s.Streams, stream), s.Rate, "%s per second%s", show.Bytes(s.Rate.Value), with)
	return append(out, v.LoopLines()...)
}

func (v *View) MemoryLines() []evidence.Line {
	var out Lines
	r := v.Evidence.Run
	out.Add("waiting for memory", r.Pressure, "%s of the time", show.Percent(r.Pressure.Value))
	out.Add("read again", r.Refaults, "%s per second of pages that were dropped", show.Bytes(r.Refaults.Value))
	out.Add("major faults", r.Faults, "%s per second", show.Number(r.Faults.Value))
	out.Add("swapped in", r.Swapped, "%s per second", show.Bytes(r.Swapped.Value))
	out.Add("memory limit", r.Limit, "%s, %s used", show.Bytes(r.Limit.Value), show.Percent(r.Used.Value))
	return out
}

func (v *View) QuotaLines() []evidence.Line {
	var out Lines
	r, m := v.Evidence.Run, v.Evidence.Machine
	out.Add("quota", m.Quota, "%s of %s", show.Cores(m.Quota.Value), show.Cores(v.Host()))
	out.Add("stopped by it", r.Throttled, "in %s of its periods, %.1f s of core time per second", show.Percent(r.Throttled.Value), r.Stopped.Value)
	out.Add("cores used", r.CPU, "%.2f", r.CPU.Value)
	return out
}

func (v *View) RankLines() (out []evidence.Line) {
	shown := 0
	for _, l := range v.Evidence.Loops {
		if l.Settings.ID != v.Loop.Settings.ID || !l.Wait.Known() {
			continue
		}
		if shown++; shown > 8 {
			break
		}
		text := fmt.Sprintf("waits %s, steps %s per batch", show.Seconds(l.Wait.Value), show.Seconds(l.Step.Value))
		if l.Cost.Batch.Known() {
			text += "; a batch costs " + show.Seconds(l.Cost.Batch.Value)
		}
		out = append(out, evidence.Line{What: fmt.Sprintf("rank %d", l.Rank), Text: text, Source: l.Wait.Source})
	}
	return out
}

// ProcLines are what can be seen from outside.
func (v *View) ProcLines() []evidence.Line {
	var out Lines
	r := v.Evidence.Run
	out.Add("looked at", r.Seconds, "%s, %s", show.Took(r.Seconds.Value), show.Things(r.Processes, "process"))
	out.Add("cores used", r.CPU, "%.2f of %s", r.CPU.Value, show.Number(v.Evidence.Machine.Cores.Value))
	out.Add("bytes read", r.ReadRate, "%s per second", show.Bytes(r.ReadRate.Value))
	out.Add("stopped by quota", r.Throttled, "in %s of the periods", show.Percent(r.Throttled.Value))
	out.Add("major faults", r.Faults, "%.1f per second", r.Faults.Value)
	out.Add("no batch since", r.Quiet, "%s", show.Took(r.Quiet.Value))
	for _, at := range r.At {
		out = append(out, evidence.Line{What: "  process", Text: at, Source: evidence.FromProc})
	}
	return out
}

// CostliestLines say what most of a sample's time goes to, and where.
func (v *View) CostliestLines() []evidence.Line {
	var out Lines
	c, sum := v.Loop.Cost, 0.0
	for _, s := range c.Stages {
		sum += s.Wall.Value
	}
	for i, s := range c.Stages {
		if i == 2 || s.Wall.Value < 0.2*sum {
			break
		}
		at := s.At
		if s.Name == "Python code" && len(c.Frames) > 0 {
			at = c.Frames[0].At
		}
		if at != "" {
			at = ", at " + LineOnly(at)
		}
		out.Add("of a sample", s.Wall, "%s %s%s", show.Percent(s.Wall.Value/sum), partName(s), at)
	}
	return out
}

// another says what one worker more would bring, where there are no cores left for it.
func (v *View) another() string {
	n := v.Loop.Settings.Workers
	if n == 0 || v.Needed() <= n || v.Needed() <= v.Usable() {
		return ""
	}
	by := v.Rare(v.Settled(v.Job)).Mean() / max(v.Rare(v.Settled(v.With(n+1))).Mean(), 1e-9)
	return fmt.Sprintf("; on these cores one more would bring %.2f x", max(1, by))
}
