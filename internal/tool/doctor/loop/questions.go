package loop

import (
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
)

// What rules ask of a view.

// Alone says whether other processes leave the machine's cores alone: if they do
// not, waiting for a core says nothing about this loop's own workers.
func (v *View) Alone() bool { return v.taken() < 0.25*max(1, v.Evidence.Machine.Cores.Value) }

// taken is the cores that other processes take of those that this job may use: as
// long as there are cores that it may not use, they are taken for there.
func (v *View) taken() float64 {
	m := v.Evidence.Machine
	elsewhere := 0.0
	if m.Online.Known() && m.Cores.Known() {
		elsewhere = max(0, m.Online.Value-m.Cores.Value)
	}
	return max(0, v.Evidence.Run.Others.Value-elsewhere)
}

// SeenEnough says whether the means may be believed: some batches over a time in
// which a machine's other business averages out, or at least three slow ones.
func (v *View) SeenEnough() bool {
	n, s := v.Loop.Batches.Value, v.Loop.Seconds.Value
	return v.Loop.Wait.Known() && v.Loop.Step.Known() && (n >= 5 && s >= 0.25 || n >= 3 && s >= 3)
}

// queued is the seconds of a step in which it could have run, and workers had its core.
func (v *View) queued() float64 {
	cycle := v.Loop.Wait.Value + v.Loop.Step.Value
	if cycle <= 0 || v.Loop.Settings.Workers == 0 {
		return 0
	}
	return Late(v.Job.Trainer, v.Loop.TrainerQueue.Value) * v.Loop.Step.Value / cycle
}

// competes says whether steps compute, and a good part of their time is spent waiting for
// cores that workers occupy, and there are no more workers than there is use for: then a
// cheaper sample makes steps faster, whether or not the loop waits in __next__.
func (v *View) competes() bool {
	n := v.Loop.Settings.Workers
	return v.SeenEnough() && v.Alone() && v.Ranks() == 1 && n > 0 && n <= max(v.Needed(), v.Usable())+1 && v.Job.Trainer >= 0.2*v.Now && v.queued() >= 0.15*v.Now && v.Demand() >= 0.5
}

// OneBatch says whether epochs are over with their first batch: then all waiting is before
// an epoch's first.
func (v *View) OneBatch() bool { return v.Loop.PerEpoch.Value == 1 && v.Loop.Epochs >= 2 }

// TakingCounts says whether taking a batch that is ready counts beside a step: the trainer is
// as busy with it.
func (v *View) TakingCounts() bool { return v.Job.Take >= 0.02*v.Job.Step && v.Job.Take > 0 }

// Beyond says whether a loop waits, and no number of workers that there are cores
// for would end that: then its costliest part has to become cheaper.
func (v *View) Beyond() bool {
	return v.Waits() && (v.Needed() > v.Usable() || v.Demand() > v.left()+0.25 || v.readAhead() || v.crowded())
}

// crowded says whether this rank's part of the cores is used up by what its batches and its
// steps compute, as it is where many ranks share few.
func (v *View) crowded() bool {
	j, n := v.Job, float64(v.Ranks())
	return n > 1 && j.Cores > 0 && (j.CPU+j.Threads+j.Trainer)*n/j.Cores >= 0.8*v.Now
}

// TooDear says whether even the workers that there are cores for would leave the
// loop waiting for long. Other processes may go away: what they take is not looked at.
func (v *View) TooDear() bool {
	return v.Suffice() > v.Usable() || v.Demand()*(1-spare) > v.free()+0.25 || v.readAhead()
}

// spare is the share of the time that may still be lost with all workers that
// there are cores for, when these are to be had for nothing: only then the
// costliest part of a sample is worth the work of making it cheaper.
const spare = 0.2

// Suffice is the workers with which the loop waits for less than that.
func (v *View) Suffice() int {
	return max(1, int(math.Ceil(min(1e6, v.Job.Needed()*(1-spare))-0.05)))
}

// Enlist is the workers to ask for. Where other processes use the cores, a batch
// takes longer than it costs, and more workers get a larger part of the cores.
func (v *View) Enlist() int {
	n := v.Needed()
	if v.Suffice() <= v.Usable() {
		n = min(n, v.Usable())
	}
	if s := v.Job.Step + v.Job.Take; !v.Alone() && s > 0 {
		n = max(n, min(v.Usable(), int(math.Ceil(v.Loop.Cost.Batch.Value/s-0.05))))
	}
	return n
}

// left is the cores that are free beside the trainer and beside other processes of
// the machine, at least half a core: the kernel shares.
func (v *View) left() float64 {
	free := v.free()
	if v.Alone() {
		return free
	}
	return max(0.5, free-v.taken()/float64(v.Ranks()))
}

// readAhead says whether a loader of stoker waits for its readers: they read at
// the same time whatever the number of lanes is.
func (v *View) readAhead() bool {
	return v.Loop.Settings.Class == evidence.OwnClass && v.Costliest().Kind == evidence.Read
}

