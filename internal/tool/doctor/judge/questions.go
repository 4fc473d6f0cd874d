package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// What rules ask of a view.

// alone says whether other processes leave the machine's cores alone: if they do
// not, waiting for a core says nothing about this loop's own workers.
func (v *view) alone() bool { return v.taken() < 0.25*max(1, v.ev.Machine.Cores.Value) }

// taken is the cores that other processes take of those that this job may use: as
// long as there are cores that it may not use, they are taken for there.
func (v *view) taken() float64 {
	m := v.ev.Machine
	elsewhere := 0.0
	if m.Online.Known() && m.Cores.Known() {
		elsewhere = max(0, m.Online.Value-m.Cores.Value)
	}
	return max(0, v.ev.Run.Others.Value-elsewhere)
}

// seenEnough says whether the means may be believed: some batches over a time in
// which a machine's other business averages out, or at least three slow ones.
func (v *view) seenEnough() bool {
	n, s := v.l.Batches.Value, v.l.Seconds.Value
	return v.l.Wait.Known() && v.l.Step.Known() && (n >= 5 && s >= 0.25 || n >= 3 && s >= 3)
}

// queued is the seconds of a step in which it could have run, and workers had its core.
func (v *view) queued() float64 {
	cycle := v.l.Wait.Value + v.l.Step.Value
	if cycle <= 0 || v.l.Settings.Workers == 0 {
		return 0
	}
	return late(v.job.Trainer, v.l.TrainerQueue.Value) * v.l.Step.Value / cycle
}

// competes says whether steps compute, and a good part of their time is spent waiting for
// cores that workers occupy, and there are no more workers than there is use for: then a
// cheaper sample makes steps faster, whether or not the loop waits in __next__.
func (v *view) competes() bool {
	n := v.l.Settings.Workers
	return v.seenEnough() && v.alone() && v.ranks() == 1 && n > 0 && n <= max(v.needed(), v.usable())+1 && v.job.Trainer >= 0.2*v.now && v.queued() >= 0.15*v.now && v.demand() >= 0.5
}

// oneBatch says whether epochs are over with their first batch: then all waiting is before
// an epoch's first.
func (v *view) oneBatch() bool { return v.l.PerEpoch.Value == 1 && v.l.Epochs >= 2 }

// handing says whether taking a batch that is ready counts beside a step: the trainer is
// as busy with it.
func (v *view) handing() bool { return v.job.Hand >= 0.02*v.job.Step && v.job.Hand > 0 }

// beyond says whether a loop waits, and no number of workers that there are cores
// for would end that: then its costliest part has to become cheaper.
func (v *view) beyond() bool {
	return v.waits() && (v.needed() > v.usable() || v.demand() > v.left()+0.25 || v.readAhead() || v.crowded())
}

// crowded says whether this rank's part of the cores is used up by what its batches and its
// steps compute, as it is where many ranks share few.
func (v *view) crowded() bool {
	j, n := v.job, float64(v.ranks())
	return n > 1 && j.Cores > 0 && (j.CPU+j.Threads+j.Trainer)*n/j.Cores >= 0.8*v.now
}

// tooDear says whether even the workers that there are cores for would leave the
// loop waiting for long. Other processes may go away: what they take is not looked at.
func (v *view) tooDear() bool {
	return v.suffice() > v.usable() || v.demand()*(1-spare) > v.free()+0.25 || v.readAhead()
}

// spare is the share of the time that may still be lost with all workers that
// there are cores for, when these are to be had for nothing: only then the
// costliest part of a sample is worth the work of making it cheaper.
const spare = 0.2

// suffice is the workers with which the loop waits for less than that.
func (v *view) suffice() int {
	return max(1, int(math.Ceil(min(1e6, v.job.Needed()*(1-spare))-0.05)))
}

