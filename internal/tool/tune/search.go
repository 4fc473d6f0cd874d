package tune

import (
	"slices"

	"github.com/stoker-data/stoker/internal/tool/model"
)

// Space is what is searched; every list is sorted and not empty.
type Space struct {
	Workers  []int  `json:"workers"`
	Prefetch []int  `json:"prefetch"`
	Pin      []bool `json:"pin_memory"`
	Batch    []int  `json:"batch_size"`
	// Shares are the sixteenths of the rows that a device may decode; empty: none.
	// Workers are compared with the first.
	Shares []int `json:"decode_sixteenths,omitempty"`
	// Usual is the prefetch with which workers are compared, one of Prefetch.
	Usual int     `json:"usual_prefetch"`
	Cores float64 `json:"cores"` // usable cores
	Step  float64 `json:"-"`     // seconds of a training step: no loader is faster
	All   bool    `json:"all"`   // measure every combination

	share int // of settings
}

// workerCounts are the numbers worth trying: closer together if they are small, and
// larger than the cores, because workers may wait for a disk.
func workerCounts(loader string, cores float64) (counts []int) {
	least, most := 1, max(1, int(cores))
	if loader != Own {
		least, most = 0, max(16, 2*int(cores))
	}
	for n, step := least, 1; n < most; n += step {
		counts = append(counts, n)
		if n >= 4 && n >= 4*step {
			step *= 2
		}
	}
	return append(counts, most)
}

// settings are those with this many workers; without workers there is no prefetch.
func (s Space) settings(batch, workers, prefetch int, pin bool) Settings {
	if workers == 0 {
		prefetch = 0
	}
	return Settings{Workers: workers, Prefetch: prefetch, Pin: pin, Batch: batch, Share: s.share}
}

// every are all combinations.
func (s Space) every() (all []Settings) {
	for _, batch := range s.Batch {
		for _, w := range s.Workers {
			for _, p := range s.Prefetch {
				for _, pin := range s.Pin {
					for _, s.share = range s.Shares {
						if one := s.settings(batch, w, p, pin); !slices.Contains(all, one) {
							all = append(all, one)
						}
					}
				}
			}
		}
	}
	return all
}

// Next is what to measure next, given what was measured; false if enough is known.
// It tries workers first (with the usual prefetch), then shares of a device, then
// prefetch if it may matter, then pinned memory.
func (s Space) Next(table []Measurement) (Settings, bool) {
	if s.All {
		for _, one := range s.every() {
			if _, known := find(table, one); !known {
				return one, true
			}
		}
		return Settings{}, false
	}
	for _, batch := range s.Batch {
		var mine []Measurement
		for _, m := range table {
			if m.Batch == batch {
				mine = append(mine, m)
			}
		}
		s.share = s.Shares[0]
		at := s.at(batch, mine)
		for _, look := range []func(int, []Measurement) (Settings, bool){s.more, s.fewer, s.shares, at.less, at.prefetch, at.pin} {
			if next, ok := look(batch, mine); ok {
				return next, true
			}
		}
	}
	return Settings{}, false
}

func find(table []Measurement, s Settings) (Measurement, bool) {
	i := slices.IndexFunc(table, func(m Measurement) bool { return m.Settings == s })
	if i < 0 {
		return Measurement{}, false
	}
	return table[i], true
}

// row is the measurements that differ only in workers, by their number.
func (s Space) row(batch int, table []Measurement) (row []Measurement) {
	for _, w := range s.Workers {
		if m, ok := find(table, s.settings(batch, w, s.Usual, s.Pin[0])); ok {
			row = append(row, m)
		}
	}
	return row
}

// safety is how much the model may be off before a setting that matters is left
// out.
const safety = 1.15

// gain is the smallest improvement for which more workers are tried.
const gain = 1.02