// Middle is the share of all time that waiting in the middle of epochs takes, for
// comparison with Start.
func (v *View) Middle() float64 {
	if v.Now <= 0 {
		return 0
	}
	if v.KeepUp() {
		return v.Job.Take / v.Now
	}
	return v.Loop.Wait.Value / v.Now
}

// Matters says whether this loop's waiting is more than a twentieth of the time of
// all loops of its process: a small validation may do without workers.
func (v *View) Matters() bool {
	all := 0.0
	for _, l := range v.Evidence.Loops {
		if l.PID == v.Loop.PID {
			all += l.Seconds.Value
		}
	}
	return v.Loop.Batches.Value*v.Loop.Wait.Value >= 0.05*all
}

// Lost is the share of the time that waiting takes, starts of epochs included.
func (v *View) Lost() float64 {
	if v.Now <= 0 {
		return 0
	}
	return max(0, 1-v.Loop.Step.Value/v.Now)
}

// Unwaited is how many times faster the loop is that never waits in __next__, its steps
// as they are.
func (v *View) Unwaited() float64 { return 1 / (1 - min(v.Lost(), 0.99)) }

// Host is the cores of the machine without its cgroup's quota.
func (v *View) Host() float64 {
	m := v.Evidence.Machine
	m.Quota = evidence.Figure{}
	return m.Usable().Value
}

// Demand is the cores that workers use up when the trainer never waits.
func (v *View) Demand() float64 {
	s := v.Job.Step + v.Job.Take
	if s <= 0 {
		return math.Inf(1)
	}
	return (v.Job.CPU + v.Job.Threads) / s
}

// Enough is the fewest workers that are as good as all that there are cores for.
func (v *View) Enough() int {
	return min(v.Job.Fewest(max(v.Usable(), 1), 0.05), max(1, v.Loop.Settings.Workers))
}

// Full says whether what is read waits for bandwidth and not for latency: many
// streams at once bring hardly more than one, beside the script's own. If they
// waited for latency, each would bring as much as one does.
func (v *View) Full() bool {
	s := v.Evidence.Storage
	if s.Remote != "" { // connections share the bandwidth of a link: what the loop has of it decides
		return s.Rate.Known() && v.Loop.Cost.Read.Known() && v.Loop.Cost.Read.Value*v.Batch/max(v.Now, 1e-9) >= 0.6*s.Rate.Value
	}
	if !s.Alone.Known() || !s.Rate.Known() {
		return false
	}
	n, own := float64(s.Streams), max(1, float64(v.Loop.Settings.Workers))*v.Part(evidence.Read).Seconds()/max(v.Sum(), 1e-9)
	if s.Quiet {
		own = 0
	}
	// How many times one stream's rate the streams bring, at least: all of the
	// bandwidth in both cases. At most: each what one alone brings.
	least, most := 1.0, (n+own)/(1+own)
	if v.Mapped() { // the script's own bytes are not counted, and are part of the bandwidth
		least, most = n*(1+own)/(n+own), n
	}
	return s.Rate.Value < s.Alone.Value*math.Sqrt(least*most)
}

// Mapped says whether samples are read by touching memory: neither calls nor bytes
// are counted then, and what is opened may be anything.
func (v *View) Mapped() bool {
	opening := 0.0
	for _, s := range v.Loop.Cost.Stages {
		if s.Name == "open" {
			opening += s.Wall.Value
		}
	}
	return v.Loop.Cost.Faults.Value >= 1 && opening < v.Part(evidence.Read).Seconds()/2
}

// Uneven says whether a few samples take much longer than most.
func (v *View) Uneven() bool {
	c := v.Loop.Cost
	return c.P50.Known() && (c.P99.Value >= 3*c.P50.Value || c.Most.Value >= 10*c.P50.Value)
}

// Outlast says whether the slowest batch takes longer to make than the trainer
// takes to use up one: else the queue hides it, however short it is.
func (v *View) Outlast() bool {
	c, longest := v.Loop.Cost, v.Loop.Cost.Most.Value
	if c.Spread != "batch" {
		longest += c.Batch.Value
	}
	// And samples are what takes the time: of a batch that is long in collate their spread
	// says nothing.
	return longest > v.Job.Step+v.Job.Take && (c.Spread == "batch" || c.Most.Value >= 0.2*c.Batch.Value)
}

// Crowd says whether workers are so many that they take each other's cores, whatever
// other processes do.
func (v *View) Crowd() bool {
	return v.Loop.Settings.Workers >= 3*v.Usable() && v.Loop.Settings.Workers > 2*v.Needed() && v.Loop.Cost.Queue.Value >= 0.3
}

// ManyThreads says whether workers compute with more threads than there are cores for:
// torch's, which says how many, or those of another library, which show only in what
// they take of the cores.
func (v *View) ManyThreads() bool {
	c := v.Loop.Cost
	if c.Threads.Value > 1 && c.Threads.Value*float64(v.Loop.Settings.Workers) >= 2*v.Evidence.Machine.Cores.Value {
		return true
	}
	return v.OtherThreads()
}