// enlist is the workers to ask for. Where other processes use the cores, a batch
// takes longer than it costs, and more workers get a larger part of the cores.
func (v *view) enlist() int {
	n := v.needed()
	if v.suffice() <= v.usable() {
		n = min(n, v.usable())
	}
	if s := v.job.Step + v.job.Hand; !v.alone() && s > 0 {
		n = max(n, min(v.usable(), int(math.Ceil(v.l.Cost.Batch.Value/s-0.05))))
	}
	return n
}

// left is the cores that are free beside the trainer and beside other processes of
// the machine, at least half a core: the kernel shares.
func (v *view) left() float64 {
	free := v.free()
	if v.alone() {
		return free
	}
	return max(0.5, free-v.taken()/float64(v.ranks()))
}

// readAhead says whether a loader of stoker waits for its readers: they read at
// the same time whatever the number of lanes is.
func (v *view) readAhead() bool {
	return v.l.Settings.Class == evidence.OwnClass && v.costliest().kind == evidence.Read
}

// middle is the share of all time that waiting in the middle of epochs takes, to
// be held against start.
func (v *view) middle() float64 {
	if v.now <= 0 {
		return 0
	}
	if v.keepUp() {
		return v.job.Hand / v.now
	}
	return v.l.Wait.Value / v.now
}

// matters says whether this loop's waiting is more than a twentieth of the time of
// all loops of its process: a small validation may do without workers.
func (v *view) matters() bool {
	all := 0.0
	for _, l := range v.ev.Loops {
		if l.PID == v.l.PID {
			all += l.Seconds.Value
		}
	}
	return v.l.Batches.Value*v.l.Wait.Value >= 0.05*all
}

// lost is the share of the time that waiting takes, starts of epochs included.
func (v *view) lost() float64 {
	if v.now <= 0 {
		return 0
	}
	return max(0, 1-v.l.Step.Value/v.now)
}

// unwaited is how many times faster the loop is that never stands in __next__, its steps
// as they are.
func (v *view) unwaited() float64 { return 1 / (1 - min(v.lost(), 0.99)) }

// host is the cores of the machine without its cgroup's quota.
func (v *view) host() float64 {
	m := v.ev.Machine
	m.Quota = evidence.Figure{}
	return m.Usable().Value
}

// demand is the cores that workers use up when the trainer never waits.
func (v *view) demand() float64 {
	s := v.job.Step + v.job.Hand
	if s <= 0 {
		return math.Inf(1)
	}
	return (v.job.CPU + v.job.Threads) / s
}

// enough is the fewest workers that are as good as all that there are cores for.
func (v *view) enough() int {
	return min(v.job.Fewest(max(v.usable(), 1), 0.05), max(1, v.l.Settings.Workers))
}

// full says whether what is read waits for bandwidth and not for latency: many
// streams at once bring hardly more than one, beside the script's own. If they
// waited for latency, each would bring as much as one does.
func (v *view) full() bool {
	s := v.ev.Storage
	if !s.Alone.Known() || !s.Rate.Known() {
		return false
	}
	n, own := float64(s.Streams), max(1, float64(v.l.Settings.Workers))*v.part(evidence.Read).seconds()/max(v.sum(), 1e-9)
	if s.Quiet {
		own = 0
	}
	// How many times one stream's rate the streams bring, at least: all of the
	// bandwidth in both cases. At most: each what one alone brings.
	least, most := 1.0, (n+own)/(1+own)
	if v.mapped() { // the script's own bytes are not counted, and are part of the bandwidth
		least, most = n*(1+own)/(n+own), n
	}
	return s.Rate.Value < s.Alone.Value*math.Sqrt(least*most)
}

// mapped says whether samples are read by touching memory: neither calls nor bytes
// are counted then, and what is opened may be anything.
func (v *view) mapped() bool {
	opening := 0.0
	for _, s := range v.l.Cost.Stages {
		if s.Name == "open" {
			opening += s.Wall.Value
		}
	}
	return v.l.Cost.Faults.Value >= 1 && opening < v.part(evidence.Read).seconds()/2
}

