package judge

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

type lines []Line

// add puts a line down if its figure was measured; text has one verb for it, by
// how it is shown.
func (l *lines) add(what string, f evidence.Figure, format string, a ...any) {
	if f.Known() {
		*l = append(*l, Line{what, fmt.Sprintf(format, a...), f.Source})
	}
}

func (v *view) loopLines() []Line {
	var out lines
	l := v.l
	p99 := ""
	if l.WaitP99.Known() {
		p99 = ", p99 " + show.Seconds(l.WaitP99.Value)
	}
	if !v.oneBatch() { // it has none in the middle of an epoch
		out.add("wait in __next__", l.Wait, "%s per batch%s, %s of the time", show.Seconds(l.Wait.Value), p99, show.Percent(v.wait))
	}
	out.add("step", l.Step, "%s per batch, between two __next__", show.Seconds(l.Step.Value))
	out.add("left out", l.Hung, "%s of %s in all: that is no step", show.Things(l.Hangs, "step"), show.Took(l.Hung.Value))
	of := ""
	if l.Settings.Prefetch > 0 {
		of = fmt.Sprintf(" of %d", max(1, l.Settings.Workers)*l.Settings.Prefetch)
	}
	out.add("batches ready", l.Ready, "%.1f%s when __next__ is called", l.Ready.Value, of)
	out.add("measured over", l.Batches, "%s batches, %s", show.Number(l.Batches.Value), show.Took(l.Seconds.Value))
	return out
}

// stepLines say where a step's time goes, and where that of the rare long ones.
func (v *view) stepLines() []Line {
	most := func(frames []evidence.Frame) []evidence.Frame {
		frames = frames[:min(3, len(frames))]
		if i := slices.IndexFunc(frames, func(f evidence.Frame) bool { return f.Share < 0.1 || lineOnly(f.At) == "" }); i >= 0 {
			return frames[:i]
		}
		return frames
	}
	return append(placeLines("  of a step", most(v.l.Steps.Usual)), placeLines("  of long steps", most(v.l.Steps.Long))...)
}

// placeLines say what share of the time goes into each line of the script, and what is
// written there.
func placeLines(what string, frames []evidence.Frame) (out []Line) {
	for _, f := range frames {
		text := fmt.Sprintf("%s at %s", show.Percent(f.Share), lineOnly(f.At))
		if f.Text != "" {
			text += ": " + show.Shortened(f.Text, 44)
		}
		out = append(out, Line{what, text, "hook's samples of the stack"})
	}
	return out
}

// firstBatch is the line of what epochs' starts take.
const firstBatch = "first batch"

func (v *view) startLines() []Line {
	var out lines
	l := v.l
	if l.First.Known() && l.PerEpoch.Known() {
		out.add(firstBatch, l.First, "after %s, %s begun; %s of the time", show.Took(l.First.Value), show.Things(l.Epochs, "epoch"), show.Percent(v.start))
		out.add("an epoch", l.PerEpoch, "%s", show.Count(int64(l.PerEpoch.Value), "batch", "batches"))
	} else {
		out.add(firstBatch, l.First, "after %s", show.Took(l.First.Value))
	}
	return out
}

func (v *view) costLines() []Line {
	var out lines
	c := v.l.Cost
	if v.l.Settings.Workers == 0 {
		out.add("a batch", c.Batch, "%s in the training process itself", show.Seconds(c.Batch.Value))
	} else {
		out.add("a batch", c.Batch, "%s in its worker, %s of that on a core", show.Seconds(c.Batch.Value), show.Seconds(c.CPU.Value))
	}
	return out
}

func (v *view) neededLines() []Line {
	out := lines(v.costLines())
	if n := v.job.Needed(); !math.IsInf(n, 0) && n < 1e4 {
		by := "a step"
		if v.handing() {
			by = fmt.Sprintf("a step and the %s of taking one", show.Seconds(v.job.Hand))
		}
		out.add("workers needed", v.l.Cost.Batch, "%.1f (a batch by %s), %d set%s", n, by, v.l.Settings.Workers, v.another())
	}
	others := ""
	if !v.alone() {
		others = fmt.Sprintf(", and other processes used %.1f", v.ev.Run.Others.Value)
	}
	out.add("cores", v.ev.Machine.Cores, "%s, %.1f of them free beside the trainer%s", show.Number(v.ev.Machine.Cores.Value), v.free(), others)
	return out
}

