// Package tune finds out with how many workers, how much prefetch, with or without
// pinned memory, and with which share of a device that decodes a loader is fast
// enough: the smallest share, then the fewest workers, then the least prefetch, within
// Slack of the best.
//
// A Meter measures: stoker's own loaders are run by Own in this process, others by
// a Python process at the other end of a pipe (Line). What to measure next is a
// function of what was measured (Space.Next), so that the search can be tested on
// tables; only this file reads the clock.
package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// Own and Torch are kinds of loaders.
const (
	Own   = "stoker"
	Torch = "torch"
)

// Meter measures a loader with some settings, warmed up, for about the given time.
type Meter interface {
	Measure(ctx context.Context, s Settings, about time.Duration) (Figures, error)
}

// Subject is what is tuned.
type Subject struct {
	Loader  string  `json:"loader"`            // Own, Torch, or the name of a factory's class
	Dataset string  `json:"dataset"`           // digest
	Name    string  `json:"name"`              // of the dataset, for people
	Samples int64   `json:"samples,omitempty"` // of the dataset; 0: unknown
	Step    float64 `json:"step_s"`            // simulated training step, seconds
	// Device is the kind of device that decodes a share of the rows; "": the engine
	// decodes all.
	Device string `json:"decode_device,omitempty"`
}

// Config is one tuning.
type Config struct {
	Subject
	Space  Space
	Budget time.Duration

	// Progress is called with what is measured, and how much of the budget is
	// spent. May be nil.
	Progress func(now Settings, spent, budget time.Duration)
	// Watch begins to measure what else the machine does during a measurement; see
	// Beside. May be nil.
	Watch func() func() (cores float64, known bool)
}

// DefaultBudget is how long a tuning may take.
const DefaultBudget = 5 * time.Minute

// Report is the result.
type Report struct {
	Subject
	Hardware Hardware      `json:"hardware"`
	Table    []Measurement `json:"table"`
	Choice   Measurement   `json:"choice"`
	Best     Measurement   `json:"best"`
	// Doubt is why Choice is not recommended: the noise is larger than what
	// decides; "" if it is.
	Doubt  string   `json:"doubt,omitempty"`
	Noise  float64  `json:"noise"`                  // usual spread of measurements of one setting, as a share of their median
	Others *float64 `json:"others_cores,omitempty"` // cores that other processes kept busy meanwhile; nil: unknown
	// Pairs are the last measurements, of choice and best in turn, in samples per
	// second.
	Pairs   []Pair   `json:"pairs,omitempty"`
	LeftOut []int    `json:"workers_left_out,omitempty"` // numbers that the model ruled out
	Cut     bool     `json:"cut_short,omitempty"`        // the budget ended the search
	Seconds float64  `json:"seconds"`
	Changes []Change `json:"changes,omitempty"` // since the last time
	Before  string   `json:"before,omitempty"`  // time of that
	Files   []string `json:"files,omitempty"`   // files that were written
	Notes   []string `json:"notes,omitempty"`
}

// Pair is one interleaved comparison.
type Pair struct {
	Choice float64 `json:"choice"`
	Best   float64 `json:"best"`
}

