package tune

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s loader on %s, %s usable\n", errs.Name(r.Name), r.Loader, r.Hardware.CPU, show.Count(int64(r.Hardware.Cores+0.5), "core", "cores"))
	if r.Step > 0 {
		fmt.Fprintf(&b, "with a training step of %s\n", show.Time(time.Duration(r.Step*float64(time.Second))))
	}
	if r.Device != "" {
		fmt.Fprintf(&b, "with decode_device=%q\n", r.Device)
	}
	r.writeTable(&b)
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(&b, "not measured, because by the model they are unlikely to be the best: %s workers\n", strings.Trim(fmt.Sprint(r.LeftOut), "[]"))
	}
	if r.Cut {
		b.WriteString("the budget ended before the search did\n")
	}
	if r.Doubt != "" {
		fmt.Fprintf(&b, "\nno recommendation: %s\n  run it again on an idle machine, or with a larger budget; the playbook is unchanged\n", r.Doubt)
	} else {
		fmt.Fprintf(&b, "\nuse %s\n", r.words(r.Choice.Settings))
		r.writeWhy(&b)
		if why := r.decoder(); why != "" {
			fmt.Fprintf(&b, "  %s\n", why)
		}
	}
	r.writeChanges(&b)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, f := range r.Files {
		fmt.Fprintf(&b, "written: %s\n", f)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeTable(b *strings.Builder) {
	batches, pins := map[int]bool{}, map[bool]bool{}
	for _, m := range r.Table {
		batches[m.Batch], pins[m.Pin] = true, true
	}
	b.WriteString("\n  ")
	if len(batches) > 1 {
		fmt.Fprintf(b, "%6s  ", "batch")
	}
	shares := len(r.shares()) > 1
	fmt.Fprintf(b, "%7s  %8s  ", "workers", "prefetch")
	if shares {
		fmt.Fprintf(b, "%9s  ", "on device")
	}
	if len(pins) > 1 {
		fmt.Fprintf(b, "%4s  ", "pin")
	}
	fmt.Fprintf(b, "%11s  %8s  %10s  %11s\n", "samples/s", "of best", "cores busy", "first batch")
	for _, m := range r.Table {
		mark := " "
		if m.Settings == r.Choice.Settings && r.Doubt == "" {
			mark = ">"
		}
		b.WriteString(mark + " ")
		if len(batches) > 1 {
			fmt.Fprintf(b, "%6d  ", m.Batch)
		}
		fmt.Fprintf(b, "%7d  %8s  ", m.Workers, dash(m.Prefetch))
		if shares {
			fmt.Fprintf(b, "%9s  ", fmt.Sprintf("%d/%d", m.Share, Sixteenths))
		}
		if len(pins) > 1 {
			fmt.Fprintf(b, "%4s  ", map[bool]string{true: "yes", false: "no"}[m.Pin])
		}
		if m.Failed != "" {
			first, _, _ := strings.Cut(m.Failed, "\n")
			fmt.Fprintf(b, "failed: %.60s\n", first)
			continue
		}
		fmt.Fprintf(b, "%11s  %7.0f%%  %10.2f  %11s\n", number(m.Samples), 100*m.Samples/max(r.Best.Samples, m.Samples), m.Cores,
			show.Time(time.Duration(m.First*float64(time.Second))))
	}
}

func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// number is a rate, with a fraction where it is small.
func number(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.1f", x)
	}
	return show.Number(x)
}

func (r *Report) writeWhy(b *strings.Builder) {
	if r.Choice.Settings == r.Best.Settings {
		with := ""
		if len(r.shares()) > 1 {
			with = " with as much on the device"
		}
		fmt.Fprintf(b, "the fastest setting measured; fewer workers%s are not within %.0f %% of it\n", with, 100*Slack)
		return
	}
	fmt.Fprintf(b, "  %s samples/s, within %.0f %% of the best (%s with %s)\n", number(r.Choice.Samples), 100*Slack,
		number(r.Best.Samples), r.words(r.Best.Settings))
	if len(r.Pairs) > 0 {
		b.WriteString("  measured again in turn:")
		for i, p := range r.Pairs {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(b, " %s against %s", number(p.Choice), number(p.Best))
		}
		b.WriteString("\n")
	}
}

func (r *Report) writeChanges(b *strings.Builder) {
	if r.Before == "" {
		return
	}
	if len(r.Changes) == 0 {
		fmt.Fprintf(b, "nothing changed since %s by more than noise\n", r.Before)
		return
	}
	fmt.Fprintf(b, "changed since %s:\n", r.Before)
	for _, c := range r.Changes {
		fmt.Fprintf(b, "  %-9s %s: %s -> %s\n", c.Term, c.What, errs.Plain(c.Before), errs.Plain(c.After))
	}
}