func (v *view) queueLines() []Line {
	var out lines
	c := v.l.Cost
	out.add("workers", v.l.Cost.Batch, "%d, on %s", v.l.Settings.Workers, show.Cores(v.ev.Machine.Cores.Value))
	out.add("waiting for a core", c.Queue, "workers %s of the time that they could run", show.Percent(c.Queue.Value))
	out.add("trainer for a core", v.l.TrainerQueue, "%s of the time that it could run", show.Percent(v.l.TrainerQueue.Value))
	out.add("torch threads", c.Threads, "%.0f in each worker", c.Threads.Value)
	out.add("taken off a core", c.Switches, "%s times per second in each worker", show.Number(c.Switches.Value))
	out.add("other processes", v.ev.Run.Others, "use %.1f cores", v.ev.Run.Others.Value)
	return out
}

// partLines say what a sample's time is spent on, down to a hundredth of it.
func (v *view) partLines() []Line {
	var out lines
	c := v.l.Cost
	spread := ""
	if c.P99.Known() && c.Spread == "sample" {
		spread = ", p99 " + show.Seconds(c.P99.Value)
	}
	out.add("a sample", c.Sample, "%s%s, %s of that on a core", show.Seconds(c.Sample.Value), spread, show.Seconds(c.SampleCPU.Value))
	sum, kind := 0.0, 0.0 // of all stages, and of those that the verdict is about
	for _, s := range c.Stages {
		sum += s.Wall.Value
		if s.Kind == v.costliest().kind {
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
			wall, of, cpu = wall*v.batch, "batch", ""
		}
		out.add("  "+partName(s), s.Wall, "%s per %s (%s)%s", show.Seconds(wall), of, show.Percent(s.Wall.Value/sum), cpu)
	}
	if clock := show.Percent(kind / max(sum, 1e-12)); v.beyond() && sum > 0 && v.sum() > 0 && clock != show.Percent(v.costliest().seconds()/v.sum()) {
		out.add("shares", c.Sample, "of the time by the clock; the verdict leaves out waiting for a core, and takes what decoders wait for as reading")
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

func (v *view) spreadLines() []Line {
	var out lines
	c := v.l.Cost
	out.add("a "+cmp.Or(c.Spread, "sample"), c.P50, "%s in the middle, %s at p99, %s at most", show.Seconds(c.P50.Value), show.Seconds(c.P99.Value), show.Seconds(c.Most.Value))
	out.add("workers idle", c.Idle, "%s of their time", show.Percent(c.Idle.Value))
	out.add("prefetch", c.Batch, "%d batches a worker", v.l.Settings.Prefetch)
	return append(out, v.neededLines()...)
}

func (v *view) frameLines() []Line {
	var out []Line
	for i, f := range v.l.Cost.Frames {
		if i == 3 || f.Share < 0.05 {
			break
		}
		out = append(out, Line{"  at " + show.Percent(f.Share), f.At, "hook's samples of the stack"})
	}
	return out
}

func (v *view) storageLines() []Line {
	var out lines
	c, s := v.l.Cost, v.ev.Storage
	read := v.part(evidence.Read)
	out.add("waiting for reads", c.Sample, "%s per sample, %s of its time", show.Seconds(read.blocked), show.Percent(read.blocked/max(v.sum(), 1e-9)))
	out.add("files opened", c.Opens, "%.1f per sample", c.Opens.Value)
	out.add("read", c.Read, "%s per sample in %.1f calls", show.Bytes(c.Read.Value), c.Reads.Value)
	out.add("opening a file", s.Open, "%s", show.Seconds(s.Open.Value))
	out.add("small read", s.Latency, "%s", show.Seconds(s.Latency.Value))
	with := ", the script's reads with it"
	if s.Quiet {
		with = ""
	}
	out.add("one stream", s.Alone, "%s per second%s", show.Bytes(s.Alone.Value), with)
	out.add(fmt.Sprintf("%d streams", s.Streams), s.Rate, "%s per second%s", show.Bytes(s.Rate.Value), with)
	return append(out, v.loopLines()...)
}

func (v *view) memoryLines() []Line {
	var out lines
	r := v.ev.Run
	out.add("waiting for memory", r.Pressure, "%s of the time", show.Percent(r.Pressure.Value))
	out.add("read again", r.Refaults, "%s per second of pages that were dropped", show.Bytes(r.Refaults.Value))
	out.add("major faults", r.Faults, "%s per second", show.Number(r.Faults.Value))
	out.add("swapped in", r.Swapped, "%s per second", show.Bytes(r.Swapped.Value))
	out.add("memory limit", r.Limit, "%s, %s used", show.Bytes(r.Limit.Value), show.Percent(r.Used.Value))
	return out
}

func (v *view) quotaLines() []Line {
	var out lines
	r, m := v.ev.Run, v.ev.Machine
	out.add("quota", m.Quota, "%s of %s", show.Cores(m.Quota.Value), show.Cores(v.host()))
	out.add("stopped by it", r.Throttled, "in %s of its periods, %.1f s of core time per second", show.Percent(r.Throttled.Value), r.Stopped.Value)
	out.add("cores used", r.CPU, "%.2f", r.CPU.Value)
	return out
}

func (v *view) rankLines() (out []Line) {
	shown := 0
	for _, l := range v.ev.Loops {
		if l.Settings.ID != v.l.Settings.ID || !l.Wait.Known() {
			continue
		}
		if shown++; shown > 8 {
			break
		}
		text := fmt.Sprintf("waits %s, steps %s per batch", show.Seconds(l.Wait.Value), show.Seconds(l.Step.Value))
		if l.Cost.Batch.Known() {
			text += "; a batch costs " + show.Seconds(l.Cost.Batch.Value)
		}
		out = append(out, Line{fmt.Sprintf("rank %d", l.Rank), text, l.Wait.Source})
	}
	return out
}

// procLines are what can be seen from outside.
func (v *view) procLines() []Line {
	var out lines
	r := v.ev.Run
	out.add("looked at", r.Seconds, "%s, %s", show.Took(r.Seconds.Value), show.Things(r.Processes, "process"))
	out.add("cores used", r.CPU, "%.2f of %s", r.CPU.Value, show.Number(v.ev.Machine.Cores.Value))
	out.add("bytes read", r.ReadRate, "%s per second", show.Bytes(r.ReadRate.Value))
	out.add("stopped by quota", r.Throttled, "in %s of the periods", show.Percent(r.Throttled.Value))
	out.add("major faults", r.Faults, "%.1f per second", r.Faults.Value)
	out.add("no batch since", r.Quiet, "%s", show.Took(r.Quiet.Value))
	for _, at := range r.At {
		out = append(out, Line{"  stands at", at, evidence.FromProc})
	}
	return out
}

// costliestLines say what most of a sample's time goes to, and where.
func (v *view) costliestLines() []Line {
	var out lines
	c, sum := v.l.Cost, 0.0
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
			at = ", at " + lineOnly(at)
		}
		out.add("of a sample", s.Wall, "%s %s%s", show.Percent(s.Wall.Value/sum), partName(s), at)
	}
	return out
}

// another says what one worker more would bring, where there are no cores left for it.
func (v *view) another() string {
	n := v.l.Settings.Workers
	if n == 0 || v.needed() <= n || v.needed() <= v.usable() {
		return ""
	}
	by := v.rare(v.settled(v.job)).Mean() / max(v.rare(v.settled(v.with(n+1))).Mean(), 1e-9)
	return fmt.Sprintf("; on these cores one more would bring %.2f x", max(1, by))
}
