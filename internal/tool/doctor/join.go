package doctor

import (
	"cmp"
	"slices"
)

// joined makes one loader of those that one line of a script has made, an epoch
// or a validation at a time: to who wrote that line it is one loader, and what
// starting it anew costs is the start of an epoch.
func joined(all []loaderLine) (out []loaderLine) {
	for _, l := range all {
		l.ids = []int{l.ID}
		i := slices.IndexFunc(out, func(o loaderLine) bool {
			return o.Where != "" && o.Where == l.Where && o.Class == l.Class && o.Dataset == l.Dataset && o.Workers == l.Workers
		})
		if i < 0 {
			out = append(out, l)
			continue
		}
		out[i] = out[i].and(l)
	}
	return out
}

// remembered is how many epochs of a joined loader are kept; a loader of the
// hook's keeps as many.
const remembered = 8

// and is a loader with a later one: counters are summed, what is remembered is
// the later one's where it has any.
func (l loaderLine) and(b loaderLine) loaderLine {
	a := l
	l = b
	l.ID, l.ids = a.ID, append(slices.Clone(a.ids), b.ID)
	l.Passes = max(a.Passes, len(a.Epochs)) + max(b.Passes, len(b.Epochs))
	l.Epochs = append(slices.Clone(a.Epochs), b.Epochs...)
	for i := range len(l.Epochs) - len(b.Epochs) { // a loader that was left ended its epoch
		if l.Epochs[i].End == nil {
			l.Epochs[i].left = true
		}
	}
	l.Epochs = l.Epochs[max(0, len(l.Epochs)-remembered):]
	l.Batches, l.Wait, l.WaitFirst, l.Step = a.Batches+b.Batches, a.Wait+b.Wait, a.WaitFirst+b.WaitFirst, a.Step+b.Step
	l.Ready, l.Bytes, l.SampleBytes = mean(a.Ready, a.Batches, b.Ready, b.Batches), cmp.Or(b.Bytes, a.Bytes), cmp.Or(b.SampleBytes, a.SampleBytes)
	l.Padding = mean(a.Padding, a.Batches, b.Padding, b.Batches)
	l.Shape, l.Context = cmp.Or(b.Shape, a.Shape), cmp.Or(b.Context, a.Context)
	l.DatasetBytes, l.Pinned = cmp.Or(b.DatasetBytes, a.DatasetBytes), cmp.Or(b.Pinned, a.Pinned)
	if a.WaitHist != nil && (b.WaitHist == nil || a.Batches > b.Batches) {
		l.WaitHist = a.WaitHist
	}
	if len(b.Recent) < 12 {
		l.Recent = a.Recent
	}
	l.NonBlocking = map[string]int{}
	for _, m := range [...]map[string]int{a.NonBlocking, b.NonBlocking} {
		for k, n := range m {
			l.NonBlocking[k] += n
		}
	}
	if a.Inline != nil {
		sum := *a.Inline
		if b.Inline != nil {
			sum = a.Inline.with(*b.Inline)
		}
		l.Inline = &sum
	}
	return l
}

// mean is that of two means, by their counts; what is not known counts for nothing.
func mean(a *float64, n float64, b *float64, m float64) *float64 {
	if a == nil || n == 0 {
		return cmp.Or(b, a)
	}
	if b == nil || m == 0 {
		return a
	}
	both := (*a*n + *b*m) / (n + m)
	return &both
}

// with is the sum of two stages.
func (s workerLine) with(b workerLine) workerLine {
	sum := workerLine{Loader: s.Loader, Index: s.Index, Started: s.Started, Stacks: s.Stacks, Hist: s.Hist, Threads: s.Threads, Calls: map[string]call{}}
	sum.plus(s, workerLine{})
	sum.plus(b, workerLine{})
	if sum.Looks > 0 { // plus counts looks, a line has shares
		for why := range sum.Waits {
			sum.Waits[why] /= sum.Looks
		}
	}
	if b.Samples > s.Samples {
		sum.Stacks, sum.Hist = b.Stacks, b.Hist
	}
	return sum
}
