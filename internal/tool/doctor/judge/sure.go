package judge

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// How sure a verdict is, where a script was short.

// A loop over at least so many batches, or for so many seconds, is not a short one: that
// is about what the verdict while a script runs rests on at the least.
const (
	someBatches = 40
	someSeconds = 5.0
)

// short says whether a script's loop was.
func (v *view) short() bool {
	return v.Evidence.Subject.Kind == evidence.OfScript && v.Loop.Batches.Value < someBatches && v.Loop.Seconds.Value < someSeconds
}

// thin is on how little a verdict rests; empty where that is enough.
func (v *view) thin() string {
	if !v.short() {
		return ""
	}
	text := fmt.Sprintf("A first guess, from %s in %s", show.Count(int64(v.Loop.Batches.Value), "batch", "batches"), show.Took(v.Loop.Seconds.Value))
	if s := v.Loop.Cost.Samples; s.Known() && s.Value < someBatches {
		text += fmt.Sprintf("; what a sample's parts cost is from %s", show.Things(int(max(0, s.Value)), "sample"))
	}
	return text + fmt.Sprintf(". It is worth more after %d batches, or %.0f seconds.", someBatches, someSeconds)
}

// undecided says whether so few batches came, and so unequal ones, that the share of the
// time that the loop loses may as well be on the other side of the threshold, and
// gives the range that it is in.
func (v *view) undecided() (low, high float64, is bool) {
	if !v.short() || v.OneBatch() {
		return 0, 0, false
	}
	n, waited, off := 0.0, 0.0, 0.0
	each := func(f func(wait, all float64)) {
		recent := v.Loop.Recent
		for i := max(0, len(recent)-1-int(v.Loop.Batches.Value)); i+1 < len(recent); i++ {
			wait, all := recent[i][1]-recent[i][0], recent[i+1][0]-recent[i][0]
			first := v.Loop.Epochs > 1 && wait >= v.Loop.First.Value/2 && wait > 2*v.Loop.Wait.Value // of an epoch
			if all > 0 && wait >= 0 && wait <= all && !first {
				f(wait, all)
			}
		}
	}
	mean := 0.0
	each(func(wait, all float64) { n, waited, mean = n+1, waited+wait, mean+all })
	if n < 5 || mean <= 0 {
		return 0, 0, false
	}
	// The share is a ratio of two means; what is off of each batch is what it adds to one
	// without the other. Twice the standard error, n-1 of n for the mean itself.
	share := waited / mean
	each(func(wait, all float64) { off += (wait - share*all) * (wait - share*all) })
	by := 2 * math.Sqrt(off*n/(n-1)) / mean
	low, high = max(0, v.Lost()-by), min(1, v.Lost()+by)
	return low, high, low < loop.Threshold && high > loop.Threshold
}

// either is the answer where it may be the one or the other.
func (v *view) either(low, high float64) Verdict {
	return Verdict{
		Name: Insufficient, Loader: v.Loop.Settings.Where, Rank: v.Loop.Rank, Lines: append(v.LoopLines(), v.StartLines()...), Missing: []string{"more batches"},
		Sentence: fmt.Sprintf("In %s the loop lost something between %s and %s of its time to waiting%s: too few, and too unequal ones, to say whether that matters (%s do).",
			show.Count(int64(v.Loop.Batches.Value), "batch", "batches"), show.Percent(low), show.Percent(high), ended(v.Evidence.Run), show.Percent(loop.Threshold)),
	}
}

func (v *view) threadsText() string {
	workers, on := show.Things(v.Loop.Settings.Workers, "worker"), show.Cores(v.Evidence.Machine.Cores.Value)
	if v.OtherThreads() {
		return fmt.Sprintf("Each of %s computes with several threads, on %s: a batch takes %s of processor time in the worker's main thread, and %s in other threads.", workers, on, show.Seconds(v.Job.CPU), show.Seconds(v.Job.Threads))
	}
	return fmt.Sprintf("Each of %s computes with %.0f threads, on %s.", workers, v.Loop.Cost.Threads.Value, on)
}
