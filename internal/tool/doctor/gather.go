package doctor

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strings"
)

// Where figures come from. A report prints these words behind each figure.
const (
	fromHook   = "hook"
	fromProc   = "/proc"
	fromCgroup = "cgroup"
)

// gather makes loops of what the hook wrote and what /proc said, the one that
// lost the most time first.
func gather(f *folder, w *watched) (loops []Loop) {
	for pid, p := range f.processes {
		for i := range p.last().Loaders {
			loops = append(loops, loopOf(f, w, pid, p.last().Loaders[i].ID))
		}
	}
	return ordered(loops)
}

// ordered puts the loop that lost the most time first.
func ordered(loops []Loop) []Loop {
	slices.SortFunc(loops, func(a, b Loop) int {
		return cmp.Or(cmp.Compare(b.spent(), a.spent()), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Settings.ID, b.Settings.ID))
	})
	return loops
}

// spent is the seconds that the loop stood in __next__ and, after them, in steps:
// loops that never waited are told apart by their length.
func (l Loop) spent() float64 {
	return l.Batches.Value*l.Wait.Value + 1e-3*l.Batches.Value*l.Step.Value
}

// loaderOf is a loader in a line; nil if it is not there yet.
func loaderOf(l line, id int) *loaderLine {
	for i := range l.Loaders {
		if l.Loaders[i].ID == id {
			return &l.Loaders[i]
		}
	}
	return nil
}

func loopOf(f *folder, w *watched, pid, id int) Loop {
	p := f.processes[pid]
	end := p.last()
	last := loaderOf(end, id)
	l := Loop{PID: pid, World: 1, Settings: settingsOf(last, end)}
	if end.Rank != nil {
		l.Rank = *end.Rank
	}
	if end.World != nil {
		l.World = max(1, *end.World)
	}
	base, from := stretch(p, id)
	l.steps(last, base)
	l.epochs(last)
	l.Ready, l.BatchBytes, l.SampleBytes, l.Padding = maybe(last.Ready), maybe(last.Bytes), maybe(last.SampleBytes), maybe(last.Padding)
	if last.WaitHist != nil && last.Batches > 0 {
		l.WaitP99 = figure(last.WaitHist.P99, fromHook)
	}
	if a, b, ok := w.between(pid, from); ok {
		l.Trainer = figure((b.cpu()-a.cpu())/(b.t-a.t), fromProc)
		l.TrainerQueue = ratio(b.queue-a.queue, b.queue-a.queue+b.ran-a.ran, fromProc)
	}
	l.recent(last)
	var state []string
	l.Cost, state = costOf(f, w, pid, last, base, from)
	for _, name := range state {
		if !slices.Contains(l.Settings.Stateful, name) {
			l.Settings.Stateful = append(l.Settings.Stateful, name)
		}
	}
	return l
}

func maybe(v *float64) Figure {
	if v == nil {
		return Figure{}
	}
	return figure(*v, fromHook)
}

func settingsOf(l *loaderLine, end line) Settings {
	s := Settings{
		ID: l.ID, Class: l.Class, Where: l.Where, Dataset: l.Dataset, Kind: l.Kind, Length: l.Length, Workers: l.Workers,
		Pin: l.Pin, Persistent: l.Persistent, DropLast: l.DropLast, Sampler: l.Sampler, Shuffled: l.Shuffled, Collate: l.Collate,
		Context: l.Context, Shape: l.Shape, Transforms: l.Transforms, Pickled: maybe(l.DatasetBytes), Stateful: l.Stateful, Handles: l.Handles,
		SetEpoch: l.SetEpoch, OrderRepeated: l.OrderRepeated, Pinned: l.Pinned,
		NonBlocking: l.NonBlocking["true"], Blocking: l.NonBlocking["false"], CUDAFirst: end.CUDABefore,
	}
	if l.BatchSize != nil {
		s.BatchSize = *l.BatchSize
	}
	if l.Prefetch != nil {
		s.Prefetch = *l.Prefetch
	}
	return s
}

// fewest is the batches that a stretch must have for its means to be believed
// more than those of the whole run.
const fewest = 4

