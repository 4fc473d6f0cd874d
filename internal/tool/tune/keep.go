package tune

import (
	"fmt"
	"math"
	"path/filepath"
	"time"
)

// Keep compares a report with the playbook's earlier entry, writes its entry, and
// draws the plot. Empty paths are skipped; so is the entry of a choice in Doubt,
// because loaders would use it.
func (r *Report) Keep(playbook, plot string, now time.Time) error {
	e := r.entry(now)
	if playbook != "" {
		p, _, err := Read(playbook)
		if err != nil {
			return err
		}
		if before, ok := p.Previous(e); ok {
			r.Before, r.Changes = before.Date, Changes(before, e)
		}
		if r.Doubt == "" {
			p.Put(e)
			if err := p.Write(playbook); err != nil {
				return err
			}
			r.Files = append(r.Files, playbook)
		}
	}
	if plot != "" {
		for _, form := range []struct {
			ending string
			draw   func(*Report) ([]byte, error)
		}{{".svg", SVG}, {".png", PNG}} {
			drawn, err := form.draw(r)
			if err != nil {
				return fmt.Errorf("tune: the plot: %w", err)
			}
			if err := write(plot+form.ending, drawn); err != nil {
				return err
			}
			r.Files = append(r.Files, plot+form.ending)
		}
	}
	for i, f := range r.Files {
		r.Files[i] = filepath.Clean(f)
	}
	return nil
}

// entry is the report as an entry of the playbook.
func (r *Report) entry(now time.Time) Entry {
	f := r.Choice.Figures
	for _, x := range []*float64{&f.Samples, &f.Batches, &f.Cores, &f.First, &f.Spread} {
		*x = digits(*x)
	}
	return Entry{
		Machine: r.Hardware.Digest(), Dataset: r.Dataset, Name: r.Name, Samples: r.Samples, Loader: r.Loader, Device: r.Device, Step: r.Step,
		Date: now.UTC().Format(time.RFC3339), Settings: r.Choice.Settings, Figures: f, Hardware: r.Hardware,
	}
}

// digits is x with four digits, the most that a measurement has.
func digits(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(x)))-3)
	if unit < 1 {
		return math.Round(x/unit) / math.Round(1/unit)
	}
	return math.Round(x/unit) * unit
}
