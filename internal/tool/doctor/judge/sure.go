package judge

import (
	"fmt"
	"math"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// How sure a verdict is, where a script was short.

// A loop over at least so many batches, or for so many seconds, is no short one: that
// is about what the verdict while a script runs rests on at the least.
const (
	someBatches = 40
	someSeconds = 5.0
)

// short says whether a script's loop was.
func (v *view) short() bool {
	return v.ev.Subject.Kind == evidence.OfScript && v.l.Batches.Value < someBatches && v.l.Seconds.Value < someSeconds
}

// thin is on how little a verdict rests; empty where that is enough.
func (v *view) thin() string {
	if !v.short() {
		return ""
	}
	text := fmt.Sprintf("A first guess, from %s in %s", show.Count(int64(v.l.Batches.Value), "batch", "batches"), show.Took(v.l.Seconds.Value))
	if s := v.l.Cost.Samples; s.Known() && s.Value < someBatches {
		text += fmt.Sprintf("; what a sample's parts cost is from %s", show.Things(int(max(0, s.Value)), "sample"))
	}
	return text + fmt.Sprintf(". It is worth more after %d batches, or %.0f seconds.", someBatches, someSeconds)
}

// undecided says whether so few batches came, and so unequal ones, that the share of the
// time that the loop loses may as well lie on the other side of the threshold; and
// between what it lies.
func (v *view) undecided() (low, high float64, is bool) {
	if !v.short() || v.oneBatch() {
		return 0, 0, false
	}
	n, waited, off := 0.0, 0.0, 0.0
	each := func(f func(wait, all float64)) {
		recent := v.l.Recent
		for i := max(0, len(recent)-1-int(v.l.Batches.Value)); i+1 < len(recent); i++ {
			wait, all := recent[i][1]-recent[i][0], recent[i+1][0]-recent[i][0]
			first := v.l.Epochs > 1 && wait >= v.l.First.Value/2 && wait > 2*v.l.Wait.Value // of an epoch
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
	low, high = max(0, v.lost()-by), min(1, v.lost()+by)
	return low, high, low < Threshold && high > Threshold
}

// either is the answer where it may be the one or the other.
func (v *view) either(low, high float64) Verdict {
	return Verdict{
		Name: Insufficient, Loader: v.l.Settings.Where, Rank: v.l.Rank, Lines: append(v.loopLines(), v.startLines()...), Missing: []string{"more batches"},
		Sentence: fmt.Sprintf("In %s the loop lost something between %s and %s of its time to waiting%s: too few, and too unequal ones, to say whether that matters (%s do).",
			show.Count(int64(v.l.Batches.Value), "batch", "batches"), show.Percent(low), show.Percent(high), ended(v.ev.Run), show.Percent(Threshold)),
	}
}