// stretch is where what is measured begins: the first line after every worker
// has delivered once, since before that the queue is filled, not used. Where too
// little came after it, it is the beginning of all (an empty loader).
func stretch(p *process, id int) (base loaderLine, from float64) {
	last := loaderOf(p.last(), id)
	for _, l := range p.lines {
		at := loaderOf(l, id)
		if at == nil || at.Batches <= float64(at.Workers) {
			continue
		}
		if last.Batches-at.Batches < fewest {
			break
		}
		return *at, l.T
	}
	return loaderLine{}, p.first().T
}

// steps are the means over the stretch. The wait for the first batch of an epoch
// is no wait in the middle of one, and is kept apart.
func (l *Loop) steps(last *loaderLine, base loaderLine) {
	n := last.Batches - base.Batches
	firsts := float64(len(last.Epochs))
	if base.Batches > 0 {
		firsts = 0
		for _, e := range last.Epochs {
			if len(base.Epochs) > 0 && e.Begin > base.Epochs[len(base.Epochs)-1].Begin {
				firsts++
			}
		}
	}
	wait := last.Wait - last.WaitFirst - (base.Wait - base.WaitFirst)
	step := last.Step - base.Step
	if n-firsts < 1 || wait < 0 || step < 0 {
		l.Batches = figure(max(0, n), fromHook)
		return
	}
	l.Batches = figure(n, fromHook)
	l.Wait = figure(wait/(n-firsts), fromHook)
	l.Step = figure(step/n, fromHook)
	l.Seconds = figure(wait+step, fromHook)
}

func (l *Loop) epochs(last *loaderLine) {
	l.Epochs = max(last.Passes, len(last.Epochs))
	var sum, n float64
	for i, e := range last.Epochs {
		if e.First == nil || (i == 0 && len(last.Epochs) > 1 && last.Epochs[1].First != nil) {
			continue // the very first start loads libraries and warms caches: later ones are those that come again
		}
		sum, n = sum+*e.First, n+1
	}
	l.First = ratio(sum, n, fromHook)
	for i, e := range last.Epochs {
		if (e.End != nil || i < len(last.Epochs)-1) && e.Batches > 0 { // one that another followed was left early
			l.PerEpoch = figure(e.Batches, fromHook)
		}
	}
	if !l.PerEpoch.Known() && last.Length != nil && last.BatchSize != nil && *last.BatchSize > 0 {
		l.PerEpoch = figure(math.Ceil(float64(*last.Length)/float64(*last.BatchSize)/float64(l.World)), "length of the dataset")
	}
}

// recent keeps the last steps, and finds what __next__ costs when a batch is ready.
func (l *Loop) recent(last *loaderLine) {
	var quick []float64
	zero := math.NaN()
	for _, r := range last.Recent {
		if len(r) < 2 || r[0] == nil || r[1] == nil {
			continue
		}
		if math.IsNaN(zero) {
			zero = *r[0]
		}
		if !(*r[0] >= zero && *r[1] >= *r[0] && *r[1]-zero < most) {
			continue
		}
		ready := -1.0
		if len(r) > 2 && r[2] != nil {
			ready = *r[2]
		}
		l.Recent = append(l.Recent, [3]float64{micro(*r[0] - zero), micro(*r[1] - zero), ready})
		if ready >= 1 {
			quick = append(quick, *r[1]-*r[0])
		}
	}
	if len(quick) >= 3 {
		slices.Sort(quick)
		// Not the middle: batches come in order, and one that is ready may not be the
		// one that is asked for.
		l.Hand = figure(quick[len(quick)/10], fromHook)
	}
}

// micro rounds to microseconds: the clock is no better through Python.
func micro(s float64) float64 { return math.Round(s*1e6) / 1e6 }

