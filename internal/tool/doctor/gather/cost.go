package gather

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// making is what the makers of a loader's batches did over a stretch: its workers,
// or the trainer where there are none.
type making struct {
	w       *system.Watched
	from    float64 // CLOCK_MONOTONIC
	sum     workerLine
	early   workerLine // of workers that had ended when the stretch began
	proc    procSum
	tail    tailLine
	frames  map[string]evidence.Frame
	weight  float64 // seconds that the frames are shares of
	targets map[string]targetLine
	cost    cost
}

// cost is a Cost that is put together.
type cost struct{ evidence.Cost }

// costOf adds up what was counted over the stretch, and lists what attributes the
// dataset changed.
func costOf(f *Folder, w *system.Watched, pid int, last *loaderLine, base loaderLine, from float64) (evidence.Cost, []string) {
	m := &making{w: w, from: from, sum: workerLine{Calls: map[string]call{}}, early: workerLine{Calls: map[string]call{}}, frames: map[string]evidence.Frame{}, targets: map[string]targetLine{}}
	if last.Workers == 0 && last.Inline != nil {
		m.add(pid, last.Inline, base.Inline)
	}
	for child, p := range f.processes {
		end := p.last()
		if last.Workers == 0 || end.Worker == nil || end.PPID != pid || end.Worker.Loader != last.ID {
			continue
		}
		if end.T < from { // of an epoch before the stretch
			m.early.plus(*end.Worker, workerLine{})
			continue
		}
		before := p.since(from).Worker
		if before != nil && end.Worker.Batches-before.Batches < 2 {
			before = nil // one that did little since counts from its start
		}
		m.add(child, end.Worker, before)
		if n, ok := threadsOf(end.Worker.Threads); ok {
			m.cost.Threads = evidence.Measured(max(n, m.cost.Threads.Value), evidence.FromHook)
		}
		if at := w.Pids[child]; len(at) > 0 && w.Last()-at[len(at)-1].T < 1 {
			m.cost.Workers++
		}
	}
	m.sum.spread(m.early)
	m.sum.fit(last.Collate == "default" || last.Collate == "")
	m.cost.divide(m.sum, m.proc)
	m.cost.opened(m.targets)
	m.cost.slowest()
	m.cost.Tail = m.tail.tail()
	m.cost.Frames = mostSeen(m.frames, m.weight)
	return m.cost.Cost, m.sum.Stateful
}

// add takes what one of them counted in the end; before is what it had counted
// when the stretch began, nil: it began then.
func (m *making) add(pid int, end, before *workerLine) {
	if before == nil {
		before = &workerLine{}
	}
	m.sum.plus(*end, *before)
	m.proc.plus(m.w, pid, m.from)
	for _, s := range end.Stacks {
		f := m.frames[s.At]
		f.At, f.Share = s.At, f.Share+s.Share*end.Fetch
		m.frames[s.At] = f
	}
	m.weight += end.Fetch
	m.cost.hist(end.Hist, end.Samples)
	m.tail.N, m.tail.S = m.tail.N+end.Tail.N, m.tail.S+end.Tail.S
	m.tail.AllN, m.tail.AllS = m.tail.AllN+end.Tail.AllN, m.tail.AllS+end.Tail.AllS
	for name, t := range end.Targets { // a worker is as good as another
		if m.targets[name].Paths == nil {
			m.targets[name] = t
		}
	}
	for _, s := range end.Slowest {
		slow := evidence.Slow{Seconds: s.Seconds, Sample: s.Number}
		if s.Name != nil {
			slow.Name = *s.Name
		}
		m.cost.Slowest = append(m.cost.Slowest, slow)
	}
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
	if timed > 0 {
		s.covered += b.Samples - a.Samples
	}
	for name, c := range b.Calls {
		before, now := a.Calls[name], s.Calls[name]
		s.Calls[name] = call{now.N + c.N - before.N, now.S + c.S - before.S, now.CPU + c.CPU - before.CPU, cmp.Or(c.At, now.At)}
	}
}

// procSum adds up what /proc said of several processes.
type procSum struct {
	seconds, cpu, system, switches float64
}

func (s *procSum) plus(w *system.Watched, pid int, from float64) {
	a, b, ok := w.Between(pid, from)
	if !ok {
		return
	}
	s.seconds += b.T - a.T
	s.cpu += b.CPU() - a.CPU()
	s.system += b.System - a.System
	s.switches += b.Switches - a.Switches
}

