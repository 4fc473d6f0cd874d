package judge

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
	"github.com/stoker-data/stoker/internal/tool/model"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// rule is one way a loop can be limited.
type rule struct {
	verdict string
	needs   []need                      // figures that it reads; without them it is not asked
	holds   func(*view) bool            // is it this?
	of      func(*view) string          // what exactly, where the verdict has a name to fill in
	says    func(*view) string          // the verdict in a sentence
	why     func(*view) []evidence.Line // the figures that decided
	change  func(*view) []Change        // what to do
	after   func(*view) model.Job       // the loop after that, for the prediction
}

// need is a figure by the name that a report gives it.
type need struct {
	name string
	get  func(*view) evidence.Figure
}

func (r rule) lacks(v *view) (out []string) {
	for _, n := range r.needs {
		if !n.get(v).Known() {
			out = append(out, n.name)
		}
	}
	return out
}

// The figures that rules need.
var (
	aWait = need{"wait in __next__ and step, over enough batches", func(v *view) evidence.Figure {
		if !v.SeenEnough() {
			return evidence.Figure{}
		}
		return v.Loop.Wait
	}}
	aCores    = need{"cores", func(v *view) evidence.Figure { return v.Evidence.Machine.Cores }}
	aBatch    = need{"cost of a batch in its worker", func(v *view) evidence.Figure { return v.Loop.Cost.Batch }}
	aSample   = need{"cost of a sample", func(v *view) evidence.Figure { return v.Loop.Cost.Sample }}
	aCollate  = need{"cost of collate", func(v *view) evidence.Figure { return v.Loop.Cost.Collate }}
	anEpoch   = need{"batches per epoch", func(v *view) evidence.Figure { return v.Loop.PerEpoch }}
	aFirst    = need{"time to an epoch's first batch", func(v *view) evidence.Figure { return v.Loop.First }}
	aQueue    = need{"time that workers waited for a core", func(v *view) evidence.Figure { return v.Loop.Cost.Queue }}
	someOpens = need{"files opened per sample", func(v *view) evidence.Figure { return v.Loop.Cost.Opens }}
	someBytes = need{"bytes read per sample", func(v *view) evidence.Figure { return v.Loop.Cost.Read }}
	aRate     = need{"what one stream reads of the dataset's files, and many at once", func(v *view) evidence.Figure { return v.Evidence.Storage.Rate }}
	refusals  = need{"requests that the store refused", func(v *view) evidence.Figure {
		if v.Evidence.Storage.Remote == "" { // nobody is asked
			return evidence.Measured(0, "storage of this machine")
		}
		return v.Evidence.Storage.Refused
	}}
	aThread = need{"threads that a worker computes with", func(v *view) evidence.Figure { return v.Loop.Cost.Threads }}
)

// rules are asked in this order, and the first that holds is the verdict.
//
// What makes every other figure mean something else comes first: a rank that
// others wait for, no waiting at all, a start that is repeated, memory that is
// taken away, a quota, workers that take each other's cores. Then what is done for
// nothing, and goes with a line or two: a lock, what is opened or parsed again for every
// sample, a few samples that are not like the others. Only then a batch costs what it
// seems to. Its cost by the time of a step is the workers it needs:
// if the cores are there, workers are what lacks, and if they are not, the
// costliest part of a sample has to become cheaper.
func rules() []rule {
	return []rule{
		ranksDiffer, starves, copiedTwice, onDevice, notBound, tooManyStart, startOfEpochs, noMemory, oversubscribed, limited,
		sampled, contended, repeated, longTail, tooFew, shallow, tooMany, taking, throttled, smallFiles, bandwidth, latency, unprobed, assembly, decoding, transforming, aside, inPython,
	}
}

var ranksDiffer = rule{
	verdict: Imbalance,
	needs:   []need{aWait},
	holds: func(v *view) bool {
		slow, others, ok := v.OfRanks()
		return ok && slow >= loop.Threshold && slow >= 2*others+0.05 && v.Dearer()
	},
	says: func(v *view) string {
		return fmt.Sprintf("rank %d waits for its data, and the others wait in their steps for rank %d.", v.Loop.Rank, v.Loop.Rank)
	},
	why:    func(v *view) []evidence.Line { return append(v.RankLines(), v.CostLines()...) },
	change: changeOfRanks,
	after: func(v *view) model.Job {
		j := v.Job // as if this rank's data cost what the others' does
		if c := v.Others().Cost; c.Batch.Known() && v.Loop.Cost.Batch.Value > 0 {
			by := min(1, c.Batch.Value/v.Loop.Cost.Batch.Value)
			j.CPU, j.Blocked = j.CPU*by, j.Blocked*by
		} else {
			j.CPU, j.Blocked = 0, 0
		}
		return j
	},
}