// costOf adds up what the workers of a loader counted over the stretch.
func costOf(f *folder, w *watched, pid int, last *loaderLine, base loaderLine, from float64) (Cost, []string) {
	var sum workerLine
	sum.Calls = map[string]call{}
	var proc procSum
	var c Cost
	frames := map[string]Frame{}
	var seen, weight float64
	if last.Workers == 0 {
		if last.Inline == nil {
			return c, nil
		}
		before := workerLine{}
		if base.Inline != nil {
			before = *base.Inline
		}
		sum.plus(*last.Inline, before)
		proc.plus(w, pid, from)
		addFrames(frames, last.Inline.Stacks, last.Inline.Fetch)
		weight = last.Inline.Fetch
		c.hist(last.Inline.Hist, last.Inline.Samples)
	}
	for child, p := range f.processes {
		end := p.last()
		if end.Worker == nil || end.PPID != pid || end.Worker.Loader != last.ID || last.Workers == 0 {
			continue
		}
		before := workerLine{}
		if at := p.since(from); at.Worker != nil && end.Worker.Batches-at.Worker.Batches >= 2 {
			before = *at.Worker
		}
		sum.plus(*end.Worker, before)
		proc.plus(w, child, from)
		addFrames(frames, end.Worker.Stacks, end.Worker.Fetch)
		weight += end.Worker.Fetch
		c.hist(end.Worker.Hist, end.Worker.Samples)
		if n, ok := threadsOf(end.Worker.Threads); ok {
			c.Threads = figure(max(n, c.Threads.Value), fromHook)
		}
		if at := w.pids[child]; len(at) > 0 && w.last()-at[len(at)-1].t < 1 {
			seen++
		}
	}
	c.Workers = int(seen)
	c.divide(sum, proc)
	c.Frames = mostSeen(frames, weight)
	return c, sum.Stateful
}

// plus adds what happened between two lines of a worker.
func (s *workerLine) plus(b, a workerLine) {
	s.Batches += b.Batches - a.Batches
	s.Samples += b.Samples - a.Samples
	s.Fetch += b.Fetch - a.Fetch
	s.Sample += b.Sample - a.Sample
	s.SampleCPU += b.SampleCPU - a.SampleCPU
	s.Collate += b.Collate - a.Collate
	s.CollateCPU += b.CollateCPU - a.CollateCPU
	s.Idle += b.Idle - a.Idle
	s.CPU += b.CPU - a.CPU
	if b.Delay != nil {
		if s.Delay == nil {
			s.Delay = new(float64)
		}
		*s.Delay += *b.Delay
		if a.Delay != nil {
			*s.Delay -= *a.Delay
		}
	}
	if s.Waits == nil {
		s.Waits = map[string]float64{}
	}
	for why, share := range b.Waits { // in looks, so that workers add up; from their start
		s.Waits[why] += share * b.Looks
	}
	s.Looks += b.Looks
	for _, name := range b.Stateful {
		if !slices.Contains(s.Stateful, name) {
			s.Stateful = append(s.Stateful, name)
		}
	}
	s.IO.RChar += b.IO.RChar - a.IO.RChar
	s.IO.ReadBytes += b.IO.ReadBytes - a.IO.ReadBytes
	s.IO.Syscalls += b.IO.Syscalls - a.IO.Syscalls
	s.Faults += b.Faults - a.Faults
	timed := b.Samples
	if b.Timed != nil {
		timed = *b.Timed
	}
	if s.Timed == nil {
		s.Timed = new(float64)
	}
	*s.Timed += timed
	for name, c := range b.Calls {
		before, now := a.Calls[name], s.Calls[name]
		s.Calls[name] = call{now.N + c.N - before.N, now.S + c.S - before.S, now.CPU + c.CPU - before.CPU}
	}
}

// procSum adds up what /proc said of several processes.
type procSum struct {
	seconds, cpu, system, switches float64
}

func (s *procSum) plus(w *watched, pid int, from float64) {
	a, b, ok := w.between(pid, from)
	if !ok {
		return
	}
	s.seconds += b.t - a.t
	s.cpu += b.cpu() - a.cpu()
	s.system += b.system - a.system
	s.switches += b.switches - a.switches
}

