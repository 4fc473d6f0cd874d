package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// WriteSince writes what was found after an earlier report of the same verdict.
func (r Shown) WriteSince(w io.Writer, early judge.Report) error {
	p := &page{w: w}
	if a, b := early.Verdict.Speedup, r.Verdict.Speedup; a > 0 && b > 0 && (a > 1.25*b || b > 1.25*a) {
		p.line("")
		p.line("stoker doctor, at the end of the script:")
		p.wrap("verdict   ", fmt.Sprintf("%s, as before; over the whole run the change is worth about %.2f x, not %.1f x [model].", r.Verdict.Title(), b, a))
	}
	for _, f := range r.Findings {
		if slices.ContainsFunc(early.Findings, func(o judge.Finding) bool { return o.Name == f.Name && o.Loader == f.Loader }) {
			continue
		}
		p.line("")
		p.line("stoker doctor, at the end of the script:")
		p.wrap("found     ", f.Name+location(f.Loader))
		p.wrap(indent, fmt.Sprintf("%s [%s]", f.What, f.Source))
		p.code(indent, f.Fix)
	}
	return p.err
}

// drawn is the columns that the longest step of a timeline has.
const drawn = 56

// WriteTimeline draws the last ten steps: when the trainer waited in __next__ and
// when it did not. What a GPU did meanwhile is not seen here.
func (r Shown) WriteTimeline(w io.Writer) error {
	p := &page{w: w}
	l := r.Evidence.Worst()
	steps, source := l.Recent[max(0, len(l.Recent)-evidence.Recent):], evidence.FromHook
	switch {
	case r.Evidence.Subject.Kind == evidence.OfSpec:
		source = "loop"
	case l.Settings.Class == evidence.OwnClass:
		source = evidence.FromPage
	}
	switch {
	case len(steps) >= 2:
	case r.Evidence.Subject.Kind == evidence.OfProcess && len(r.Evidence.Loops) == 0:
		p.wrap("timeline  ", "of a process that runs already, only the steps of stoker's own loaders are seen, and it has none")
		return p.err
	case source == evidence.FromPage && l.Batches.Value >= 2:
		p.wrap("timeline  ", "its batches come several at a time, and single steps are not timed [statistics page]")
		return p.err
	default:
		p.line("timeline  fewer than two steps were seen [%s]", source)
		return p.err
	}
	p.wrap("timeline  ", fmt.Sprintf("the last %d steps: w waits in __next__, # between two of them [%s]", len(steps)-1, source))
	longest := 0.0
	for i := range len(steps) - 1 {
		longest = max(longest, steps[i+1][0]-steps[i][0])
	}
	for i := range len(steps) - 1 {
		wait, all := steps[i][1]-steps[i][0], max(0, steps[i+1][0]-steps[i][0])
		cells := int(drawn*min(1, all/max(longest, 1e-9)) + 0.5)
		waits := min(cells, int(drawn*min(1, max(0, wait/max(longest, 1e-9)))+0.5))
		ready := ""
		if steps[i][2] >= 0 {
			ready = fmt.Sprintf(" %.0f ready", min(steps[i][2], 9999))
		}
		p.line("%9s %s%s%s", show.Seconds(all), strings.Repeat("w", waits), strings.Repeat("#", cells-waits), ready)
	}
	return p.err
}

// hoursAMonth is 365 days by 12.
const hoursAMonth = 730

// WriteCost writes what the waiting costs a month, for a GPU at a price an hour.
func (r Shown) WriteCost(w io.Writer, price float64) error {
	p := &page{w: w}
	v := judge.Measure(r.Evidence)
	if v.Now <= 0 {
		p.line("cost      not known: too few batches were seen")
		return p.err
	}
	gpus := max(1, len(r.Evidence.Machine.GPUs))
	if n := v.Ranks; n > 1 {
		gpus = n
	}
	text := fmt.Sprintf("%s of %d h a month at %.2f an hour, for %s: %s a month.", show.Percent(v.Lost), hoursAMonth, price, show.Things(gpus, "GPU"), show.Number(v.Lost*hoursAMonth*price*float64(gpus)))
	p.wrap("cost      ", text)
	p.wrap(indent, "This takes the time in __next__ for time in which the GPU is paid and idle, and the run for one that goes on all month. [model]")
	return p.err
}

