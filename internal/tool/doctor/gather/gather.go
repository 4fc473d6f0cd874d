// Package gather makes loops of what was seen of them: of the lines that the hook wrote
// in Python processes (lines.go reads them, and nobody else), of /proc, of the script's
// own source, and of the statistics pages of stoker's loaders.
package gather

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// Loops makes loops of what the hook wrote and what /proc said, the one that
// lost the most time first.
func Loops(f *Folder, w *system.Watched) (loops []evidence.Loop) {
	for pid, p := range f.processes {
		for i := range p.last().Loaders {
			loops = append(loops, loopOf(f, w, pid, p.last().Loaders[i].ID))
		}
	}
	return Ordered(loops)
}

// Ordered puts the loop that lost the most time first.
func Ordered(loops []evidence.Loop) []evidence.Loop {
	slices.SortFunc(loops, func(a, b evidence.Loop) int {
		return cmp.Or(cmp.Compare(spent(b), spent(a)), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Settings.ID, b.Settings.ID))
	})
	return loops
}

// spent is the seconds that the loop waited in __next__ and, after them, in steps:
// loops that never waited are told apart by their length.
func spent(l evidence.Loop) float64 {
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

// loop is a Loop that is put together.
type loop struct{ evidence.Loop }

func loopOf(f *Folder, w *system.Watched, pid, id int) evidence.Loop {
	p := f.processes[pid]
	end := p.last()
	last := loaderOf(end, id)
	l := loop{evidence.Loop{PID: pid, World: 1, Settings: settingsOf(last, end)}}
	if end.Rank != nil {
		l.Rank = *end.Rank
	}
	if end.World != nil {
		l.World = max(1, *end.World)
	}
	src := newSources(end.Sources)
	l.Settings.Lines = src.settingsOf(last.Lines)
	l.Settings.Name = src.assigned(last.Lines)
	base, from := stretch(p, id)
	l.epochs(last)
	l.shares(p, last)
	l.between(last.Steps, src)
	l.recent(last)
	l.steps(last, base, from)
	l.Ready, l.BatchBytes, l.SampleBytes, l.Padding = maybe(last.Ready), maybe(last.Bytes), maybe(last.SampleBytes), maybe(last.Padding)
	if t := last.Pageable; t != nil {
		l.Pageable = evidence.Ratio(t.Seconds, t.Batches, evidence.FromHook)
	}
	if last.WaitHist != nil && last.Batches > 0 {
		l.WaitP99 = evidence.Measured(last.WaitHist.P99, evidence.FromHook)
	}
	if a, b, ok := w.Between(pid, from); ok {
		l.Trainer = evidence.Measured((b.CPU()-a.CPU())/(b.T-a.T), evidence.FromProc)
		l.TrainerQueue = evidence.Ratio(b.Queue-a.Queue, b.Queue-a.Queue+b.Ran-a.Ran, evidence.FromProc)
	}
	var state []string
	l.Cost, state = costOf(f, w, pid, last, base, from)
	for _, name := range state {
		if !slices.Contains(l.Settings.Stateful, name) {
			l.Settings.Stateful = append(l.Settings.Stateful, name)
		}
	}
	src.annotate(l.Cost.Frames)
	locate(&l.Cost, src)
	l.Settings.Files, l.Settings.Stores = filesOpened(f, pid, last)
	return l.Loop
}

// locate gives transforms the line where the script makes them, instead of the one that
// calls them all, and other calls the file and line without their function.
func locate(c *evidence.Cost, src *sources) {
	for i, s := range c.Stages {
		if s.Kind != evidence.Transform || strings.HasPrefix(s.Name, "PIL.") || strings.HasPrefix(s.Name, "cv2.") {
			continue
		}
		if at := src.made(evidence.Short(s.Name)); at != "" {
			c.Stages[i].At = at
		}
	}
	for i, s := range c.Stages {
		c.Stages[i].Text = show.OneLine(src.text(s.At))
	}
}

// filesOpened are some files that samples of a loader were read from, and what kinds of
// storage its dataset holds, here and in workers.
func filesOpened(f *Folder, pid int, l *loaderLine) (paths, stores []string) {
	stores = slices.Clone(l.Stores)
	add := func(w *workerLine) {
		for _, path := range w.Files {
			if len(paths) < system.FewFiles && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
		for _, name := range w.Stores {
			if !slices.Contains(stores, name) {
				stores = append(stores, name)
			}
		}
	}
	if l.Inline != nil {
		add(l.Inline)
	}
	for _, child := range slices.Sorted(maps.Keys(f.processes)) {
		if end := f.processes[child].last(); end.Worker != nil && end.PPID == pid && end.Worker.Loader == l.ID {
			add(end.Worker)
		}
	}
	return paths, stores
}

// shares are how much of the script's time went into this loop, and how much there was.
// It begins with the first batch of any loop: what comes before comes once.
func (l *loop) shares(p *process, last *loaderLine) {
	if last.Batches < 1 {
		return
	}
	end := p.last()
	from := math.Inf(1)
	for i := range end.Loaders {
		if end.Loaders[i].Batches >= 1 {
			from = min(from, p.firstWith(end.Loaders[i].ID))
		}
	}
	spent := last.Wait + last.Step
	for _, e := range last.Epochs {
		if e.First != nil {
			spent += *e.First
		}
	}
	spent -= last.WaitFirst
	if first := p.firstWith(last.ID); first == from && len(last.Epochs) > 0 && last.Epochs[0].First != nil {
		spent -= *last.Epochs[0].First
	}
	over := 0.0 // when the last of its loops was
	for _, x := range end.Loaders {
		if n := len(x.Epochs); n > 0 && x.Epochs[n-1].End != nil {
			over = max(over, *x.Epochs[n-1].End)
		} else if k := len(x.Recent); n > 0 && k > 0 && len(x.Recent[k-1]) > 1 && x.Recent[k-1][1] != nil { // it may have been left since
			over = max(over, *x.Recent[k-1][1])
		}
	}
	if elapsed := min(over, end.T) - from; elapsed > 0 && spent >= 0 {
		l.Elapsed, l.Spent = evidence.Measured(elapsed, evidence.FromHook), evidence.Measured(min(spent, elapsed), evidence.FromHook)
	}
}

// between is what is known of the loop's steps.
func (l *loop) between(s *stepsLine, src *sources) {
	if s == nil {
		return
	}
	l.Steps.P50, l.Steps.Most = evidence.Measured(s.P50, evidence.FromHook), evidence.Measured(s.Max, evidence.FromHook)
	l.Steps.Tail = s.Tail.tail()
	for to, from := range map[*[]evidence.Frame][]stackLine{&l.Steps.Usual: s.Usual, &l.Steps.Long: s.Long, &l.Steps.Inside: s.Inside} {
		for _, f := range from {
			*to = append(*to, evidence.Frame{At: f.At, Share: math.Round(1000*f.Share) / 1000})
		}
		src.annotate(*to)
	}
	var apart []int
	for i := 1; i < len(s.Numbers); i++ {
		apart = append(apart, s.Numbers[i]-s.Numbers[i-1])
	}
	if slices.Sort(apart); len(apart) > 0 && apart[0] == apart[len(apart)-1] && (len(apart) > 1 || apart[0] > 4) {
		l.Steps.Every = evidence.Measured(float64(apart[0]), evidence.FromHook)
	}
}

func maybe(v *float64) evidence.Figure {
	if v == nil {
		return evidence.Figure{}
	}
	return evidence.Measured(*v, evidence.FromHook)
}

func settingsOf(l *loaderLine, end line) evidence.Settings {
	s := evidence.Settings{
		ID: l.ID, Class: l.Class, Where: l.Where, Dataset: l.Dataset, Kind: l.Kind, Length: l.Length, Workers: l.Workers,
		Pin: l.Pin, Persistent: l.Persistent, DropLast: l.DropLast, Sampler: l.Sampler, Shuffled: l.Shuffled, Collate: l.Collate,
		Context: l.Context, Init: l.Init, Shape: l.Shape, Transforms: l.Transforms, Pickled: maybe(l.DatasetBytes), Stateful: l.Stateful, Handles: l.Handles,
		Stores: l.Stores, SetEpoch: l.SetEpoch, OrderRepeated: l.OrderRepeated, Pinned: l.Pinned,
		Made: l.Made, NonBlocking: l.NonBlocking["true"], Blocking: l.NonBlocking["false"], CUDAFirst: end.CUDABefore || len(l.OnDevice) > 0, OnDevice: l.OnDevice,
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

// warm is the batches of a second epoch from which on the first is left out.
const warm = 20

// stretch is where what is measured begins: the first line after every worker
// has delivered once, since before that the queue is filled, not used. Where too
// little came after it, it is the beginning of all (an empty loader). Where an
// epoch is over and enough of others was seen, it begins after that epoch: all that
// the first one read for the first time is not read like this again.
func stretch(p *process, id int) (base loaderLine, from float64) {
	last := loaderOf(p.last(), id)
	base, from = loaderLine{}, p.first().T
	found := false
	for _, l := range p.lines {
		at := loaderOf(l, id)
		if at == nil || at.Batches <= float64(at.Workers) {
			continue
		}
		if last.Batches-at.Batches < fewest {
			break
		}
		if !found {
			base, from, found = *at, l.T, true
		}
		if at.Passes < 2 {
			continue
		}
		if last.Batches-at.Batches >= warm && p.last().T-l.T >= 2 {
			return *at, l.T
		}
		break
	}
	return base, from
}

// steps are the means over the stretch. The wait for the first batch of an epoch
// is not a wait in the middle of one, and is kept apart.
func (l *loop) steps(last *loaderLine, base loaderLine, from float64) {
	n := last.Batches - base.Batches
	firsts := float64(len(last.Epochs))
	if base.Batches > 0 {
		firsts = float64(max(0, last.Passes-base.Passes)) // epochs themselves are forgotten after a while
	}
	wait := last.Wait - last.WaitFirst - (base.Wait - base.WaitFirst)
	step, done := last.Step-base.Step, n
	if hung, hangs := l.hung(last, from); hangs > 0 && float64(hangs) < n/2 && hung < step {
		l.Hung, l.Hangs = evidence.Measured(hung, evidence.FromHook), hangs
		step, done = step-hung, n-float64(hangs)
	}
	if n >= 1 && n <= firsts && firsts >= 2 && l.PerEpoch.Value == 1 && step >= 0 { // there is no middle of an epoch
		l.Batches, l.Wait, l.Step = evidence.Measured(n, evidence.FromHook), evidence.Measured(0, evidence.FromHook), evidence.Measured(step/done, evidence.FromHook)
		l.Seconds = evidence.Measured(step+n*l.First.Value, evidence.FromHook)
		return
	}
	if n-firsts < 1 || wait < 0 || step < 0 {
		l.Batches = evidence.Measured(max(0, n), evidence.FromHook)
		return
	}
	l.Batches = evidence.Measured(n, evidence.FromHook)
	l.Wait = evidence.Measured(wait/(n-firsts), evidence.FromHook)
	l.Step = evidence.Measured(step/done, evidence.FromHook)
	l.Seconds = evidence.Measured(wait+step, evidence.FromHook)
}

// A step that took so many times as long as the usual one, and so many seconds, hung: it
// waited for a disk, another rank or somebody's debugger, and is not what a step takes.
const (
	hangTimes   = 50.0
	hangSeconds = 10.0
)

// hung is the seconds of the steps since from that hung, and how many these were, against
// the middle one of the last.
func (l *loop) hung(last *loaderLine, from float64) (seconds float64, n int) {
	var usual []float64
	for i := 1; i < len(l.Recent); i++ {
		usual = append(usual, l.Recent[i][0]-l.Recent[i-1][1])
	}
	if len(usual) < 4 {
		return 0, 0
	}
	slices.Sort(usual)
	least := max(hangSeconds, hangTimes*usual[len(usual)/2])
	for _, s := range last.LongSteps {
		if s[0] >= least && s[0] < evidence.Most && s[1] > from {
			seconds, n = seconds+s[0], n+1
		}
	}
	return seconds, n
}

func (l *loop) epochs(last *loaderLine) {
	l.Epochs = max(last.Passes, len(last.Epochs))
	var sum, n float64
	for i, e := range last.Epochs {
		if e.First == nil || (i == 0 && len(last.Epochs) > 1 && last.Epochs[1].First != nil) {
			continue // the very first start loads libraries and warms caches: later ones are those that come again
		}
		sum, n = sum+*e.First, n+1
	}
	l.First = evidence.Ratio(sum, n, evidence.FromHook)
	for i, e := range last.Epochs {
		if (e.End != nil || i < len(last.Epochs)-1) && e.Batches > 0 { // one that another followed was left early
			l.PerEpoch = evidence.Measured(e.Batches, evidence.FromHook)
		}
	}
	if n := last.PerEpoch; !l.PerEpoch.Known() && n != nil && *n > 0 {
		l.PerEpoch = evidence.Measured(float64(*n), "length of the loader")
	}
}

// recent keeps the last steps, and finds what __next__ costs when a batch is ready.
func (l *loop) recent(last *loaderLine) {
	var quick []float64
	zero := math.NaN()
	for _, r := range last.Recent {
		if len(r) < 2 || r[0] == nil || r[1] == nil {
			continue
		}
		if math.IsNaN(zero) {
			zero = *r[0]
		}
		if !(*r[0] >= zero && *r[1] >= *r[0] && *r[1]-zero < evidence.Most) {
			continue
		}
		ready := -1.0
		if len(r) > 2 && r[2] != nil {
			ready = *r[2]
		}
		l.Recent = append(l.Recent, [3]float64{evidence.Micros(*r[0] - zero), evidence.Micros(*r[1] - zero), ready})
		if ready >= 1 {
			quick = append(quick, *r[1]-*r[0])
		}
	}
	if len(quick) >= 3 {
		slices.Sort(quick)
		// Not the middle: batches come in order, and one that is ready may not be the
		// one that is asked for.
		l.Take = evidence.Measured(quick[len(quick)/10], evidence.FromHook)
	}
}

// RunOf is how the processes fared since a moment, and how many have the hook.
func RunOf(f *Folder, w *system.Watched, from float64) (r evidence.Run) {
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
	a, b, ok := w.Span(from)
	if !ok {
		return r
	}
	seconds := b.T - a.T
	r.Seconds = evidence.Measured(seconds, evidence.FromProc)
	ours := 0.0
	for pid := range w.Pids {
		if a, b, ok := w.Between(pid, from); ok {
			ours += b.CPU() - a.CPU()
			r.Faults = evidence.Measured(r.Faults.Value+(b.Faults-a.Faults)/seconds, evidence.FromProc)
		}
	}
	r.Processes = len(w.Pids)
	r.CPU = evidence.Measured(ours/seconds, evidence.FromProc)
	if b.Busy > 0 {
		r.Others = evidence.Measured(max(0, (b.Busy-a.Busy-ours)/seconds), evidence.FromProc)
	}
	if a.Throttle.Known && b.Throttle.Known && b.Throttle.Periods > a.Throttle.Periods {
		r.Throttled = evidence.Measured((b.Throttle.Throttled-a.Throttle.Throttled)/(b.Throttle.Periods-a.Throttle.Periods), "cpu.stat")
		r.Stopped = evidence.Measured((b.Throttle.Seconds-a.Throttle.Seconds)/seconds, "cpu.stat")
	}
	if b.Psi {
		r.Pressure = evidence.Measured((b.Pressure-a.Pressure)/seconds, "memory.pressure")
	}
	if b.Limit > 0 {
		r.Limit, r.Used = evidence.Measured(b.Limit, evidence.FromCgroup), evidence.Measured(b.Used/b.Limit, evidence.FromCgroup)
		if b.Refault {
			r.Refaults = evidence.Measured(max(0, b.Refaults-a.Refaults)*system.PageSize/seconds, "memory.stat")
		}
	}
	r.Swapped = evidence.Measured((b.Swapped-a.Swapped)*system.PageSize/seconds, "/proc/vmstat")
	return r
}