func (c *Cost) divide(s workerLine, p procSum) {
	if s.Timed != nil {
		c.Samples = figure(*s.Timed, fromHook)
	}
	c.Batch = ratio(s.Fetch, s.Batches, fromHook)
	c.CPU = ratio(s.SampleCPU+s.CollateCPU, s.Batches, fromHook)
	c.Sample = ratio(s.Sample, s.Samples, fromHook)
	c.Sample0 = ratio(s.SampleCPU, s.Samples, fromHook)
	c.Collate = ratio(s.Collate, s.Batches, fromHook)
	c.Idle = ratio(s.Idle, s.Fetch+s.Idle, fromHook)
	if s.Batches > 0 {
		c.Process = figure(s.CPU/s.Batches, fromHook)
		c.Faults = ratio(s.Faults, s.Samples, fromHook)
	}
	if s.Delay != nil {
		c.Queue = ratio(*s.Delay, *s.Delay+s.SampleCPU+s.CollateCPU, fromHook)
	}
	c.reading(s)
	c.Opens = ratio(s.Calls["open"].N, s.Samples, fromHook)
	c.Reads = ratio(s.IO.Syscalls, s.Samples, fromHook)
	c.Read = ratio(s.IO.RChar, s.Samples, fromHook)
	c.System = ratio(p.system, p.cpu, fromProc)
	c.Switches = ratio(p.switches, p.seconds, fromProc)
	c.stages(s)
}

// reading is the share of reads among what the thread was held for, outside the
// sleeps that the hook has counted as such.
func (c *Cost) reading(s workerLine) {
	held := 0.0
	for why, looks := range s.Waits {
		if why != "sleep" {
			held += looks
		}
	}
	if s.Looks >= 20 {
		c.Held = figure((held+s.Waits["sleep"])/s.Looks, "/proc/PID/syscall")
	}
	slept := 0.0
	if s.Fetch > 0 {
		slept = max(0, s.Waits["sleep"]-s.Looks*s.Calls[sleeping].S/s.Fetch)
	}
	switch {
	case held+slept >= max(3, 0.02*s.Looks):
		c.Reading = figure(held/(held+slept), "/proc/PID/syscall")
	case s.Faults >= s.Samples/2 && s.Samples > 0: // a mapped file is read outside any call
		c.Reading = figure(1, "major faults")
	}
}

// stages are the calls that have a name, and what is left of a sample: Python.
func (c *Cost) stages(s workerLine) {
	if s.Samples <= 0 {
		return
	}
	rest := call{S: s.Sample, CPU: s.SampleCPU}
	for name, k := range s.Calls {
		kind := kindOf(name)
		rest.S, rest.CPU = rest.S-k.S, rest.CPU-k.CPU
		c.Stages = append(c.Stages, stage(name, kind, k, s.Samples))
	}
	joined := call{S: s.Collate + min(0, rest.S), CPU: s.CollateCPU + min(0, rest.CPU)} // calls inside collate are not sample's
	rest.S, rest.CPU = max(0, rest.S), max(0, rest.CPU)
	c.Stages = append(c.Stages, stage("Python code", Python, rest, s.Samples))
	joined.S, joined.CPU = max(0, joined.S), max(0, joined.CPU)
	c.Stages = append(c.Stages, stage("collate", Collate, joined, s.Samples))
	slices.SortFunc(c.Stages, func(a, b Stage) int {
		return cmp.Or(cmp.Compare(b.Wall.Value, a.Wall.Value), strings.Compare(a.Name, b.Name))
	})
}

func stage(name, kind string, c call, samples float64) Stage {
	s := Stage{Name: name, Kind: kind, Wall: ratio(c.S, samples, fromHook), CPU: ratio(c.CPU, samples, fromHook)}
	if c.N > 0 {
		s.Calls = ratio(c.N, samples, fromHook)
	}
	return s
}

// kinds are the entry points that the hook names, by what they begin with; what is
// in no row is a transform, torchvision's or the script's own.
var kinds = [...]struct{ prefix, kind string }{
	{"sleep", Python},
	{"json.", Python},
	{"open", Read},
	{"read", Read},
	{"PIL.", Transform},
	{"PIL", Decode},
	{"cv2.", Transform},
	{"cv2", Decode},
	{"numpy.", Decode},
	{"torch.load", Decode},
	{"pickle.", Decode},
	{"h5py", Decode},
	{"pandas.", Decode},
	{"torchvision.transforms", Transform},
	{"torchvision.", Decode},
	{"torchaudio.load", Decode},
	{"soundfile.", Decode},
	{"librosa.", Decode},
	{"transformers", Tokenize},
	{"tiktoken", Tokenize},
	{"sentencepiece", Tokenize},
	{"tokenizers", Tokenize},
}

