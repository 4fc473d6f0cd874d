package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// WriteText writes the report as people read it.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, a ...any) { fmt.Fprintf(t, "  %s\t%s\n", name, fmt.Sprintf(format, a...)) }
	fmt.Fprintf(t, "%s\n", r.title())
	line("throughput", "%s samples/s  (%s in %.1f s, batches of %d, %s)", show.Number(r.PerSecond), show.Number(float64(r.Samples)), r.Seconds, r.Batch, show.Count(int64(r.Lanes), "lane", "lanes"))
	line("processor", "%.2f s per 1,000 samples, which is %.2f ms each  (kernel %s)", r.CPUPer1000, r.CPUPer1000, r.Kernel)
	line("first batch", "%.0f ms", r.FirstBatch*1000)
	wait := "at full speed"
	if r.StepTime > 0 {
		wait = fmt.Sprintf("of a training loop that needs %.0f ms a batch", r.StepTime*1000)
	}
	line("batch wait", "p50 %.1f ms, p99 %.1f ms; %.0f %% of the time, %s", r.Wait.P50MS, r.Wait.P99MS, r.Wait.Share*100, wait)
	line("memory", "%s resident at most, %s proportional; batches %s", show.Size(r.Memory.PeakRSS), show.Size(r.Memory.PeakPSS), show.Size(r.Memory.Batches))
	if e := r.Entries; e != nil && e.Pictures > 0 {
		if e.Known == 0 {
			line("entry points", "none are known yet; they are learned for later epochs")
		} else {
			line("entry points", "known of %s of the JPEGs; they save %s of their data", show.Percent(float64(e.Known)/float64(e.Pictures)), show.Percent(float64(e.Leapt)/float64(max(e.MCUs, 1))))
		}
	}
	if r.Bad > 0 {
		line("bad samples", "%s", show.Number(float64(r.Bad)))
	}
	for _, host := range slices.Sorted(maps.Keys(r.Sources)) {
		line("source", "%s: %s", host, asked(r.Sources[host], r.Seconds))
	}
	for _, note := range r.Notes {
		line("note", "%s", note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return r.WriteStages(w)
}

// asked is what a server was asked for, in words.
func asked(s stats.Source, took float64) string {
	out := fmt.Sprintf("%s in %s, %s/s", show.Size(s.Bytes), show.Count(s.Requests, "request", "requests"), show.Size(int64(float64(s.Bytes)/took)))
	for _, more := range [...]struct {
		n    int64
		what string
	}{{s.Retries, "repeated after a fault"}, {s.Throttled, "refused as too many"}, {s.Hedges, "sent twice because they were slow"}} {
		if more.n > 0 {
			out += fmt.Sprintf("; %s %s", show.Number(float64(more.n)), more.what)
		}
	}
	return out
}

func (r *Report) title() string {
	path := strings.Join(r.Path, " ")
	if path == "" {
		path = r.Format
	}
	out := fmt.Sprintf("%s: %s, %s", path, r.Format, show.Count(r.Dataset, "sample", "samples"))
	if r.Classes > 0 {
		out += ", " + show.Count(int64(r.Classes), "class", "classes")
	}
	return out
}

// WriteStages writes where the time went, one line per stage.
func (r *Report) WriteStages(w io.Writer) error {
	sum := 0.0
	for _, s := range r.Stages {
		sum += s.BusySeconds
	}
	fmt.Fprintf(w, "\n  %-20s  %10s  %6s\n", "where the time went", "per sample", "share")
	for _, row := range [...]struct{ key, name string }{{"read", "read"}, {"decode", "decode + transform"}, {"batch", "batch"}} {
		s := r.Stages[row.key]
		if _, err := fmt.Fprintf(w, "  %-20s  %7.0f us  %4.0f %%\n", row.name, s.PerSampleUS, 100*s.BusySeconds/max(sum, 1e-9)); err != nil {
			return err
		}
	}
	return nil
}
