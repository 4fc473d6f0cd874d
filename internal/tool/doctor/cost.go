package doctor

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// making is what the makers of a loader's batches did over a stretch: its workers,
// or the trainer where there are none.
type making struct {
	w       *watched
	from    float64 // CLOCK_MONOTONIC
	sum     workerLine
	early   workerLine // of workers that had ended when the stretch began
	proc    procSum
	tail    tailLine
	frames  map[string]Frame
	weight  float64 // seconds that the frames are shares of
	targets map[string]targetLine
	cost    cost
}

// cost is a Cost that is put together.
type cost struct{ Cost }

// costOf adds up what was counted over the stretch, and lists what attributes the
// dataset changed.
func costOf(f *folder, w *watched, pid int, last *loaderLine, base loaderLine, from float64) (Cost, []string) {
	m := &making{w: w, from: from, sum: workerLine{Calls: map[string]call{}}, early: workerLine{Calls: map[string]call{}}, frames: map[string]Frame{}, targets: map[string]targetLine{}}
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
			m.cost.Threads = figure(max(n, m.cost.Threads.Value), fromHook)
		}
		if at := w.pids[child]; len(at) > 0 && w.last()-at[len(at)-1].t < 1 {
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
		slow := Slow{Seconds: s.Seconds, Sample: s.Number}
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
		c.Samples = figure(*s.Timed, fromHook)
	}
	c.Batch = ratio(s.Fetch, s.Batches, fromHook)
	c.CPU = ratio(s.SampleCPU+s.CollateCPU, s.Batches, fromHook)
	c.Sample = ratio(s.Sample, s.Samples, fromHook)
	c.SampleCPU = ratio(s.SampleCPU, s.Samples, fromHook)
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
func (c *cost) reading(s workerLine) {
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
	c.Stages = append(c.Stages, stage("Python code", Python, rest, s.Samples))
	joined.S, joined.CPU = max(0, joined.S), max(0, joined.CPU)
	c.Stages = append(c.Stages, stage("collate", Collate, joined, s.Samples))
	slices.SortFunc(c.Stages, func(a, b Stage) int {
		return cmp.Or(cmp.Compare(b.Wall.Value, a.Wall.Value), strings.Compare(a.Name, b.Name))
	})
}

func stage(name, kind string, c call, samples float64) Stage {
	s := Stage{Name: name, Kind: kind, Wall: ratio(c.S, samples, fromHook), CPU: ratio(c.CPU, samples, fromHook), At: c.At}
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
	{"orjson.", Python},
	{"yaml.", Python},
	{"xml", Python},
	{"pandas.iloc", Python},
	{"pandas.frame", Python},
	{"lock", Lock},
	{"sqlite3.", Read},
	{"lmdb.", Read},
	{"urlopen", Read},
	{"gzip.", Read},
	{"h5py.File", Read},
	{"h5py.close", Read},
	{"h5py.Group", Read},
	{"zipfile.ZipFile", Read},
	{"zipfile", Decode},
	{"tarfile.", Read},
	{"datasets", Decode},
	{"pyarrow.", Decode},
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

// kindOf is what a wrapped entry point does.
func kindOf(name string) string {
	if strings.HasSuffix(name, ".Compose") { // what is in it and has no name of its own: functions
		return Python
	}
	for _, k := range kinds {
		if name == k.prefix || strings.HasPrefix(name, k.prefix) && (strings.HasSuffix(k.prefix, ".") || strings.HasPrefix(name[len(k.prefix):], ".")) {
			return k.kind
		}
	}
	return Transform
}

func (c *cost) hist(q *quantiles, samples float64) {
	if q == nil || samples <= 0 {
		return
	}
	// Of several workers the slowest: quantiles can not be added.
	c.Spread = cmp.Or(q.Of, "sample")
	c.P50 = figure(max(c.P50.Value, q.P50), fromHook)
	c.P99 = figure(max(c.P99.Value, q.P99), fromHook)
	c.Most = figure(max(c.Most.Value, q.Max), fromHook)
}

// opened notes with the stages that open something whether that is the same again.
func (c *cost) opened(targets map[string]targetLine) {
	for i, s := range c.Stages {
		if t, ok := targets[s.Name]; ok {
			c.Stages[i].Again, c.Stages[i].Targets = figure(t.Again, fromHook), figure(t.Targets, fromHook)
		}
	}
}

// slowest keeps the slowest samples of all workers, slowest first.
func (c *cost) slowest() {
	slices.SortFunc(c.Slowest, func(a, b Slow) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Sample, b.Sample))
	})
	c.Slowest = slices.CompactFunc(c.Slowest, func(a, b Slow) bool { return a.Sample == b.Sample })
	c.Slowest = c.Slowest[:min(len(c.Slowest), 8)]
}

// threadsOf is how many threads torch computes with in a process, if it says so.
func threadsOf(t map[string]any) (float64, bool) {
	n, ok := t["torch"].(float64)
	return n, ok
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