// starves: a loop that hardly waits, because its workers keep the trainer from
// its cores and each step takes longer.
var starves = rule{
	verdict: TooMany,
	needs:   []need{aWait, aCores, aQueue},
	holds: func(v *view) bool {
		l := v.Loop
		return !v.Stalls() && l.Settings.Workers >= 2*v.Usable()+1 && l.TrainerQueue.Value >= 0.25 && l.Cost.Queue.Value >= 0.4 && v.Alone()
	},
	says: func(v *view) string {
		return fmt.Sprintf("%s and the trainer share %s: the step waits for a core.", show.Things(v.Loop.Settings.Workers, "worker"), show.Cores(v.Evidence.Machine.Cores.Value))
	},
	why:    func(v *view) []evidence.Line { return append(v.LoopLines(), v.QueueLines()...) },
	change: fewerWorkers,
	after: func(v *view) model.Job {
		j := v.With(v.Enough())
		j.Step *= 1 - v.Loop.TrainerQueue.Value
		return j
	},
}

// copiedTwice: steps in which the loop stands for the copy of its batch, longer than
// it stands for the batch. Only where a device was seen copies are timed.
var copiedTwice = rule{
	verdict: Paged,
	needs:   []need{aWait},
	holds: func(v *view) bool {
		copies := v.Loop.Pageable
		return copies.Known() && copies.Value >= loop.Threshold*v.Now && copies.Value >= v.Lost()*v.Now
	},
	says: func(v *view) string {
		return fmt.Sprintf("Copying batches to the device takes %s of the time: they are in pageable memory, so the loop stops while each is copied twice.", show.Percent(v.Loop.Pageable.Value/v.Now))
	},
	why: func(v *view) []evidence.Line {
		var out loop.Lines
		out.Add("copy to the device", v.Loop.Pageable, "%s per batch", show.Took(v.Loop.Pageable.Value))
		out.Add("a batch is", v.Loop.BatchBytes, "%s", show.Bytes(v.Loop.BatchBytes.Value))
		return append(out, v.LoopLines()...)
	},
	change: func(v *view) []Change {
		return []Change{{v.loader("pin_memory=True"), "and batch.to(device, non_blocking=True): the copy runs beside the computing"}}
	},
	after: func(v *view) model.Job {
		j := v.Job
		j.Step = max(0, j.Step-v.Loop.Pageable.Value)
		return j
	},
}

var notBound = rule{
	verdict: NotDataBound,
	needs:   []need{aWait},
	holds:   func(v *view) bool { return !v.Bound() },
	says: func(v *view) string {
		if v.KeepUp() && v.Wait >= loop.Threshold {
			return "Batches are ready and workers are idle: the trainer waits for a core, not for data."
		}
		spends, gain := fmt.Sprintf("The loop spends %s of its time in __next__", show.Percent(v.Lost())), v.Unwaited()
		if all, ok := atMost(v.Evidence); ok && v.Evidence.Subject.Kind == evidence.OfLoader { // measured over all of the loop, the starts of epochs and slower steps in it
			if all < WorthGaining {
				return spends + ", and batches that cost nothing would not be faster."
			}
			if all > gain+0.05 {
				return fmt.Sprintf("%s, and still batches that cost nothing would be %.2f x as fast%s.", spends, all, Elsewhere(v.Evidence))
			}
			gain = all
		}
		return fmt.Sprintf("%s: faster loading gains at most %.2f x.", spends, gain)
	},
	why: func(v *view) []evidence.Line {
		return append(append(v.LoopLines(), v.StepLines()...), v.StartLines()...)
	},
}

// tooManyStart: every epoch starts more workers than there is use for.
var tooManyStart = rule{
	verdict: TooMany,
	needs:   []need{aWait, aFirst, anEpoch, aCores, aBatch},
	holds: func(v *view) bool {
		return v.Starts() && v.Loop.Settings.Workers > 2*max(v.Usable(), v.Needed())
	},
	says: func(v *view) string {
		return fmt.Sprintf("Starting %s takes %s of the time, and %d would do.", show.Things(v.Loop.Settings.Workers, "worker"), show.Percent(v.Start), v.Enough())
	},
	why:    func(v *view) []evidence.Line { return append(v.StartLines(), v.NeededLines()...) },
	change: fewerWorkers,
	after: func(v *view) model.Job {
		j := v.With(v.Enough())
		j.First *= float64(v.Enough()) / float64(v.Loop.Settings.Workers) // workers are started one after the other
		return j
	},
}

