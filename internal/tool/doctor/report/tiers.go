package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// column is one of a table of tiers: its head, its width, and what a tier has there;
// empty where it has nothing.
type column struct {
	head  string
	width int
	of    func(t evidence.Tier) string
}

var (
	byRate  = column{"samples/s", 12, func(t evidence.Tier) string { return known(t.Rate, show.Number) }}
	byBatch = column{"a batch", 12, func(t evidence.Tier) string { return known(t.Batch, brief) }}
	byMean  = column{"mean", 10, func(t evidence.Tier) string { return known(t.Mean, brief) }}
	byP99   = column{"p99", 10, func(t evidence.Tier) string { return known(t.P99, brief) }}
	byBytes = column{"a second", 14, func(t evidence.Tier) string { return known(t.Bytes, show.Bytes) }}
	bySize  = column{"bytes", 12, func(t evidence.Tier) string { return known(t.Size, show.Bytes) }}
)

// brief is seconds as ms shows them, with a digit more below ten microseconds: a
// number of a file of tokens takes less than one.
func brief(s float64) string {
	if s >= 0.05e-6 && s < 0.00000995 {
		return fmt.Sprintf("%.1f us", s*1e6)
	}
	return show.Seconds(s)
}

func known(f evidence.Figure, show func(float64) string) string {
	if !f.Known() {
		return ""
	}
	return show(f.Value)
}

// table is one group of tiers: what it is headed by, which figures it shows, and
// what is said below it.
type table struct {
	of      string
	title   string
	columns []column
	below   func(r Shown, tiers []evidence.Tier) []string
}

func (r Shown) tables() []table {
	timed := column{"timed", 8, func(t evidence.Tier) string { return known(t.Count, show.Number) }}
	pictures := column{"pictures", 10, func(t evidence.Tier) string { return known(t.Count, show.Number) }}
	gain := "possible gain, at full speed"
	if step := r.Evidence.PretendedStep(); step > 0 {
		gain = "possible gain, with steps of " + show.Seconds(step)
	}
	held := column{"", 20, func(t evidence.Tier) string {
		switch {
		case t.Limit.Known() && t.Limit.Value > 0:
			if share := t.Size.Value / t.Limit.Value; share >= 0.01 {
				return show.Percent(share) + " of " + show.Bytes(t.Limit.Value)
			}
			return "of " + show.Bytes(t.Limit.Value)
		case t.Count.Known():
			return "in " + show.Things(int(t.Count.Value), "slot")
		}
		return ""
	}}
	one := r.oneLane()
	times := column{"", 10, func(t evidence.Tier) string {
		if !t.Rate.Known() || one <= 0 {
			return ""
		}
		return fmt.Sprintf("%.1f x", t.Rate.Value/one)
	}}
	return []table{
		{evidence.OfGain, gain, []column{byRate, byBatch}, Shown.gained},
		{evidence.OfSample, "cost of a sample", []column{byMean, byP99, timed}, nil},
		{evidence.OfJPEG, "JPEGs by decoder", []column{pictures}, Shown.decodedElsewhere},
		{evidence.OfLanes, "effect of lanes, at full speed", []column{byRate, byBatch, times}, Shown.fed},
		{evidence.OfStorage, "speed of the storage", []column{byBytes, byMean, byP99, timed}, nil},
		{evidence.OfMemory, "memory in use", []column{bySize, held}, nil},
	}
}

// WriteTiers writes what was measured of a dataset beside the verdict; nothing where
// that was not asked for.
func (r Shown) WriteTiers(w io.Writer) error {
	p := &page{w: w}
	for i, t := range r.tables() {
		var tiers []evidence.Tier
		for _, tier := range r.Evidence.Tiers {
			if tier.Of == t.of {
				tiers = append(tiers, tier)
			}
		}
		if len(tiers) == 0 {
			continue
		}
		if i > 0 {
			p.line("")
		}
		t.write(p, tiers)
		if t.below != nil {
			for _, text := range t.below(r, tiers) {
				p.wrap("  ", text)
			}
		}
	}
	return p.err
}

// names is the columns of a tier's name.
const names = 26

