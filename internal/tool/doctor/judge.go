package doctor

import (
	"cmp"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/tool/model"
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
	Assembly     = "batch assembly"
	Shallow      = "prefetch too small"
	Pressure     = "memory pressure"
	Imbalance    = "imbalance of ranks on this machine"
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
	Rank      int      `json:"rank"`
	Lines     []Line   `json:"evidence"`
	Changes   []Change `json:"changes,omitempty"`

	// Speedup is how many times faster the loop goes after the change, or without
	// what the verdict names; 0: not predicted. Now and Then are seconds a batch.
	Speedup float64 `json:"speedup,omitempty"`
	Now     float64 `json:"seconds_per_batch,omitempty"`
	Then    float64 `json:"seconds_per_batch_then,omitempty"`

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
	Schema   int       `json:"schema"`
	Verdict  Verdict   `json:"verdict"`
	Findings []Finding `json:"findings"`
	Evidence Evidence  `json:"evidence"`
}

// view is the Evidence as rules look at it: of one loop, with what follows from
// its figures by arithmetic.
type view struct {
	ev  Evidence
	l   Loop
	job model.Job // the loop as it is
	now float64   // seconds a batch, the starts of epochs spread over them; measured

	wait  float64 // share of the time in __next__, in the middle of epochs
	start float64 // share of the time that epochs' starts take beyond that
	batch float64 // samples a batch
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

// threshold is the share of the time below which waiting is not worth a change:
// without it a loop would be at most 1.11 times faster, which is as much as runs
// of the same loop differ on a machine that does other things too.
const threshold = 0.10

// boundless is a speed-up that is no prediction any more: a loop without a step,
// rid of all that it costs.
const boundless = 1e4

// Judge says what an Evidence means. It is pure: the same Evidence, the same
// Report.
func Judge(ev Evidence) Report {
	r := Report{Schema: Schema, Evidence: ev}
	v := newView(ev, ev.worst())
	r.Verdict = v.verdict()
	r.Findings = findings(ev)
	if r.Findings == nil { // an empty list is [] to machines, not null
		r.Findings = []Finding{}
	}
	if r.Verdict.Lines == nil {
		r.Verdict.Lines = []Line{}
	}
	return r
}

// worst is the loop that the verdict is about: the one that lost the most time.
// Loops come in that order.
func (ev Evidence) worst() Loop {
	if len(ev.Loops) == 0 {
		return Loop{}
	}
	return ev.Loops[0]
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
		out := Verdict{Name: r.verdict, DataBound: r.verdict != NotDataBound, Loader: v.l.Settings.Where, Rank: v.l.Rank, Lines: r.why(v), Sentence: r.says(v)}
		if r.of != nil {
			out.Of = r.of(v)
		}
		if r.change != nil {
			out.Changes = r.change(v)
		}
		if r.after != nil && v.now > 0 {
			then := r.after(v)
			if gain := model.Speedup(v.now, then); gain < boundless && then.Mean() < most {
				out.Now, out.Then, out.Speedup = v.now, then.Mean(), gain
			}
		}
		return out
	}
	slices.Sort(missing)
	return v.insufficient(slices.Compact(missing))
}

func newView(ev Evidence, l Loop) *view {
	v := &view{ev: ev, l: l, batch: float64(max(1, l.Settings.BatchSize))}
	cycle := l.Wait.Value + l.Step.Value
	if l.Wait.Known() && l.Step.Known() && cycle > 0 {
		v.wait = l.Wait.Value / cycle
		v.now = cycle
	}
	v.split()
	v.job = v.asJob(cycle)
	if extra := l.First.Value - l.Wait.Value; l.First.Known() && l.PerEpoch.Known() && extra > 0 && cycle > 0 {
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

// split divides a sample's time into what it was spent on. Time that a worker
// stood ready and had no core is nobody's: with more cores it goes away.
func (v *view) split() {
	c := v.l.Cost
	groups := map[string]*part{}
	add := func(kind, name string, cpu, blocked float64) {
		g := groups[kind]
		if g == nil {
			g = &part{kind: kind, name: name}
			groups[kind] = g
		}
		g.cpu, g.blocked = g.cpu+cpu, g.blocked+blocked
	}
	for _, s := range c.Stages { // costliest first, so that a group has the name of its costliest
		cpu := min(s.Wall.Value, s.CPU.Value)
		if !s.CPU.Known() {
			cpu = 0
		}
		blocked := max(0, s.Wall.Value-cpu/(1-min(c.Queue.Value, 0.95)))
		switch {
		case s.Kind == Decode && blocked > 0: // decoders read, too
			add(Read, s.Name, 0, blocked)
			add(Decode, s.Name, cpu, 0)
		case s.Kind == Python && s.Name != sleeping && c.Reading.Value > 0.5: // f.read(), a mapped file
			add(Read, "read", 0, blocked)
			add(Python, s.Name, cpu, 0)
		default:
			add(s.Kind, s.Name, cpu, blocked)
		}
	}
	v.undisturbed(groups)
	for _, g := range groups {
		v.parts = append(v.parts, *g)
	}
	slices.SortFunc(v.parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(b.seconds(), a.seconds()), cmp.Compare(a.kind, b.kind))
	})
}

// undisturbed takes away, where other processes use the cores, what looks like
// waiting and was not seen as such by the kernel: a core that comes late because
// others had its caches, or a host that has given it away.
func (v *view) undisturbed(groups map[string]*part) {
	c := v.l.Cost
	if v.alone() || !c.Held.Known() || c.Faults.Value > 0.1 {
		return
	}
	blocked := 0.0
	for _, g := range groups {
		blocked += g.blocked
	}
	most := c.Held.Value * c.Batch.Value / v.batch
	if blocked <= most || blocked == 0 {
		return
	}
	for _, g := range groups {
		g.blocked *= most / blocked
	}
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

// waits says whether the loop loses more than the threshold in the middle of
// epochs.
func (v *view) waits() bool { return v.seenEnough() && v.wait >= threshold }

// bound says whether it loses that at all.
func (v *view) bound() bool { return v.waits() || v.start >= threshold }

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
func (v *view) without(kind string) model.Job {
	p, j := v.part(kind), v.job
	j.CPU = max(0, j.CPU-p.cpu*v.batch)
	j.Blocked = max(0, j.Blocked-p.blocked*v.batch)
	return j
}

// with is the loop with so many workers.
func (v *view) with(workers int) model.Job {
	j := v.job
	j.Workers = workers
	return j
}