// Complete fills in what a Space leaves open.
func (s Space) Complete(loader string, cores float64, gpu bool) Space {
	if s.Cores <= 0 {
		s.Cores = cores
	}
	if len(s.Workers) == 0 {
		s.Workers = workerCounts(loader, s.Cores)
	}
	if len(s.Prefetch) == 0 {
		s.Prefetch = []int{2, 4, 8}
	}
	if len(s.Pin) == 0 {
		s.Pin = []bool{false}
		if gpu && loader != Own {
			s.Pin = []bool{false, true}
		}
	}
	if len(s.Shares) == 0 {
		s.Shares = []int{0}
	}
	for _, list := range []*[]int{&s.Workers, &s.Prefetch, &s.Batch, &s.Shares} {
		*list = slices.Clone(*list)
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if !slices.Contains(s.Prefetch, s.Usual) {
		usual := 2
		if loader == Own {
			usual = 4
		}
		s.Usual = slices.MinFunc(s.Prefetch, func(a, b int) int { return cmp.Compare(max(a-usual, usual-a), max(b-usual, usual-b)) })
	}
	return s
}

// Check returns what is wrong with a Space.
func (s Space) Check() error {
	if n := len(s.Shares); n > 0 && s.Shares[n-1] > Sixteenths {
		return errs.New(errs.Config, "decode_sixteenths to try is %d", s.Shares[n-1]).Try("give numbers of at most %d", Sixteenths)
	}
	for _, list := range []struct {
		name  string
		v     []int
		least int
	}{{"workers", s.Workers, 0}, {"prefetch", s.Prefetch, 1}, {"batch_size", s.Batch, 1}, {"decode_sixteenths", s.Shares, 0}} {
		if len(list.v) == 0 {
			return errs.New(errs.Config, "no %s to try", list.name)
		}
		if i := slices.IndexFunc(list.v, func(n int) bool { return n < list.least || n > 1<<20 }); i >= 0 {
			return errs.New(errs.Config, "%s to try is %d", list.name, list.v[i]).Try("give numbers of at least %d", list.least)
		}
	}
	return nil
}

// A measurement takes between shortest and longest; at the end, pairs of them
// compare choice and best.
const (
	shortest = 300 * time.Millisecond
	longest  = 6 * time.Second
	pairs    = 3
	rounds   = 4 // of pairs, each with another choice
	repeats  = 2 // measurements of every contender
)

// contender is how close to the best a measurement must be to be measured again, if
// windows show no larger noise: a burst of work of another process costs this much.
const contender = 0.85

// restless is a spread of windows at which a choice says little.
const restless = 0.3

// Run tunes. If the first setting cannot be measured, that is its error; for others
// the table says that they failed.
func Run(ctx context.Context, c Config, meter Meter) (*Report, error) {
	if err := c.Space.Check(); err != nil {
		return nil, err
	}
	if c.Budget <= 0 {
		c.Budget = DefaultBudget
	}
	c.Space.Step = c.Step
	s := &search{Config: c, meter: meter, begin: time.Now(), slice: c.slice(), rates: map[Settings][]float64{}}
	r := &Report{Subject: c.Subject}
	if err := s.look(ctx, r); err != nil {
		return nil, err
	}
	if err := s.repeat(ctx); err != nil {
		return nil, err
	}
	if err := s.confirm(ctx, r); err != nil {
		return nil, err
	}
	r.Table = s.table
	slices.SortStableFunc(r.Table, func(a, b Measurement) int {
		return cmp.Or(cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Share, b.Share), cmp.Compare(a.Workers, b.Workers), cmp.Compare(a.Prefetch, b.Prefetch))
	})
	for _, w := range c.Space.Workers {
		if !slices.ContainsFunc(r.Table, func(m Measurement) bool { return m.Workers == w }) {
			r.LeftOut = append(r.LeftOut, w)
		}
	}
	if top := c.Space.Workers[len(c.Space.Workers)-1]; r.Choice.Workers == top && c.Space.predicted(r.Choice, 2*top) > gain*r.Choice.Samples {
		r.Notes = append(r.Notes, fmt.Sprintf("nothing above %s was tried; more may be faster", show.Things(top, "worker")))
	}
	s.judge(r)
	if r.Choice.Spread > restless {
		r.Notes = append(r.Notes, fmt.Sprintf("throughput went up and down by %.0f %% while the choice was measured: run it again on an idle machine", 100*r.Choice.Spread))
	}
	r.Seconds = time.Since(s.begin).Seconds()
	return r, nil
}

// judge says how far the choice can be trusted.
func (s *search) judge(r *Report) {
	others := 0.0
	if len(s.others) > 0 {
		slices.Sort(s.others)
		others = s.others[len(s.others)/2]
		r.Others = &others
	}
	r.Doubt, r.Noise = doubt(s.table, s.rates, r.Choice, others, s.Space.Cores)
	if r.Doubt == "" && others > audible*s.Space.Cores {
		r.Notes = append(r.Notes, fmt.Sprintf("other processes kept %.1f of %.1f cores busy meanwhile", others, s.Space.Cores))
	}
}

// audible is the share of the cores above which the use by others is reported.
const audible = 0.05

// search is a tuning in progress.
type search struct {
	Config
	meter  Meter
	begin  time.Time
	slice  time.Duration // of one measurement
	took   time.Duration // the longest, including the start of workers
	table  []Measurement
	rates  map[Settings][]float64 // of all measurements of a setting
	others []float64              // cores that other processes kept busy, of every measurement
}

// slice is how long one measurement may take so that all that may be needed fit
// into the budget.
func (c Config) slice() time.Duration {
	n := len(c.Space.Workers) + 2*len(c.Space.Prefetch) + len(c.Space.Pin)
	if len(c.Space.Shares) > 1 {
		n += len(c.Space.Shares)/2 + 3 + bits.Len(uint(len(c.Space.Workers)))
	}
	n *= len(c.Space.Batch)
	if c.Space.All {
		n = len(c.Space.every())
	}
	return min(max(c.Budget*3/4/time.Duration(n+2*pairs), shortest), longest)
}

// left reports whether one more measurement fits into a share of the budget.
func (s *search) left(share float64) bool {
	return time.Since(s.begin)+s.took < time.Duration(share*float64(s.Budget))
}

func (s *search) measure(ctx context.Context, set Settings) (Measurement, error) {
	if s.Progress != nil {
		s.Progress(set, time.Since(s.begin), s.Budget)
	}
	before := time.Now()
	watched := func() (float64, bool) { return 0, false }
	if s.Watch != nil {
		watched = s.Watch()
	}
	f, err := s.meter.Measure(ctx, set, s.slice)
	if cores, known := watched(); known {
		s.others = append(s.others, cores)
	}
	s.took = max(s.took, time.Since(before))
	if ctx.Err() != nil {
		return Measurement{}, ctx.Err()
	}
	m := Measurement{Settings: set, Figures: f}
	if err != nil {
		var lost *LineError
		if len(s.table) == 0 || errors.As(err, &lost) {
			return m, err
		}
		m.Failed = err.Error()
	} else if f.Samples > 0 {
		s.rates[set] = append(s.rates[set], f.Samples)
	}
	return m, nil
}