// item is one line of the readiness list.
type item struct {
	name  string
	value string
	good  bool
	known bool
}

// WriteChecklist writes what makes a loop ready, with what was measured of it.
func (r Shown) WriteChecklist(w io.Writer) error {
	p := &page{w: w}
	p.line("checklist")
	for _, i := range r.items() {
		mark := "no "
		switch {
		case !i.known:
			mark = "?  "
		case i.good:
			mark = "yes"
		}
		p.wrap("  "+mark+"  ", fmt.Sprintf("%-42s %s", i.name+":", i.value))
	}
	return p.err
}

func (r Shown) items() (out []item) {
	v, l, m := judge.Measure(r.Evidence), r.Evidence.Worst(), r.Evidence.Machine
	found := func(name string) bool {
		return slices.ContainsFunc(r.Findings, func(f judge.Finding) bool { return f.Name == name })
	}
	add := func(known, good bool, name, format string, a ...any) {
		value := "not measured"
		if known {
			value = fmt.Sprintf(format, a...)
		}
		out = append(out, item{name, value, good, known})
	}
	looped, w := l.Wait.Known(), l.Settings.Workers
	add(looped, v.Wait < judge.Threshold, "waits less than 10 % of the time", "%s", show.Percent(v.Wait))
	add(looped && l.PerEpoch.Known(), v.Start < 0.05, "epochs start at once", "first batch after %s", show.Took(l.First.Value))
	add(looped && l.Cost.Batch.Known() && v.Paced, w >= min(v.Workers, v.Usable), "workers enough for the step", "%d, needs %.1f", w, v.Needed)
	add(m.Cores.Known() && looped, !found(judge.ManyWorkers), "workers no more than cores allow", "%d on %s", w, show.Cores(m.Cores.Value))
	add(looped && w > 0, l.Settings.Persistent || l.Epochs < 2, "workers stay between epochs", "persistent_workers=%s", yesNo(l.Settings.Persistent))
	if l.Settings.Class == evidence.OwnClass {
		add(looped, true, "batches are prefetched", "by the engine")
	} else {
		add(looped && w > 0, l.Settings.Prefetch >= 2, "batches are prefetched", "prefetch_factor=%d", l.Settings.Prefetch)
	}
	add(looped && l.Ready.Known(), l.Ready.Value >= 1, "a batch is ready when asked for", "%.1f ready", l.Ready.Value)
	add(len(m.GPUs) > 0 && looped, l.Settings.Pin, "batches are pinned", "pin_memory=%s", yesNo(l.Settings.Pin))
	add(l.Settings.Blocking+l.Settings.NonBlocking > 0, l.Settings.Blocking == 0, "copies do not block", "%d of %d do", l.Settings.Blocking, l.Settings.Blocking+l.Settings.NonBlocking)
	add(m.ShmFree.Known(), !found(judge.SmallShm), "/dev/shm holds what is prefetched", "%s free", show.Bytes(m.ShmFree.Value))
	add(r.Evidence.Run.Throttled.Known() || !m.Quota.Known() && m.Cores.Known(), r.Evidence.Run.Throttled.Value < judge.Stopped, "no quota stops the processes", "%s", quotaText(m, r.Evidence.Run))
	add(l.Cost.Threads.Known(), !found(judge.ThreadsInWorkers), "one thread per worker", "%.0f", l.Cost.Threads.Value)
	return out
}

func quotaText(m evidence.Machine, r evidence.Run) string {
	if !m.Quota.Known() {
		return "there is none"
	}
	return fmt.Sprintf("%s, stopped in %s of periods", show.Cores(m.Quota.Value), show.Percent(r.Throttled.Value))
}

// yesNo is a truth as Python writes it.
func yesNo(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
