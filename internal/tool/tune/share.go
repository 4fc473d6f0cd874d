package tune

import (
	"cmp"
	"fmt"
	"slices"
)

// Sixteenths is the share of all rows; a share of 0 is the engine alone.
const Sixteenths = 16

// line is the measurements that differ only in the share, with the fewest workers
// that are good enough with the first share.
func (s Space) line(batch int, table []Measurement) (line []Measurement, workers int) {
	first, _, ok := Choose(s.row(batch, table))
	if !ok {
		return nil, 0
	}
	for _, s.share = range s.Shares {
		if m, known := find(table, s.settings(batch, first.Workers, s.Usual, s.Pin[0])); known {
			line = append(line, m)
		}
	}
	return line, first.Workers
}

// shares is another share for the workers of line: first every second one, whatever
// they give, because a device's calls cost the same for few rows as for many. Then
// those next to the fastest, and the one below the choice. If throughput has one
// peak, the fastest of all is among them, and so is the smallest that is good enough.
func (s Space) shares(batch int, table []Measurement) (Settings, bool) {
	line, workers := s.line(batch, table)
	if len(s.Shares) < 2 || len(line) == 0 || s.fed(line[0]) {
		return Settings{}, false
	}
	tries := []Settings{}
	try := func(i int) {
		if i >= 0 && i < len(s.Shares) {
			s.share = s.Shares[i]
			tries = append(tries, s.settings(batch, workers, s.Usual, s.Pin[0]))
		}
	}
	for i := 0; i < len(s.Shares); i += 2 {
		try(i)
	}
	try(len(s.Shares) - 1)
	if next, more := unknown(table, tries); more {
		return next, true
	}
	choice, best, _ := Choose(line)
	fastest := slices.Index(s.Shares, best.Share)
	try(fastest - 1)
	try(fastest + 1)
	if next, more := unknown(table, tries); more {
		return next, true
	}
	try(slices.Index(s.Shares, choice.Share) - 1)
	return unknown(table, tries)
}

// fed reports whether the training step is the limit already.
func (s Space) fed(m Measurement) bool { return s.Step > 0 && m.Batches*s.Step >= 1-Slack }

// at is the space with the share that the measurements of line and row speak for: the
// first if more workers are as good as a share.
func (s Space) at(batch int, table []Measurement) Space {
	line, _ := s.line(batch, table)
	if choice, _, ok := Choose(append(line, s.row(batch, table)...)); ok {
		s.share = choice.Share
	}
	return s
}

// less is a smaller number of workers with a share: a device that decodes leaves less
// for them to do. The model does not know how long they wait for the device, so half
// of the numbers that are left are ruled out by each measurement.
func (s Space) less(batch int, table []Measurement) (Settings, bool) {
	if s.share == s.Shares[0] {
		return Settings{}, false // more and fewer have searched there
	}
	row := s.row(batch, table)
	first := s
	first.share = s.Shares[0]
	line, _ := first.line(batch, table)
	_, best, _ := Choose(append(line, row...))
	low, high := -1, len(s.Workers) // too few, enough
	for _, m := range row {
		i := slices.Index(s.Workers, m.Workers)
		if m.Failed == "" && m.Samples >= best.Samples*(1-Slack) {
			high = min(high, i)
		}
	}
	for _, m := range row {
		if i := slices.Index(s.Workers, m.Workers); i < high {
			low = max(low, i)
		}
	}
	if high == len(s.Workers) || high-low < 2 {
		return Settings{}, false
	}
	return s.settings(batch, s.Workers[(low+high)/2], s.Usual, s.Pin[0]), true
}

// shared is a share as the keyword of a loader; "" if there is no device.
func shared(device string, share int) string {
	switch {
	case device == "":
		return ""
	case share == 0:
		return "decode_device=None"
	}
	return fmt.Sprintf("decode_device=(%q, %g)", device, float64(share)/Sixteenths)
}

// words are settings of what was tuned, for people.
func (r *Report) words(s Settings) string {
	words := s.Words(r.Loader)
	if r.Device != "" {
		words += ", " + shared(r.Device, s.Share)
	}
	return words
}

// decoder says where pictures are decoded, and what was found out about the shares.
func (r *Report) decoder() string {
	tried := r.shares()
	switch {
	case r.Device == "":
		return ""
	case len(tried) < 2 && tried[0] == 0 && r.Cut:
		return "the engine alone decodes: no share of " + r.Device + " was measured, because the budget ended before"
	case len(tried) < 2 && tried[0] == 0:
		return "the engine alone decodes: no share of " + r.Device + " was measured, because the training step is the limit"
	case len(tried) < 2:
		return fmt.Sprintf("%s decodes %d/%d of the JPEGs; no other share was measured", r.Device, tried[0], Sixteenths)
	case r.Choice.Share == 0:
		return fmt.Sprintf("the engine alone decodes: no measured share of %s is faster by more than %.0f %%", r.Device, 100*Slack)
	case r.Choice.Share == Sixteenths:
		return fmt.Sprintf("%s alone decodes: no smaller share that was measured is within %.0f %% of the best", r.Device, 100*Slack)
	}
	return fmt.Sprintf("%s decodes %d/%d of the JPEGs: no smaller share that was measured is within %.0f %% of the best", r.Device, r.Choice.Share, Sixteenths, 100*Slack)
}

// shares are those that were measured, sorted.
func (r *Report) shares() (all []int) {
	for _, m := range r.Table {
		all = append(all, m.Share)
	}
	slices.SortFunc(all, cmp.Compare)
	return slices.Compact(all)
}