var startOfEpochs = rule{
	verdict: EpochStart,
	needs:   []need{aWait, aFirst, anEpoch},
	holds:   (*view).Starts,
	says: func(v *view) string {
		switch {
		case v.OneBatch():
			return fmt.Sprintf("Every epoch is one batch, and %s of the time goes before it: no other is made meanwhile.", show.Percent(v.Start))
		case v.Start < loop.Threshold:
			return fmt.Sprintf("%s of the time goes before the first batch of each epoch, and %s before others.", show.Percent(v.Start), show.Percent(v.Middle()))
		}
		return fmt.Sprintf("%s of the time goes before the first batch of each epoch.", show.Percent(v.Start))
	},
	why:    func(v *view) []evidence.Line { return append(v.StartLines(), v.LoopLines()...) },
	change: changeOfStart,
	after: func(v *view) model.Job {
		j := v.Job // what is left is one batch, made while the trainer waits
		j.First = min(j.First, max(0, j.Batch()-v.Loop.Wait.Value))
		return j
	},
}

var noMemory = rule{
	verdict: Pressure,
	needs:   []need{aWait},
	holds:   func(v *view) bool { return v.Waits() && v.Squeezed() },
	says: func(*view) string {
		return "Memory is short: pages are taken away and read again while batches are made."
	},
	why:    func(v *view) []evidence.Line { return append(v.MemoryLines(), v.LoopLines()...) },
	change: changeOfMemory,
	after:  func(v *view) model.Job { j := v.Job; j.Blocked = 0; return j },
}

// oversubscribed: each worker computes with as many threads as there are cores.
var oversubscribed = rule{
	verdict: Misset,
	needs:   []need{aWait, aThread, aQueue, aCores, aBatch},
	holds: func(v *view) bool {
		return v.Waits() && v.ManyThreads() && v.Job.Threads >= 0.3*v.Job.CPU
	},
	of:   func(*view) string { return ThreadsInWorkers },
	says: (*view).threadsText,
	why: func(v *view) []evidence.Line {
		return append(v.QueueLines(), append(v.FrameLines(), v.LoopLines()...)...)
	},
	change: func(v *view) []Change { return []Change{v.oneThread()} },
	after: func(v *view) model.Job {
		j := v.Job
		j.Threads = 0
		if v.OtherThreads() { // libraries of matrices spin while they wait for a thread that has no core
			j.CPU *= 1 - min(v.Loop.Cost.Queue.Value, 0.9)
		}
		return j
	},
}

// Stopped is the share of a quota's periods in which it stops the processes, from
// which on it counts: less is what a burst of a few milliseconds does.
const Stopped = 0.2

var limited = rule{
	verdict: CPULimit,
	needs:   []need{aWait},
	holds: func(v *view) bool { // without a quota there is nothing to count, and nothing missing
		return v.Waits() && v.Evidence.Machine.Quota.Known() && v.Evidence.Run.Throttled.Value >= Stopped && v.Evidence.Machine.Quota.Value < v.Host()-0.05
	},
	says: func(v *view) string {
		return fmt.Sprintf("A quota of %s stops the processes; the machine has %s.", show.Cores(v.Evidence.Machine.Quota.Value), show.Cores(v.Host()))
	},
	why:    func(v *view) []evidence.Line { return append(v.QuotaLines(), v.LoopLines()...) },
	change: changeOfQuota,
	after: func(v *view) model.Job {
		j := v.Job
		j.Cores = v.Host()
		j.Blocked = v.Unstopped()
		j.Step = v.UnstoppedStep()
		if v.Loop.Trainer.Known() { // taking a batch is computed, and was stretched as the step was
			j.Take = min(j.Take, j.Trainer)
		}
		return j
	},
}

