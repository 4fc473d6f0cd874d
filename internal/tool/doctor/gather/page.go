package gather

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// LoopOfPage is the loop over a loader of stoker between two looks at its
// statistics.
func LoopOfPage(a, b stats.Snapshot) evidence.Loop {
	l := evidence.Loop{World: 1, Epochs: int(b.Passes), Settings: evidence.Settings{ID: int(b.Loader), Class: evidence.OwnClass, Workers: max(1, b.Lanes), Persistent: true}}
	n := float64(b.Batches - a.Batches)
	l.Batches = evidence.Measured(n, evidence.FromPage)
	if n <= 0 {
		return l
	}
	wait, step := b.Wait.BusySeconds-a.Wait.BusySeconds, b.Wait.OutputSeconds-a.Wait.OutputSeconds
	if firsts := float64(b.Passes - a.Passes); firsts > 0 && b.FirstMean > 0 {
		wait = max(0, wait-firsts*b.FirstMean)
	}
	l.Wait, l.Step, l.Seconds = evidence.Measured(wait/n, evidence.FromPage), evidence.Measured(step/n, evidence.FromPage), evidence.Measured(wait+step, evidence.FromPage)
	l.WaitP99 = evidence.Measured(b.Wait.P99, evidence.FromPage)
	l.First = evidence.Measured(b.FirstMean, evidence.FromPage)
	l.Ready = evidence.Ratio(b.Wait.QueueMean*float64(b.Wait.Queues)-a.Wait.QueueMean*float64(a.Wait.Queues), float64(b.Wait.Queues-a.Wait.Queues), evidence.FromPage)
	samples := float64(b.Samples - a.Samples)
	l.Settings.BatchSize = int(math.Round(samples / n))
	l.Cost = costOfPage(a, b, samples, n)
	l.Device = deviceOfPage(a, b, n)
	return l
}

// deviceOfPage is what a batch takes on a device; nothing if its client uses none.
func deviceOfPage(a, b stats.Snapshot, batches float64) (d evidence.Device) {
	figures := [...]*evidence.Figure{&d.Copies, &d.Transforms, &d.Decoding}
	if len(b.Device) != len(figures) {
		return d
	}
	waited := 0.0
	for i, s := range b.Device {
		var before stats.StageSnapshot
		if i < len(a.Device) {
			before = a.Device[i]
		}
		*figures[i] = evidence.Measured((s.BusySeconds-before.BusySeconds)/batches, evidence.FromPage)
		waited += s.WaitedSeconds - before.WaitedSeconds
		if i == 0 {
			bytes := float64(s.Bytes - before.Bytes)
			d.Bytes = evidence.Measured(bytes/batches, evidence.FromPage)
			d.Rate = evidence.Ratio(bytes, s.BusySeconds-before.BusySeconds, evidence.FromPage)
		}
	}
	d.Waited = evidence.Measured(waited/batches, evidence.FromPage)
	return d
}

// copied is seconds of a sample in which nothing can be decoded: what lanes do then is to
// write numbers into their places.
const copied = 1e-6

// costOfPage is what a batch costs in a lane: working on samples, and standing
// without the bytes of any. Where readers do all the work, it is theirs.
func costOfPage(a, b stats.Snapshot, samples, batches float64) (c evidence.Cost) {
	c.Workers, c.Samples = b.Lanes, evidence.Measured(samples, evidence.FromPage)
	if samples <= 0 {
		return c
	}
	work := b.Decode.BusySeconds - a.Decode.BusySeconds
	cpu := b.Decode.CPUSeconds - a.Decode.CPUSeconds
	read := b.Decode.InputSeconds - a.Decode.InputSeconds
	python := b.Python.BusySeconds - a.Python.BusySeconds
	pythonCPU := min(b.Python.CPUSeconds-a.Python.CPUSeconds, python)
	joined := b.Batch.BusySeconds - a.Batch.BusySeconds + b.Deliver.BusySeconds - a.Deliver.BusySeconds
	if work+read+python == 0 {
		read = b.Read.BusySeconds - a.Read.BusySeconds
	}
	share := 1.0
	if cpu > 0 && cpu < work {
		share = cpu / work
		c.Queue = evidence.Measured(1-share, evidence.FromPage) // what computes and has no core, waits for one
	}
	add := func(name, kind string, wall, cpu float64) {
		if wall > 0 {
			c.Stages = append(c.Stages, stage(name, kind, call{S: wall, CPU: cpu}, samples))
		}
	}
	rest := work
	for i, t := range b.Transforms {
		busy := t.BusySeconds
		if i < len(a.Transforms) {
			busy -= a.Transforms[i].BusySeconds
		}
		rest -= busy
		add(t.Name, evidence.Transform, busy, busy*share)
	}
	add("Python code", evidence.Python, python, pythonCPU)
	name, kind := "decode", evidence.Decode
	if rest < copied*samples {
		name, kind = "copy", evidence.Collate
	}
	add(name, kind, max(0, rest), max(0, rest)*share)
	add("read", evidence.Read, read, 0)
	add("collate", evidence.Collate, joined, joined)
	for i := range c.Stages {
		c.Stages[i].Wall.Source, c.Stages[i].CPU.Source = evidence.FromPage, evidence.FromPage
	}
	slices.SortStableFunc(c.Stages, func(a, b evidence.Stage) int { return cmp.Compare(b.Wall.Value, a.Wall.Value) })
	c.Batch, c.CPU = evidence.Measured((work+read+python+joined)/batches, evidence.FromPage), evidence.Measured((work*share+pythonCPU+joined)/batches, evidence.FromPage)
	c.Process = c.CPU
	c.Sample, c.SampleCPU = evidence.Measured((work+read+python)/samples, evidence.FromPage), evidence.Measured((work*share+pythonCPU)/samples, evidence.FromPage)
	c.Collate = evidence.Measured(joined/batches, evidence.FromPage)
	tail := b.Decode
	if python > work {
		tail = b.Python
	}
	c.Spread, c.P50, c.P99, c.Most = "sample", evidence.Measured(tail.P50, evidence.FromPage), evidence.Measured(tail.P99, evidence.FromPage), evidence.Measured(tail.P99, evidence.FromPage)
	c.Read = evidence.Ratio(float64(b.Read.Bytes-a.Read.Bytes), samples, evidence.FromPage)
	return c
}