// OtherThreads says whether threads that are not torch's compete with the workers' own.
func (v *View) OtherThreads() bool {
	much := v.Job.Threads >= 0.5*v.Job.CPU && v.Job.Threads >= 0.3*v.Now // of a sleep nothing is much
	return v.Waits() && v.Loop.Cost.Threads.Value <= 1 && v.Loop.Settings.Workers >= 2 && much && v.Loop.Cost.Queue.Value >= 0.4
}

// Squeezed says whether memory is taken away from the processes: it is swapped in,
// pages that were dropped are read again below a limit, or somebody waits for it
// while these come back or the limit is near: who waits may be no process of ours.
// Major faults alone are not a sign: the first read of a mapped file is one.
func (v *View) Squeezed() bool {
	r := v.Evidence.Run
	tight := r.Used.Known() && r.Used.Value >= 0.9
	short := r.Pressure.Value >= 0.1 && (tight || r.Faults.Value >= 10 || r.Swapped.Value > 0 || r.Refaults.Value > 0)
	return short || r.Swapped.Value >= 1<<20 || r.Refaults.Value >= max(4<<20, 0.3*v.readRate()) || (tight && r.Faults.Value >= 50)
}

// readRate is the bytes a second that samples are read with.
func (v *View) readRate() float64 {
	if v.Now <= 0 {
		return 0
	}
	return v.Loop.Cost.Read.Value * v.Batch / v.Now
}

// Unstopped is what a batch waits for in its worker when no quota stops it.
func (v *View) Unstopped() float64 {
	return max(0, v.Job.Blocked-v.Evidence.Run.Stopped.Value*v.Now)
}

// UnstoppedStep is the step without a quota: while all processes are stopped, so
// is the trainer. Where the step is computed on the processor, that stretches it;
// where it is spent on a device, the trainer learns late that it is over. The kernel
// counts both as time in which it was ready and had no core; of that, a step has
// its part of the cycle.
func (v *View) UnstoppedStep() float64 {
	step := v.Job.Step
	if cycle := v.Loop.Wait.Value + v.Loop.Step.Value; cycle > 0 {
		step -= Late(v.Job.Trainer, v.Loop.TrainerQueue.Value) * v.Loop.Step.Value / cycle
	}
	if v.Job.Trainer >= 0.3*v.Job.Step {
		step = min(step, v.Job.Step*(1-min(0.9, v.Evidence.Run.Stopped.Value/max(1, v.Host()))))
	}
	return min(v.Job.Step, max(v.Job.Trainer, step))
}

// OfRanks is the share that this loop waits, and the median of that of the same
// loader in the other ranks of this machine.
func (v *View) OfRanks() (own, others float64, ok bool) {
	var shares []float64
	for _, l := range v.Evidence.Loops {
		if l.PID == v.Loop.PID || l.Rank == v.Loop.Rank || l.Settings.ID != v.Loop.Settings.ID || !l.Wait.Known() {
			continue
		}
		shares = append(shares, l.Wait.Value/max(l.Wait.Value+l.Step.Value, 1e-9))
	}
	if len(shares) == 0 {
		return 0, 0, false
	}
	slices.Sort(shares)
	return v.Wait, shares[len(shares)/2], true
}

// Dearer says whether a batch costs this rank at least a quarter more than it costs the
// other ranks, by their median and for each worker. Where every rank's data costs the same, the
// one that comes last changes from step to step, and all the others wait for it in their
// steps: that is the data, not a difference of ranks. True if no cost is known.
func (v *View) Dearer() bool {
	each := func(l evidence.Loop) float64 { return l.Cost.Batch.Value / float64(max(1, l.Settings.Workers)) }
	var others []float64
	for _, l := range v.Evidence.Loops {
		if l.Rank != v.Loop.Rank && l.Settings.ID == v.Loop.Settings.ID && l.Cost.Batch.Known() {
			others = append(others, each(l))
		}
	}
	if len(others) == 0 || !v.Loop.Cost.Batch.Known() {
		return true
	}
	slices.Sort(others)
	return each(v.Loop) >= 1.25*others[len(others)/2]
}

// Others is the quickest of the other ranks' loops.
func (v *View) Others() (best evidence.Loop) {
	for _, l := range v.Evidence.Loops {
		if l.Rank != v.Loop.Rank && l.Settings.ID == v.Loop.Settings.ID && l.Cost.Batch.Known() &&
			(!best.Cost.Batch.Known() || l.Cost.Batch.Value < best.Cost.Batch.Value) {
			best = l
		}
	}
	return best
}

// TopFrame is where workers were most of the time, as the end of a sentence.
func (v *View) TopFrame() string {
	if len(v.Loop.Cost.Frames) == 0 {
		return ""
	}
	return ", most of it at " + v.Loop.Cost.Frames[0].At
}
