package tune

import (
	"fmt"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/tool/show"
)

// The plot: throughput (left axis) and busy cores (right axis) over workers, with
// the choice and the limit for choices. Both drawings, SVG and PNG, are made from
// one list of shapes. Lengths are in pixels.
const (
	plotWidth, plotHeight     = 800, 480
	left, right, top, bottom  = 86, 70, 78, 58
	blue, orange, grey, faint = "#1f5fa8", "#c8641e", "#55595f", "#d9dce1"
	ink, paper, accent        = "#22262b", "#ffffff", "#1a7f4b"
)

type point struct{ x, y float64 }

// shape is a line through points, or a disc, or text, of one colour.
type shape struct {
	points []point
	width  float64 // of a line; the radius of a disc
	dashed bool
	disc   bool
	text   string
	anchor anchor
	color  string
}

// anchor is the position of a text relative to its point.
type anchor int

const (
	start anchor = iota
	middle
	end
)

// curve is the best measurement of every number of workers, for the chosen batch
// size and share.
func (r *Report) curve() (out []Measurement) {
	for _, m := range r.Table {
		if m.Failed != "" || m.Batch != r.Choice.Batch || m.Share != r.Choice.Share {
			continue
		}
		i := slices.IndexFunc(out, func(o Measurement) bool { return o.Workers == m.Workers })
		switch {
		case i < 0:
			out = append(out, m)
		case m.Settings == r.Choice.Settings || out[i].Settings != r.Choice.Settings && m.Samples > out[i].Samples:
			out[i] = m
		}
	}
	slices.SortFunc(out, func(a, b Measurement) int { return a.Workers - b.Workers })
	return out
}

// axis is a scale from 0 to a round number above most, with about ticks ticks.
func axis(most float64, ticks int) (upto, step float64) {
	if most <= 0 || math.IsNaN(most) || math.IsInf(most, 0) {
		return 1, 0.5
	}
	raw := most / float64(ticks)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, f := range []float64{1, 2, 5, 10} {
		if step = f * unit; step >= raw {
			break
		}
	}
	return step * math.Ceil(most*1.02/step), step
}

// shapes is the plot.
func (r *Report) shapes() (all []shape) {
	curve := r.curve()
	if len(curve) == 0 {
		return nil
	}
	line := func(color string, width float64, dashed bool, p ...point) {
		all = append(all, shape{points: p, color: color, width: width, dashed: dashed})
	}
	text := func(p point, a anchor, color, s string) {
		all = append(all, shape{points: []point{p}, anchor: a, color: color, text: s})
	}
	var most, busy float64
	for _, m := range curve {
		most, busy = max(most, m.Samples), max(busy, m.Cores)
	}
	most = max(most, r.Best.Samples)
	upto, step := axis(most, 5)
	cores, coreStep := axis(max(busy, 1), 4)
	lo, hi := float64(curve[0].Workers), float64(curve[len(curve)-1].Workers)
	if lo == hi {
		lo, hi = lo-1, hi+1
	}
	inner := float64(plotWidth - left - right - 40)
	x := func(w int) float64 { return left + 20 + (float64(w)-lo)/(hi-lo)*inner }
	height := float64(plotHeight - top - bottom)
	y := func(v float64) float64 { return plotHeight - bottom - v/upto*height }
	c := func(v float64) float64 { return plotHeight - bottom - v/cores*height }

	text(point{left, 26}, start, ink, shorten(r.Name, 60)+": throughput and CPU over workers")
	text(point{left - 10, 58}, middle, blue, "samples/s")
	text(point{plotWidth - right + 6, 58}, middle, orange, "cores busy")
	for v := 0.0; v <= upto+step/2; v += step {
		line(faint, 1, false, point{left, y(v)}, point{plotWidth - right, y(v)})
		text(point{left - 8, y(v) + 5}, end, grey, show.Number(v))
	}
	for v := 0.0; v <= cores+coreStep/2; v += coreStep {
		text(point{plotWidth - right + 8, c(v) + 5}, start, grey, fmt.Sprintf("%g", math.Round(v*100)/100))
	}
	line(grey, 1.2, false, point{left, plotHeight - bottom}, point{plotWidth - right, plotHeight - bottom})
	free := -1.0
	for _, m := range curve {
		line(grey, 1.2, false, point{x(m.Workers), plotHeight - bottom}, point{x(m.Workers), plotHeight - bottom + 5})
		if x(m.Workers) > free {
			text(point{x(m.Workers), plotHeight - bottom + 21}, middle, grey, fmt.Sprint(m.Workers))
			free = x(m.Workers) + 22
		}
	}
	text(point{left + 20 + inner/2, plotHeight - 14}, middle, ink, "workers")

	limit := y(r.Best.Samples * (1 - Slack))
	line(accent, 1.2, true, point{left, limit}, point{plotWidth - right, limit})
	if note := fmt.Sprintf("%.0f %% of the best", 100*(1-Slack)); x(r.Choice.Workers) > plotWidth/2 { // away from the choice
		text(point{left + 4, limit - 6}, start, accent, note)
	} else {
		text(point{plotWidth - right - 4, limit - 6}, end, accent, note)
	}
	var throughput, cpu []point
	for _, m := range curve {
		throughput = append(throughput, point{x(m.Workers), y(m.Samples)})
		cpu = append(cpu, point{x(m.Workers), c(m.Cores)})
	}
	line(orange, 2, true, cpu...)
	line(blue, 2.6, false, throughput...)
	for i := range curve {
		all = append(all, shape{points: cpu[i : i+1], disc: true, width: 3, color: orange}, shape{points: throughput[i : i+1], disc: true, width: 4.2, color: blue})
	}
	chosen := point{x(r.Choice.Workers), y(r.Choice.Samples)}
	all = append(all, shape{points: []point{chosen}, disc: true, width: 8, color: accent}, shape{points: []point{chosen}, disc: true, width: 4.2, color: paper})
	text(point{left + 20 + inner/2, 58}, middle, accent, "chosen: "+r.words(r.Choice.Settings))
	return all
}

// shorten keeps the end of a long name, which tells more than its beginning.
func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return "..." + string(r[len(r)-most+3:])
	}
	return s
}