// spread takes what calls cost in the workers that timed any for what they cost in
// all: workers that live for a short epoch, and not the first, often time none.
// Where none of these did, calls have the shares that they had in early ones.
func (s *workerLine) spread(early workerLine) {
	n, wall, cpu := 1.0, 1.0, 1.0
	switch {
	case s.covered > 0:
		n = s.Samples / s.covered
		wall, cpu = n, n
	case early.covered > 0 && early.Sample > 0 && early.SampleCPU > 0:
		early.spread(workerLine{})
		s.Calls, s.Timed = early.Calls, early.Timed
		n, wall, cpu = s.Samples/early.Samples, s.Sample/early.Sample, s.SampleCPU/early.SampleCPU
	}
	for name, c := range s.Calls {
		s.Calls[name] = call{c.N * n, c.S * wall, c.CPU * cpu, c.At}
	}
}

// fit makes calls take no more than what they are parts of. Where few samples had theirs
// timed, those may have been dear ones. A collate of torch's own has no calls in it that
// have a name.
func (s *workerLine) fit(plain bool) {
	wall, cpu := s.Sample, s.SampleCPU
	if !plain {
		wall, cpu = wall+s.Collate, cpu+s.CollateCPU
	}
	var all call
	for _, c := range s.Calls {
		all.S, all.CPU = all.S+c.S, all.CPU+c.CPU
	}
	byWall, byCPU := min(1, wall/max(all.S, 1e-12)), min(1, cpu/max(all.CPU, 1e-12))
	for name, c := range s.Calls {
		s.Calls[name] = call{c.N, c.S * byWall, c.CPU * byCPU, c.At}
	}
}

func (c *cost) divide(s workerLine, p procSum) {
	if s.Timed != nil {
		c.Samples = evidence.Measured(*s.Timed, evidence.FromHook)
	}
	c.Batch = evidence.Ratio(s.Fetch, s.Batches, evidence.FromHook)
	c.CPU = evidence.Ratio(s.SampleCPU+s.CollateCPU, s.Batches, evidence.FromHook)
	c.Sample = evidence.Ratio(s.Sample, s.Samples, evidence.FromHook)
	c.SampleCPU = evidence.Ratio(s.SampleCPU, s.Samples, evidence.FromHook)
	c.Collate = evidence.Ratio(s.Collate, s.Batches, evidence.FromHook)
	c.Idle = evidence.Ratio(s.Idle, s.Fetch+s.Idle, evidence.FromHook)
	if s.Batches > 0 {
		c.Process = evidence.Measured(s.CPU/s.Batches, evidence.FromHook)
		c.Faults = evidence.Ratio(s.Faults, s.Samples, evidence.FromHook)
	}
	if s.Delay != nil {
		c.Queue = evidence.Ratio(*s.Delay, *s.Delay+s.SampleCPU+s.CollateCPU, evidence.FromHook)
	}
	c.reading(s)
	c.Opens = evidence.Ratio(s.Calls["open"].N, s.Samples, evidence.FromHook)
	c.Reads = evidence.Ratio(s.IO.Syscalls, s.Samples, evidence.FromHook)
	c.Read = evidence.Ratio(s.IO.RChar, s.Samples, evidence.FromHook)
	c.System = evidence.Ratio(p.system, p.cpu, evidence.FromProc)
	c.Switches = evidence.Ratio(p.switches, p.seconds, evidence.FromProc)
	c.stages(s)
}

// reading is the share of reads among what the thread was held for, outside the
// sleeps that the hook has counted as such.
func (c *cost) reading(s workerLine) {
	held := 0.0
	for why, looks := range s.Waits {
		if why != "sleep" {
			held += looks
		}
	}
	if s.Looks >= 20 {
		c.Held = evidence.Measured((held+s.Waits["sleep"])/s.Looks, "/proc/PID/syscall")
	}
	slept := 0.0
	if s.Fetch > 0 {
		slept = max(0, s.Waits["sleep"]-s.Looks*s.Calls[evidence.Sleeping].S/s.Fetch)
	}
	switch {
	case held+slept >= max(3, 0.02*s.Looks):
		c.Reading = evidence.Measured(held/(held+slept), "/proc/PID/syscall")
	case s.Faults >= s.Samples/2 && s.Samples > 0: // a mapped file is read outside any call
		c.Reading = evidence.Measured(1, "major faults")
	}
}

// stages are the calls that have a name, and what is left of a sample: Python.
func (c *cost) stages(s workerLine) {
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
	c.Stages = append(c.Stages, stage("Python code", evidence.Python, rest, s.Samples))
	joined.S, joined.CPU = max(0, joined.S), max(0, joined.CPU)
	c.Stages = append(c.Stages, stage("collate", evidence.Collate, joined, s.Samples))
	slices.SortFunc(c.Stages, func(a, b evidence.Stage) int {
		return cmp.Or(cmp.Compare(b.Wall.Value, a.Wall.Value), strings.Compare(a.Name, b.Name))
	})
}