// uneven says whether a few samples take much longer than most.
func (v *view) uneven() bool {
	c := v.l.Cost
	return c.P50.Known() && (c.P99.Value >= 3*c.P50.Value || c.Most.Value >= 10*c.P50.Value)
}

// outlast says whether the slowest batch takes longer to make than the trainer
// takes to use up one: else the queue hides it, however short it is.
func (v *view) outlast() bool {
	c, longest := v.l.Cost, v.l.Cost.Most.Value
	if c.Spread != "batch" {
		longest += c.Batch.Value
	}
	// And samples are what takes the time: of a batch that is long in collate their spread
	// says nothing.
	return longest > v.job.Step+v.job.Hand && (c.Spread == "batch" || c.Most.Value >= 0.2*c.Batch.Value)
}

// crowd says whether workers are so many that they take each other's cores, whatever
// other processes do.
func (v *view) crowd() bool {
	return v.l.Settings.Workers >= 3*v.usable() && v.l.Settings.Workers > 2*v.needed() && v.l.Cost.Queue.Value >= 0.3
}

// manyThreads says whether workers compute with more threads than there are cores for:
// torch's, which says how many, or those of another library, which show only in what
// they take of the cores.
func (v *view) manyThreads() bool {
	c := v.l.Cost
	if c.Threads.Value > 1 && c.Threads.Value*float64(v.l.Settings.Workers) >= 2*v.ev.Machine.Cores.Value {
		return true
	}
	return v.otherThreads()
}

// otherThreads says whether threads that are not torch's compete with the workers' own.
func (v *view) otherThreads() bool {
	much := v.job.Threads >= 0.5*v.job.CPU && v.job.Threads >= 0.3*v.now // of a sleep nothing is much
	return v.waits() && v.l.Cost.Threads.Value <= 1 && v.l.Settings.Workers >= 2 && much && v.l.Cost.Queue.Value >= 0.4
}

func (v *view) threadsText() string {
	workers, on := show.Things(v.l.Settings.Workers, "worker"), show.Cores(v.ev.Machine.Cores.Value)
	if v.otherThreads() {
		return fmt.Sprintf("Each of %s computes with several threads, on %s: a batch takes %s of processor time in the worker's main thread, and %s in other threads.", workers, on, show.Seconds(v.job.CPU), show.Seconds(v.job.Threads))
	}
	return fmt.Sprintf("Each of %s computes with %.0f threads, on %s.", workers, v.l.Cost.Threads.Value, on)
}

// squeezed says whether memory is taken away from the processes: it is swapped in,
// pages that were dropped are read again below a limit, or somebody waits for it
// while these come back or the limit is near: who waits may be no process of ours.
// Major faults alone are no sign: the first read of a mapped file is one.
func (v *view) squeezed() bool {
	r := v.ev.Run
	tight := r.Used.Known() && r.Used.Value >= 0.9
	short := r.Pressure.Value >= 0.1 && (tight || r.Faults.Value >= 10 || r.Swapped.Value > 0 || r.Refaults.Value > 0)
	return short || r.Swapped.Value >= 1<<20 || r.Refaults.Value >= max(4<<20, 0.3*v.readRate()) || (tight && r.Faults.Value >= 50)
}

// readRate is the bytes a second that samples are read with.
func (v *view) readRate() float64 {
	if v.now <= 0 {
		return 0
	}
	return v.l.Cost.Read.Value * v.batch / v.now
}

// unstopped is what a batch waits for in its worker when no quota stops it.
func (v *view) unstopped() float64 {
	return max(0, v.job.Blocked-v.ev.Run.Stopped.Value*v.now)
}