// sleeping is the stage of time.sleep.
const sleeping = "sleep"

// kindOf is what a wrapped entry point does.
func kindOf(name string) string {
	for _, k := range kinds {
		if name == k.prefix || strings.HasPrefix(name, k.prefix) && (strings.HasSuffix(k.prefix, ".") || strings.HasPrefix(name[len(k.prefix):], ".")) {
			return k.kind
		}
	}
	return Transform
}

func (c *Cost) hist(q *quantiles, samples float64) {
	if q == nil || samples <= 0 {
		return
	}
	// Of several workers the slowest: quantiles can not be added.
	c.Spread = cmp.Or(q.Of, "sample")
	c.P50 = figure(max(c.P50.Value, q.P50), fromHook)
	c.P99 = figure(max(c.P99.Value, q.P99), fromHook)
	c.Most = figure(max(c.Most.Value, q.Max), fromHook)
}

// threadsOf is how many threads torch computes with in a process, if it says so.
func threadsOf(t map[string]any) (float64, bool) {
	n, ok := t["torch"].(float64)
	return n, ok
}

func addFrames(to map[string]Frame, stacks []stackLine, weight float64) {
	for _, s := range stacks {
		f := to[s.At]
		f.At = s.At
		f.Share += s.Share * weight
		to[s.At] = f
	}
}

func mostSeen(frames map[string]Frame, weight float64) (out []Frame) {
	for _, f := range frames {
		if f.Share = math.Round(1000*f.Share/max(weight, 1e-9)) / 1000; f.Share > 0 && f.Share <= 1 {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b Frame) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(a.At, b.At))
	})
	return out[:min(len(out), 5)]
}

// runOf is how the processes fared since a moment, and how many have the hook.
func runOf(f *folder, w *watched, from float64) (r Run) {
	first := math.Inf(1)
	for _, p := range f.processes {
		l := p.last()
		r.Hooked++
		if t := p.first().Started; r.Python == "" || t < first {
			r.Python, first = l.Python, t
		}
		for name, version := range l.Libraries {
			if r.Libraries == nil {
				r.Libraries = map[string]string{}
			}
			r.Libraries[name] = version
		}
	}
	a, b, ok := w.span(from)
	if !ok {
		return r
	}
	seconds := b.t - a.t
	r.Seconds = figure(seconds, fromProc)
	ours := 0.0
	for pid := range w.pids {
		if a, b, ok := w.between(pid, from); ok {
			ours += b.cpu() - a.cpu()
			r.Faults = figure(r.Faults.Value+(b.faults-a.faults)/seconds, fromProc)
		}
	}
	r.Processes = len(w.pids)
	r.CPU = figure(ours/seconds, fromProc)
	if b.busy > 0 {
		r.Others = figure(max(0, (b.busy-a.busy-ours)/seconds), fromProc)
	}
	if a.throttle.known && b.throttle.known && b.throttle.periods > a.throttle.periods {
		r.Throttled = figure((b.throttle.throttled-a.throttle.throttled)/(b.throttle.periods-a.throttle.periods), "cpu.stat")
		r.Stopped = figure((b.throttle.seconds-a.throttle.seconds)/seconds, "cpu.stat")
	}
	if b.psi {
		r.Pressure = figure((b.pressure-a.pressure)/seconds, "memory.pressure")
	}
	if b.limit > 0 {
		r.Limit, r.Used = figure(b.limit, fromCgroup), figure(b.used/b.limit, fromCgroup)
		if b.refault {
			r.Refaults = figure(max(0, b.refaults-a.refaults)*pageSize/seconds, "memory.stat")
		}
	}
	r.Swapped = figure((b.swapped-a.swapped)*pageSize/seconds, "/proc/vmstat")
	return r
}

// pageSize is bytes of a page of memory, in which the kernel counts.
var pageSize = float64(os.Getpagesize())

// last is when it was looked at last.
func (w *watched) last() float64 {
	if len(w.counters) == 0 {
		return 0
	}
	return w.counters[len(w.counters)-1].t
}
