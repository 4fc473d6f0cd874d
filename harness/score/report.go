package score

import (
	"fmt"
	"io"
	"slices"
)

// Result is what a scoring found, with all of its seeds.
type Result struct {
	Schema   int       `json:"schema"`
	Seeds    []uint64  `json:"seeds"`
	Counts   []Counts  `json:"counts"` // of each seed
	Median   Counts    `json:"median"`
	Missed   []string  `json:"missed"` // aims that were not reached
	Outcomes []Outcome `json:"outcomes"`
}

// Counts are sums over the scenarios of one seed.
type Counts struct {
	Ill     int `json:"ill"`
	Right   int `json:"right"`
	Void    int `json:"void"`
	Failed  int `json:"failed"` // could not be run, or the doctor had no answer
	Healthy int `json:"healthy"`
	Alarms  int `json:"alarms"`
	Near    int `json:"near"`
	NearBig int `json:"near_above_3x"`
	Planted int `json:"planted"` // known mistakes, by name
	Found   int `json:"found"`
	Loud    int `json:"loud"` // healthy runs in which mistakes were found
}

// The aims.
const (
	wantIll, wantHealthy  = 44, 11
	wantRight             = 42
	wantNear, wantNearBig = 32, 10
	wantPlanted           = 18
)

func count(outcomes []Outcome) (c Counts) {
	one := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	found := map[string]bool{}
	for _, o := range outcomes {
		c.Failed += one(o.Error != "")
		if o.Finds != "" {
			found[o.Finds] = found[o.Finds] || o.Found
		}
		if o.Label == "" {
			continue
		}
		if o.Healthy {
			c.Healthy, c.Alarms, c.Loud = c.Healthy+1, c.Alarms+one(o.Alarm), c.Loud+one(len(o.Findings) > 0)
			continue
		}
		c.Ill++
		c.Right += one(o.Right)
		c.Void += one(o.Void)
		c.Near += one(o.Near)
		c.NearBig += one(o.Near && o.Gain >= 3)
	}
	for _, ok := range found {
		c.Planted, c.Found = c.Planted+1, c.Found+one(ok)
	}
	return c
}

// Sum holds outcomes against the aims.
func Sum(outcomes []Outcome) Result {
	r := Result{Schema: 1, Outcomes: outcomes, Missed: []string{}}
	of := map[uint64][]Outcome{}
	for _, o := range outcomes {
		if of[o.Seed] == nil {
			r.Seeds = append(r.Seeds, o.Seed)
		}
		of[o.Seed] = append(of[o.Seed], o)
	}
	for _, seed := range r.Seeds {
		r.Counts = append(r.Counts, count(of[seed]))
	}
	mid := func(get func(Counts) int) int {
		var v []int
		for _, c := range r.Counts {
			v = append(v, get(c))
		}
		if len(v) == 0 {
			return 0
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	r.Median = Counts{
		Ill: mid(func(c Counts) int { return c.Ill }), Right: mid(func(c Counts) int { return c.Right }),
		Void: mid(func(c Counts) int { return c.Void }), Failed: mid(func(c Counts) int { return c.Failed }),
		Healthy: mid(func(c Counts) int { return c.Healthy }), Alarms: mid(func(c Counts) int { return c.Alarms }),
		Near: mid(func(c Counts) int { return c.Near }), NearBig: mid(func(c Counts) int { return c.NearBig }),
		Planted: mid(func(c Counts) int { return c.Planted }), Found: mid(func(c Counts) int { return c.Found }), Loud: mid(func(c Counts) int { return c.Loud }),
	}
	m := r.Median
	for _, aim := range []struct {
		met  bool
		says string
	}{
		{m.Ill == wantIll && m.Healthy == wantHealthy, fmt.Sprintf("%d ill and %d healthy scenarios were run, of %d and %d", m.Ill, m.Healthy, wantIll, wantHealthy)},
		{m.Right >= wantRight, fmt.Sprintf("%d verdicts are right, and %d should be", m.Right, wantRight)},
		{m.Alarms == 0, fmt.Sprintf("%d healthy runs were called ill", m.Alarms)},
		{m.Near >= wantNear, fmt.Sprintf("%d predictions are within %.0f %%, and %d should be", m.Near, 100*near, wantNear)},
		{m.Found == wantPlanted, fmt.Sprintf("%d of %d known mistakes were found, and %d should be", m.Found, m.Planted, wantPlanted)},
		{m.Loud == 0, fmt.Sprintf("mistakes were found in %d healthy runs", m.Loud)},
		{m.NearBig >= wantNearBig, fmt.Sprintf("%d of these are of gains above 3x, and %d should be", m.NearBig, wantNearBig)},
	} {
		if !aim.met {
			r.Missed = append(r.Missed, aim.says)
		}
	}
	return r
}

// WriteSums writes the sums, and which aims were missed.
func (r Result) WriteSums(w io.Writer) error {
	p := &printer{w: w}
	m := r.Median
	p.f("\n%d of %d verdicts right, %d of %d healthy runs called ill, %d predictions within %.0f %% (%d above 3x); %d of %d mistakes found, and some in %d healthy runs; %d void, %d failed",
		m.Right, m.Ill, m.Alarms, m.Healthy, m.Near, 100*near, m.NearBig, m.Found, m.Planted, m.Loud, m.Void, m.Failed)
	if len(r.Seeds) > 1 {
		p.f(" (medians of %d seeds)", len(r.Seeds))
	}
	p.f("\n")
	for _, miss := range r.Missed {
		p.f("missed: %s\n", miss)
	}
	return p.err
}

// Line is an outcome as two lines of the table.
func (o Outcome) Line() string {
	mark := "ok"
	switch {
	case o.Error != "":
		mark = "FAILED"
	case o.Void:
		mark = "void"
	case o.Verdict == "": // the doctor was not asked
		mark = "-"
	case o.Healthy && o.Alarm:
		mark = "ALARM"
	case o.Label != "" && !o.Right:
		mark = "WRONG"
	case o.Finds != "" && !o.Found:
		mark = "MISSED"
	}
	said := o.Verdict
	if o.VerdictOf != "" {
		said += " " + o.VerdictOf
	}
	s := fmt.Sprintf("%-6s  %-5s  %s (%.2f): %s", mark, o.Kind, o.Scenario, o.Strength, o.Label)
	if o.Of != "" {
		s += " " + o.Of
	}
	if o.Finds != "" {
		s += fmt.Sprintf(" [%s]", o.Finds)
	}
	s += "\n        "
	if o.Error != "" {
		return s + o.Error + "\n"
	}
	if said != "" {
		s += "said: " + said + "; "
	}
	if o.Gain > 0 {
		s += fmt.Sprintf("gained %.2fx (%.1f to %.1f batches/s)", o.Gain, o.Sick, o.Well)
	}
	if o.Predicted > 0 {
		s += fmt.Sprintf(", predicted %.2fx", o.Predicted)
	}
	if len(o.Findings) > 0 {
		s += fmt.Sprintf("; findings %q", o.Findings)
	}
	return s + "\n"
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, a ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, a...)
	}
}