// unstoppedStep is the step without a quota: while all processes are stopped, so
// is the trainer. Where the step is computed on the processor, that stretches it;
// where it is spent on a device, the trainer learns late that it is over. The kernel
// counts both as time in which it was ready and had no core; of that, a step has
// its part of the cycle.
func (v *view) unstoppedStep() float64 {
	step := v.job.Step
	if cycle := v.l.Wait.Value + v.l.Step.Value; cycle > 0 {
		step -= late(v.job.Trainer, v.l.TrainerQueue.Value) * v.l.Step.Value / cycle
	}
	if v.job.Trainer >= 0.3*v.job.Step {
		step = min(step, v.job.Step*(1-min(0.9, v.ev.Run.Stopped.Value/max(1, v.host()))))
	}
	return min(v.job.Step, max(v.job.Trainer, step))
}

// ofRanks is the share that this loop waits, and the median of that of the same
// loader in the other ranks of this machine.
func (v *view) ofRanks() (own, others float64, ok bool) {
	var shares []float64
	for _, l := range v.ev.Loops {
		if l.PID == v.l.PID || l.Rank == v.l.Rank || l.Settings.ID != v.l.Settings.ID || !l.Wait.Known() {
			continue
		}
		shares = append(shares, l.Wait.Value/max(l.Wait.Value+l.Step.Value, 1e-9))
	}
	if len(shares) == 0 {
		return 0, 0, false
	}
	slices.Sort(shares)
	return v.wait, shares[len(shares)/2], true
}

// dearer says whether a batch costs this rank at least a quarter more than it costs the
// other ranks, by their median and for each worker. Where every rank's data costs the same, the
// one that comes last changes from step to step, and all the others wait for it in their
// steps: that is the data, not a difference of ranks. True if no cost is known.
func (v *view) dearer() bool {
	each := func(l evidence.Loop) float64 { return l.Cost.Batch.Value / float64(max(1, l.Settings.Workers)) }
	var others []float64
	for _, l := range v.ev.Loops {
		if l.Rank != v.l.Rank && l.Settings.ID == v.l.Settings.ID && l.Cost.Batch.Known() {
			others = append(others, each(l))
		}
	}
	if len(others) == 0 || !v.l.Cost.Batch.Known() {
		return true
	}
	slices.Sort(others)
	return each(v.l) >= 1.25*others[len(others)/2]
}

// others is the quickest of the other ranks' loops.
func (v *view) others() (best evidence.Loop) {
	for _, l := range v.ev.Loops {
		if l.Rank != v.l.Rank && l.Settings.ID == v.l.Settings.ID && l.Cost.Batch.Known() &&
			(!best.Cost.Batch.Known() || l.Cost.Batch.Value < best.Cost.Batch.Value) {
			best = l
		}
	}
	return best
}

// topFrame is where workers stood most of the time, as the end of a sentence.
func (v *view) topFrame() string {
	if len(v.l.Cost.Frames) == 0 {
		return ""
	}
	return ", most of it at " + v.l.Cost.Frames[0].At
}