// look measures until enough is known, or the budget is nearly spent.
func (s *search) look(ctx context.Context, r *Report) error {
	for {
		next, more := s.Space.Next(s.table)
		if !more {
			return nil
		}
		if len(s.table) > 0 && !s.left(0.75) {
			r.Cut = true
			return nil
		}
		m, err := s.measure(ctx, next)
		if err != nil {
			return err
		}
		s.table = append(s.table, m)
	}
}

// repeat measures the settings that may become best or choice again, in turn, so
// that other work on the machine affects all of them equally; the median of each
// counts. A round that the budget cuts is dropped, because all settings must be
// measured equally often.
func (s *search) repeat(ctx context.Context) error {
	again := s.contenders()
	if len(again) < 2 {
		return nil
	}
	for range repeats {
		var round []Measurement
		for _, all := range again {
			if !s.left(0.75) {
				break
			}
			m, err := s.measure(ctx, all[0].Settings)
			if err != nil {
				return err
			}
			round = append(round, m)
		}
		if len(round) < len(again) {
			break
		}
		for i, m := range round {
			again[i] = append(again[i], m)
		}
	}
	for _, all := range again {
		s.update(median(all))
	}
	return nil
}

// contenders are the measurements that noise alone may separate from the best: half
// of the typical variation of throughput.
func (s *search) contenders() (all [][]Measurement) {
	_, best, ok := Choose(s.table)
	if !ok {
		return nil
	}
	var spreads []float64
	for _, m := range s.table {
		spreads = append(spreads, m.Spread)
	}
	slices.Sort(spreads)
	limit := 1 - min(max(1-contender, spreads[len(spreads)/2]/2), 0.5)
	for _, m := range s.table {
		if m.Failed == "" && m.Samples >= limit*best.Samples {
			all = append(all, []Measurement{m})
		}
	}
	return all
}

// confirm measures choice and best again, in turn, and chooses again if the choice
// does not hold: the best of many measurements is often only the luckiest.
func (s *search) confirm(ctx context.Context, r *Report) error {
	for round := 0; ; round++ {
		var ok bool
		if r.Choice, r.Best, ok = Choose(s.table); !ok {
			return s.nothing()
		}
		if r.Choice.Settings == r.Best.Settings {
			return nil
		}
		var choices, bests []Measurement
		r.Pairs = nil
		for range pairs {
			if !s.left(1) {
				break
			}
			choice, err := s.measure(ctx, r.Choice.Settings)
			if err != nil {
				return err
			}
			best, err := s.measure(ctx, r.Best.Settings)
			if err != nil {
				return err
			}
			choices, bests = append(choices, choice), append(bests, best)
			r.Pairs = append(r.Pairs, Pair{choice.Samples, best.Samples})
		}
		if len(choices) == 0 {
			r.Notes = append(r.Notes, "the budget was too small to measure choice and best again")
			return nil
		}
		r.Choice, r.Best = median(choices), median(bests)
		s.update(r.Choice)
		s.update(r.Best)
		if again, best, _ := Choose(s.table); again.Settings == r.Choice.Settings && best.Samples*(1-Slack) <= again.Samples {
			r.Best = best
			return nil
		}
		if round == rounds || !s.left(0.95) {
			r.Choice, r.Best, _ = Choose(s.table)
			r.Cut = true
			return nil
		}
	}
}

// nothing says why no setting has figures.
func (s *search) nothing() error {
	for _, m := range s.table {
		if m.Failed != "" {
			return errs.New(errs.Config, "no setting could be measured: %s", m.Failed)
		}
	}
	most := slices.Max(s.Space.Batch)
	e := errs.New(errs.Config, "no setting could be measured: too few batches came to measure a rate, with batches of %d", most)
	if s.Samples > 0 {
		e = errs.New(errs.Config, "no setting could be measured: too few batches came to measure a rate, with batches of %d and %d samples in all", most, s.Samples)
	}
	return e.Try("try smaller batches, or a larger budget")
}

func (s *search) update(m Measurement) {
	i := slices.IndexFunc(s.table, func(o Measurement) bool { return o.Settings == m.Settings })
	s.table[i] = m
}

func median(all []Measurement) Measurement {
	slices.SortFunc(all, func(a, b Measurement) int { return cmp.Compare(a.Samples, b.Samples) })
	return all[len(all)/2]
}

// Words are settings for people.
func (s Settings) Words(loader string) string {
	out := fmt.Sprintf("num_workers=%d", s.Workers)
	if s.Prefetch > 0 {
		out += fmt.Sprintf(", %s=%d", Keyword(loader), s.Prefetch)
	}
	if s.Pin {
		out += ", pin_memory=True"
	}
	return out
}

// Keyword is a loader's name for prefetch.
func Keyword(loader string) string {
	if loader == Own {
		return "prefetch"
	}
	return "prefetch_factor"
}