// more is the next larger number of workers, as long as the model says that it may
// pay: not if the cores are full, or after two steps without improvement.
func (s Space) more(batch int, table []Measurement) (Settings, bool) {
	row := s.row(batch, table)
	if len(row) == 0 {
		first := s.Workers[0]
		if first == 0 && len(s.Workers) > 1 { // no workers do not tell how workers scale
			first = s.Workers[1]
		}
		return s.settings(batch, first, s.Usual, s.Pin[0]), true
	}
	last := row[len(row)-1]
	var best Measurement
	flat := 0
	for _, m := range row {
		if m.Samples > best.Samples*gain {
			best, flat = m, 0
		} else {
			flat++
		}
	}
	top := s.predicted(last, s.Workers[len(s.Workers)-1])
	if flat >= 2 || last.Failed == "" && top*safety < best.Samples*gain {
		return Settings{}, false
	}
	for _, w := range s.Workers {
		if w <= last.Workers || last.Failed == "" && 2*s.predicted(last, w) < top {
			continue // less than half of what more workers give
		}
		return s.settings(batch, w, s.Usual, s.Pin[0]), true
	}
	return Settings{}, false
}

// fewer is a smaller number of workers than the fewest that are good enough, as
// long as the model does not rule it out.
func (s Space) fewer(batch int, table []Measurement) (Settings, bool) {
	row := s.row(batch, table)
	choice, best, ok := Choose(row)
	if !ok {
		return Settings{}, false
	}
	ruled := false // this many are too few, and so are fewer, except no workers at all
	for _, w := range slices.Backward(s.Workers) {
		if w >= choice.Workers || ruled && w > 0 {
			continue
		}
		if _, known := find(row, s.settings(batch, w, s.Usual, s.Pin[0])); known {
			ruled = true
			continue
		}
		nearest := choice // measured, from below if there is one
		for _, m := range slices.Backward(row) {
			if m.Workers > 0 && m.Failed == "" && (m.Workers < w || w == 0) {
				nearest = m
				if w > 0 {
					break
				}
			}
		}
		if s.predicted(nearest, w)*safety >= best.Samples*(1-Slack) {
			return s.settings(batch, w, s.Usual, s.Pin[0]), true
		}
	}
	return Settings{}, false
}

// near is how close to the best a number of workers must be for more prefetch to be
// tried with it.
const near = 0.8

// prefetch is another prefetch for the fewest workers that are good enough, or more
// of it for the best, and for smaller numbers that are nearly good enough.
func (s Space) prefetch(batch int, table []Measurement) (Settings, bool) {
	row := s.row(batch, table)
	choice, best, ok := Choose(row)
	if !ok {
		return Settings{}, false
	}
	tries := []Settings{}
	for _, p := range s.Prefetch { // without workers these are the same
		tries = append(tries, s.settings(batch, choice.Workers, p, s.Pin[0]))
	}
	_, fastest, _ := Choose(slices.DeleteFunc(slices.Clone(row), func(m Measurement) bool { return m.Workers == 0 }))
	for _, m := range row { // the best may become better, and what is nearly good enough good
		if m.Workers > 0 && (m.Workers < choice.Workers || m.Workers == fastest.Workers) && m.Samples >= near*best.Samples {
			for _, p := range s.Prefetch {
				if p > s.Usual {
					tries = append(tries, s.settings(batch, m.Workers, p, s.Pin[0]))
				}
			}
		}
	}
	return unknown(table, tries)
}

// pin is the choice with pinned memory.
func (s Space) pin(batch int, table []Measurement) (Settings, bool) {
	choice, _, ok := Choose(table)
	if !ok {
		return Settings{}, false
	}
	tries := []Settings{}
	for _, pin := range s.Pin {
		tries = append(tries, s.settings(batch, choice.Workers, choice.Prefetch, pin))
	}
	return unknown(table, tries)
}

func unknown(table []Measurement, tries []Settings) (Settings, bool) {
	for _, t := range tries {
		if _, known := find(table, t); !known {
			return t, true
		}
	}
	return Settings{}, false
}

// predicted is the throughput with this many workers, from another measurement:
// what a batch costs on a core, and how long its worker waits besides.
func (s Space) predicted(m Measurement, workers int) float64 {
	if m.Batches <= 0 || m.Failed != "" {
		return 0
	}
	cycle := 1 / m.Batches
	held := cycle * float64(max(m.Workers, 1))
	cpu := min(cycle*m.Cores, held)
	j := model.Job{Step: s.Step, CPU: cpu, Blocked: held - cpu, Threads: cycle*m.Cores - cpu, Workers: max(workers, 1), Cores: s.Cores}
	return m.Samples * cycle / j.Cycle()
}