func stage(name, kind string, c call, samples float64) evidence.Stage {
	s := evidence.Stage{Name: name, Kind: kind, Wall: evidence.Ratio(c.S, samples, evidence.FromHook), CPU: evidence.Ratio(c.CPU, samples, evidence.FromHook), At: c.At}
	if c.N > 0 {
		s.Calls = evidence.Ratio(c.N, samples, evidence.FromHook)
	}
	return s
}

// kinds are the entry points that the hook names, by what they begin with; what is
// in no row is a transform, torchvision's or the script's own.
var kinds = [...]struct{ prefix, kind string }{
	{"sleep", evidence.Python},
	{"json.", evidence.Python},
	{"orjson.", evidence.Python},
	{"yaml.", evidence.Python},
	{"xml", evidence.Python},
	{"pandas.iloc", evidence.Python},
	{"pandas.frame", evidence.Python},
	{"lock", evidence.Lock},
	{"sqlite3.", evidence.Read},
	{"lmdb.", evidence.Read},
	{"urlopen", evidence.Read},
	{"gzip.", evidence.Read},
	{"h5py.File", evidence.Read},
	{"h5py.close", evidence.Read},
	{"h5py.Group", evidence.Read},
	{"zipfile.ZipFile", evidence.Read},
	{"zipfile", evidence.Decode},
	{"tarfile.", evidence.Read},
	{"datasets", evidence.Decode},
	{"pyarrow.", evidence.Decode},
	{"open", evidence.Read},
	{"read", evidence.Read},
	{"PIL.", evidence.Transform},
	{"PIL", evidence.Decode},
	{"cv2.", evidence.Transform},
	{"cv2", evidence.Decode},
	{"numpy.", evidence.Decode},
	{"torch.load", evidence.Decode},
	{"pickle.", evidence.Decode},
	{"h5py", evidence.Decode},
	{"pandas.", evidence.Decode},
	{"torchvision.transforms", evidence.Transform},
	{"torchvision.", evidence.Decode},
	{"torchaudio.load", evidence.Decode},
	{"soundfile.", evidence.Decode},
	{"librosa.", evidence.Decode},
	{"transformers", evidence.Tokenize},
	{"tiktoken", evidence.Tokenize},
	{"sentencepiece", evidence.Tokenize},
	{"tokenizers", evidence.Tokenize},
}

// kindOf is what a wrapped entry point does.
func kindOf(name string) string {
	if strings.HasSuffix(name, ".Compose") { // what is in it and has no name of its own: functions
		return evidence.Python
	}
	for _, k := range kinds {
		if name == k.prefix || strings.HasPrefix(name, k.prefix) && (strings.HasSuffix(k.prefix, ".") || strings.HasPrefix(name[len(k.prefix):], ".")) {
			return k.kind
		}
	}
	return evidence.Transform
}

func (c *cost) hist(q *quantiles, samples float64) {
	if q == nil || samples <= 0 {
		return
	}
	// Of several workers the slowest: quantiles cannot be added.
	c.Spread = cmp.Or(q.Of, "sample")
	c.P50 = evidence.Measured(max(c.P50.Value, q.P50), evidence.FromHook)
	c.P99 = evidence.Measured(max(c.P99.Value, q.P99), evidence.FromHook)
	c.Most = evidence.Measured(max(c.Most.Value, q.Max), evidence.FromHook)
}

// opened notes with the stages that open something whether that is the same again.
func (c *cost) opened(targets map[string]targetLine) {
	for i, s := range c.Stages {
		if t, ok := targets[s.Name]; ok {
			c.Stages[i].Again, c.Stages[i].Targets = evidence.Measured(t.Again, evidence.FromHook), evidence.Measured(t.Targets, evidence.FromHook)
		}
	}
}

// slowest keeps the slowest samples of all workers, slowest first.
func (c *cost) slowest() {
	slices.SortFunc(c.Slowest, func(a, b evidence.Slow) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Sample, b.Sample))
	})
	c.Slowest = slices.CompactFunc(c.Slowest, func(a, b evidence.Slow) bool { return a.Sample == b.Sample })
	c.Slowest = c.Slowest[:min(len(c.Slowest), 8)]
}

// threadsOf is how many threads torch computes with in a process, if it says so.
func threadsOf(t map[string]any) (float64, bool) {
	n, ok := t["torch"].(float64)
	return n, ok
}

func mostSeen(frames map[string]evidence.Frame, weight float64) (out []evidence.Frame) {
	for _, f := range frames {
		if f.Share = math.Round(1000*f.Share/max(weight, 1e-9)) / 1000; f.Share > 0 && f.Share <= 1 {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b evidence.Frame) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(a.At, b.At))
	})
	return out[:min(len(out), 5)]
}