var tooFew = rule{
	verdict: TooFew,
	needs:   []need{aWait, aBatch, aCores},
	holds: func(v *view) bool {
		if v.Loop.Settings.Workers == 0 && v.firstWorkers() {
			return true
		}
		return v.Waits() && !v.TooDear() && v.Enlist() > v.Loop.Settings.Workers && !v.collates()
	},
	says: func(v *view) string {
		if v.Loop.Settings.Workers == 0 {
			return fmt.Sprintf("The trainer makes its batches itself; %s would make them meanwhile.", show.Things(v.lacking(), "worker"))
		}
		taking, work := "", "work"
		if v.TakingCounts() {
			taking = " and taking what is ready"
		}
		if v.Loop.Settings.Workers == 1 {
			work = "works"
		}
		return fmt.Sprintf("A batch costs as much as %.1f steps%s, and %s %s on it.", v.Job.Needed(), taking, show.Things(v.Loop.Settings.Workers, "worker"), work)
	},
	why: func(v *view) []evidence.Line {
		return append(append(v.LoopLines(), v.NeededLines()...), v.CostliestLines()...)
	},
	change: func(v *view) []Change {
		return []Change{v.raised(v.lacking(), "as many as it takes to make a batch in the time of a step")}
	},
	after: func(v *view) model.Job { return v.With(v.lacking()) },
}

// firstWorkers says whether a loop without workers gains more from some than from a
// cheaper sample, or nearly so much: they are the smaller change.
func (v *view) firstWorkers() bool {
	if !v.Waits() || v.Loop.Settings.Class == evidence.OwnClass {
		return false
	}
	some, cheaper := v.Settled(v.With(v.lacking())).Mean(), v.Settled(v.Without(v.Costliest().Kind)).Mean()
	return v.Now >= 1.3*some && some <= 1.25*cheaper
}

// collates says whether a collate function of the script's own takes most of a batch, and
// mending it brings clearly more than workers do.
func (v *view) collates() bool {
	c := v.Loop.Settings.Collate
	if c == "" || c == "default" || v.Costliest().Kind != evidence.Collate || v.Costliest().Seconds() < 0.7*v.Sum() {
		return false
	}
	return v.Settled(v.With(v.lacking())).Mean() >= 1.3*v.Settled(v.uncollated()).Mean()
}

// uncollated is the loop whose collate function costs nothing. A worker that computes in
// Python is also late to send off what is ready: its thread for that waits for the
// interpreter's lock. What is left of taking a batch is mapping and copying it.
func (v *view) uncollated() model.Job {
	j := v.Without(evidence.Collate)
	if v.Loop.BatchBytes.Known() && v.Loop.Settings.Collate != "default" {
		j.Take = min(j.Take, 1e-3+v.Loop.BatchBytes.Value/1e9)
	}
	return j
}

// shallow: enough workers on average, but batches take unequally long and the
// queue is too short to even that out.
var shallow = rule{
	verdict: Shallow,
	needs:   []need{aWait, aBatch, {"spread of a sample's cost", func(v *view) evidence.Figure { return v.Loop.Cost.P99 }}},
	holds: func(v *view) bool {
		idle, workers := v.Loop.Cost.Idle.Value, v.Loop.Settings.Workers
		// Of rare samples that take long a short look sees too few or too many: workers that
		// are idle for a third of the time are nearly enough, whatever the mean says.
		enough := v.Needed() <= workers || v.Suffice() <= workers && idle >= 0.3
		return v.Waits() && workers > 0 && enough && v.Uneven() && v.Outlast() && idle >= 0.1 && !v.Crowd()
	},
	says: func(v *view) string {
		return "Workers are fast enough on average; some batches take much longer, and then too few are ready."
	},
	why:    func(v *view) []evidence.Line { return append(v.LoopLines(), v.SpreadLines()...) },
	change: morePrefetch,
	after:  func(v *view) model.Job { return v.Job },
}

var tooMany = rule{
	verdict: TooMany,
	needs:   []need{aWait, aBatch, aCores, aQueue},
	holds: func(v *view) bool {
		busy := v.Loop.Cost.Queue.Value >= 0.3 && (v.Alone() || v.Crowd())
		return v.Waits() && v.Loop.Settings.Workers > v.Usable() && busy && v.Demand() <= float64(v.Usable())
	},
	says: func(v *view) string {
		return fmt.Sprintf("%s take each other's place on %s.", show.Things(v.Loop.Settings.Workers, "worker"), show.Cores(v.Evidence.Machine.Cores.Value))
	},
	why:    func(v *view) []evidence.Line { return append(v.LoopLines(), v.QueueLines()...) },
	change: fewerWorkers,
	after:  func(v *view) model.Job { return v.With(v.Enough()) },
}