// insufficient says what is missing for a verdict.
func (v *view) insufficient(missing []string) Verdict {
	if len(v.parts) > 0 && v.costliest().kind != evidence.Read { // then it is not what lacks
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == aRate.name })
	}
	out := Verdict{Name: Insufficient, Loader: v.l.Settings.Where, Rank: v.l.Rank, Missing: missing}
	r := v.ev.Run
	switch {
	case v.ev.Subject.Kind == evidence.OfMachine:
		out.Sentence = "Nothing was run: what limits a training loop shows while it runs."
		out.Changes = []Change{{"stoker doctor -- python train.py", "watches it; the script runs unchanged"}}
		out.Missing = nil
	case v.ev.Subject.Kind == evidence.OfProcess && len(v.ev.Loops) == 0 && r.Denied != "":
		out.Sentence = fmt.Sprintf("The process is %s's, and we may not look into it: whether it has a loader of stoker is not known.", r.Denied)
		out.Missing = []string{fmt.Sprintf("permission to read /proc/%d/fd", v.ev.Subject.PID)}
		out.Changes = []Change{{fmt.Sprintf("sudo stoker doctor --attach %d", v.ev.Subject.PID), "or as " + r.Denied + ": statistics are for the user whose loader it is"}}
		out.Lines = v.procLines()
	case v.ev.Subject.Kind == evidence.OfProcess && len(v.ev.Loops) == 0:
		out.Sentence = "From outside, a process does not say where it waits for data."
		out.Missing = []string{"the statistics of a loader of stoker"}
		out.Changes = []Change{{"stoker doctor -- python train.py", "watches a run from its start"}}
		out.Lines = v.procLines()
	case r.Hooked == 0 && len(v.ev.Loops) == 0:
		out.Sentence = "No Python process loaded the hook, so nothing is known of its loaders."
		out.Missing = []string{"a Python process with the hook"}
		out.Changes = v.unhooked()
		out.Lines = v.procLines()
	case len(v.ev.Loops) == 0:
		out.Sentence = "No DataLoader of torch was iterated" + ended(r) + "."
		out.Missing = []string{"a loop over a torch.utils.data.DataLoader"}
		if _, torch := r.Libraries["torch"]; !torch && !strings.HasPrefix(r.Ended, "killed") { // one that was killed may have got further than its last line
			out.Sentence = "torch was not imported, and no DataLoader was iterated" + ended(r) + "."
		}
		out.Lines = v.procLines()
	case v.l.Batches.Value < 1:
		out.Sentence = "No batch came" + ended(r) + "."
		out.Missing = []string{"a batch"}
		out.Lines = v.procLines()
	case !v.seenEnough():
		came := show.Count(int64(v.l.Batches.Value), "batch", "batches")
		over := ""
		if v.l.Seconds.Known() {
			over = ", in " + show.Took(v.l.Seconds.Value)
		}
		out.Sentence = fmt.Sprintf("Only %s came%s%s: too few to tell waiting from starting.", came, ended(r), over)
		if v.oneBatch() {
			out.Sentence = fmt.Sprintf("Only %s came%s, each the only one of its epoch: too few to say how long epochs take to start.", came, ended(r))
		}
		out.Missing = []string{"more batches"}
		out.Lines = v.startLines()
	case v.beyond() && v.costliest().kind == evidence.Read:
		out.Sentence = fmt.Sprintf("Reads take %s of a sample's time; whether they begin late or go on slowly was not measured.", show.Percent(v.part(evidence.Read).seconds()/v.sum()))
		out.DataBound = true
		out.Lines = append(v.storageLines(), v.partLines()...)
	case !v.alone():
		out.Sentence = fmt.Sprintf("The loop waits, but other processes use %s of this machine: what it would cost on an idle machine is not known.", show.Cores(math.Round(10*r.Others.Value)/10))
		out.Missing = append([]string{"a machine that has its cores for this"}, missing...)
		out.DataBound = v.bound()
		out.Lines = append(v.loopLines(), v.partLines()...)
	default:
		out.Sentence = "The loop waits for data; the measurements do not show for which part."
		out.DataBound = v.bound()
		out.Lines = append(v.loopLines(), v.partLines()...)
	}
	return out
}

func ended(r evidence.Run) string {
	if r.Ended != "" {
		return " before the script ended (" + r.Ended + ")"
	}
	return ""
}

// unhooked is what to try where the hook did not load.
func (v *view) unhooked() []Change {
	for _, word := range v.ev.Subject.Command {
		switch word {
		case "-I", "-S", "-IS", "-SI":
			return []Change{{"python train.py", "without " + word + ", which keeps Python from loading the hook"}}
		case "-E":
			return []Change{{"python train.py", "without -E, which hides PYTHONPATH from Python"}}
		}
	}
	return []Change{{"stoker doctor -- python train.py", "the command has to start Python; -I, -E and -S keep the hook out, and so does a wrapper that clears PYTHONPATH"}}
}