// write writes a table. Its source is in its title where all rows have one.
func (t table) write(p *page, tiers []evidence.Tier) {
	source, same := "", true
	for _, tier := range tiers {
		if s := tier.Source(); s != "" {
			same = same && (source == "" || source == s)
			source = s
		}
	}
	title := t.title
	if same && source != "" {
		title += " [" + source + "]"
	}
	p.wrap("", title)
	head := strings.Repeat(" ", names)
	for _, c := range t.columns {
		head += fmt.Sprintf("%*s", c.width, c.head)
	}
	p.line("%s", head)
	for _, tier := range tiers {
		name := tier.Name
		if utf8.RuneCountInString(name) > names-3 {
			name = string([]rune(name)[:names-4]) + "."
		}
		row := fmt.Sprintf("  %-*s", names-2, name)
		if tier.Cut != "" {
			p.wrap(row+" ", "not measured: "+tier.Cut)
			continue
		}
		for _, c := range t.columns {
			row += fmt.Sprintf("%*s", c.width, c.of(tier))
		}
		if !same {
			row += "  [" + tier.Source() + "]"
		}
		p.line("%s", row)
	}
}

func (r Shown) oneLane() float64 { return r.Evidence.Tier(evidence.OfLanes, "1 lane").Rate.Value }

// gained is what batches that cost nothing would bring.
func (r Shown) gained(tiers []evidence.Tier) []string {
	none, real := r.Evidence.Tier(evidence.OfGain, evidence.OutOfNothing), r.Evidence.Tier(evidence.OfGain, evidence.TheDataset)
	if !none.Rate.Known() || !real.Rate.Known() || real.Rate.Value <= 0 {
		return nil
	}
	if r.Evidence.PretendedStep() == 0 {
		from := "--step-ms"
		if r.Evidence.Subject.Kind == evidence.OfLoader {
			from = "a step"
		}
		return []string{fmt.Sprintf("Without "+from+" there is no loop to speed up: this loader keeps up with steps of %s per batch or longer.", show.Seconds(real.Batch.Value))}
	}
	gain := none.Rate.Value / real.Rate.Value
	if gain < judge.WorthGaining {
		return []string{"There is nothing to gain: batches that cost nothing are as fast."}
	}
	text := fmt.Sprintf("No loader could gain more than %.2f x here", gain)
	if v := judge.Measure(r.Evidence); r.Verdict.Name == judge.NotDataBound && r.Evidence.Subject.Kind != evidence.OfLoader && gain > v.Unwaited+0.05 {
		text += fmt.Sprintf("; %.2f x of it is waiting in __next__%s", v.Unwaited, judge.Elsewhere(r.Evidence))
	}
	return []string{text + "."}
}

// fed is the shortest step that the loader keeps up with, as it is set.
func (r Shown) fed(tiers []evidence.Tier) []string {
	var best evidence.Tier
	for _, t := range tiers {
		if t.Count.Known() && int(t.Count.Value) == r.Evidence.Worst().Settings.Workers {
			best = t
		}
	}
	if r.Evidence.PretendedStep() == 0 || !best.Batch.Known() {
		return nil
	}
	return []string{fmt.Sprintf("With %s it keeps up with steps of %s per batch or longer.", best.Name, show.Seconds(best.Batch.Value))}
}

// decodedElsewhere says what to do about JPEGs that stoker's own decoder does not take.
func (r Shown) decodedElsewhere(tiers []evidence.Tier) []string {
	all, others := 0.0, 0.0
	var kinds []string
	for _, t := range tiers {
		if all += t.Count.Value; t.Name != evidence.OwnDecoder {
			others += t.Count.Value
			kinds = append(kinds, t.Name)
		}
	}
	text := fmt.Sprintf("%s of the JPEGs are for another decoder, which is slower, above all where crops are taken: %s. ", show.Percent(others/all), strings.Join(kinds, "; "))
	if r.Evidence.Tier(evidence.OfJPEG, evidence.Progressive).Count.Known() {
		return []string{text + "`stoker pack --jpeg index --progressive convert` makes progressive ones sequential, without loss."}
	}
	return []string{text + "`stoker pack --jpeg index` makes one scan of several, without loss; others have to be encoded again."}
}
