package faults

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Campaign selects the runs.
type Campaign struct {
	Seeds  int  // of a random fault; others run once
	Long   bool // with the faults that take minutes
	AtOnce int  // runs; most of them wait
	// Only says whether a fault takes part; nil: all do.
	Only func(f Fault) bool
	// Told is called with each outcome, one at a time; may be nil.
	Told func(o Outcome)
}

// Count is the result of the runs of one fault, or of all.
type Count struct {
	Injected    int `json:"injected"`
	Met         int `json:"met"`
	Transparent int `json:"transparent"`
	Typed       int `json:"typed_errors"`
	Undetected  int `json:"undetected"` // wrong bytes that nothing could detect, as documented
	Wrong       int `json:"wrong"`
}

// Row is a fault in the report.
type Row struct {
	Name  string    `json:"fault"`
	Store Store     `json:"store"`
	Code  errs.Code `json:"code,omitempty"` // of the expected error
	Why   string    `json:"why_undetected,omitempty"`
	Count
	Seconds float64 `json:"longest_seconds"`
}

// Report is bench/results/faults.json.
type Report struct {
	All    Count `json:"all"`
	Faults []Row `json:"faults"`
}

// Run runs the campaign. Outcomes are in the order of the table.
func (c Campaign) Run(ctx context.Context, l *Lab) (Report, []Outcome) {
	type one struct {
		fault Fault
		row   int
		seed  uint64
	}
	var runs []one
	var report Report
	for _, f := range Table() {
		if f.Long && !c.Long || c.Only != nil && !c.Only(f) {
			continue
		}
		report.Faults = append(report.Faults, Row{Name: f.Name, Store: f.On, Code: f.Code, Why: f.Known})
		seeds := 1
		if f.Random {
			seeds = c.Seeds
		}
		for seed := range seeds {
			runs = append(runs, one{f, len(report.Faults) - 1, uint64(seed + 1)})
		}
	}
	all := make([]Outcome, len(runs))
	turn := make(chan struct{}, c.AtOnce)
	var wg sync.WaitGroup
	var mu sync.Mutex
	// The longest first: the others fill the time.
	order := make([]int, len(runs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return weight(runs[a].fault) - weight(runs[b].fault) })
	for _, i := range order {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			o := Do(ctx, l, runs[i].fault, runs[i].seed)
			mu.Lock()
			defer mu.Unlock()
			all[i] = o
			report.Faults[runs[i].row].add(o)
			report.All.count(o)
			if c.Told != nil {
				c.Told(o)
			}
		})
	}
	wg.Wait()
	return report, all
}

func weight(f Fault) int {
	switch {
	case f.Long:
		return 0
	case f.Deadline > 0 || f.During != nil:
		return 1
	}
	return 2
}

func (r *Row) add(o Outcome) {
	r.count(o)
	r.Seconds = max(r.Seconds, float64(o.Took.Milliseconds())/1000)
}

func (c *Count) count(o Outcome) {
	c.Injected++
	for _, it := range []struct {
		is bool
		n  *int
	}{{o.Met, &c.Met}, {o.Transparent, &c.Transparent}, {o.Typed != "", &c.Typed}, {o.Undetected, &c.Undetected}, {o.Wrong != "", &c.Wrong}} {
		if it.is {
			*it.n++
		}
	}
}

// Write writes the report.
func (r Report) Write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	return err
}