// Pages are the statistics of the loaders of stoker in some processes, as they
// were first seen and as they are now.
type Pages struct {
	open    map[int]*stats.Reader // of engines
	clients map[int]*stats.Reader
	parents map[int]int  // of engines: their clients
	none    map[int]bool // processes that were asked
	First   map[pageKey]stats.Snapshot
	Latest  map[pageKey]stats.Snapshot
}

type pageKey struct {
	pid    int
	loader int64
}

func NewPages() *Pages {
	return &Pages{open: map[int]*stats.Reader{}, clients: map[int]*stats.Reader{}, parents: map[int]int{}, none: map[int]bool{}, First: map[pageKey]stats.Snapshot{}, Latest: map[pageKey]stats.Snapshot{}}
}

// Look reads the pages among some processes: those of engines, and of their clients what
// only these know, the work on a device. A process that has none is asked again, since it
// may yet start one, as long as again is true.
func (p *Pages) Look(pids []int, again bool) {
	for _, pid := range pids {
		if p.open[pid] != nil || p.clients[pid] != nil || p.none[pid] && !again {
			continue
		}
		r, err := stats.Open(pid)
		if err != nil {
			p.none[pid] = true
			continue
		}
		if r.Header().Role == stats.RoleClient {
			p.clients[pid] = r
			continue
		}
		p.open[pid] = r
		if s, ok := system.Sight("/", pid, 0); ok {
			p.parents[pid] = s.Parent
		}
	}
	for pid, r := range p.open {
		devices := p.devices(p.parents[pid])
		for _, s := range r.Loaders() {
			s.Device = devices[s.Loader]
			key := pageKey{pid, s.Loader}
			if first, seen := p.First[key]; !seen || first.Batches <= int64(first.Lanes) && s.Batches != first.Batches {
				p.First[key] = s // until every lane has given something: before that the queue is filled
			}
			p.Latest[key] = s
		}
	}
}

// devices are the stages of work on a device of a client's loaders, by their number in the
// engine.
func (p *Pages) devices(client int) map[int64][]stats.StageSnapshot {
	r := p.clients[client]
	if r == nil {
		return nil
	}
	out := map[int64][]stats.StageSnapshot{}
	for _, s := range r.Loaders() {
		if len(s.Device) > 0 {
			out[s.Loader] = s.Device
		}
	}
	return out
}

// Loops are the loops over them; where has the line that made a loader, by the PID of its
// engine and its number there.
func (p *Pages) Loops(where func(engine int, loader int64) string) (out []evidence.Loop) {
	for key, b := range p.Latest {
		if a := p.First[key]; b.Batches > a.Batches {
			l := LoopOfPage(a, b)
			l.PID, l.Settings.Where = key.pid, where(key.pid, key.loader)
			if r := p.open[key.pid]; r != nil {
				l.Recent = stepsOf(r.Spans(), key.loader)
			}
			out = append(out, l)
		}
	}
	if len(out) > 1 {
		p.number(out)
	}
	return out
}

// number names loops whose line is not known, so that each can be told from the others.
func (p *Pages) number(loops []evidence.Loop) {
	for i := range loops {
		s := &loops[i].Settings
		if s.Where != "" {
			continue
		}
		s.Where = fmt.Sprintf("loader %d", s.ID)
		if len(p.open) > 1 {
			s.Where += fmt.Sprintf(" of engine %d", loops[i].PID)
		}
	}
}

// stepsOf is the last steps of a loader, as a timeline draws them: when a batch was asked
// for, and when it was ready to be delivered, which ends the waiting that the page counts
// (to send it is the step's, there as here). A bundle of batches is not a step.
func stepsOf(spans []stats.Span, loader int64) (out [][3]float64) {
	spans = slices.DeleteFunc(slices.Clone(spans), func(s stats.Span) bool {
		return s.Loader != loader || s.Steps != 1 || s.Asked <= 0 || s.Filled <= 0
	})
	slices.SortFunc(spans, func(a, b stats.Span) int { return cmp.Compare(a.Asked, b.Asked) })
	spans = spans[max(0, len(spans)-evidence.Recent):]
	for _, s := range spans {
		since := func(at int64) float64 { return evidence.Micros(time.Duration(at - spans[0].Asked).Seconds()) }
		out = append(out, [3]float64{since(s.Asked), since(max(s.Asked, s.Filled)), -1})
	}
	return out
}

func (p *Pages) Close() {
	for _, pages := range [...]map[int]*stats.Reader{p.open, p.clients} {
		for _, r := range pages {
			_ = r.Close()
		}
	}
}
