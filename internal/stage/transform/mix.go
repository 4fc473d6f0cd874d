package transform

import (
	"fmt"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// Mix is a compiled batch transform: MixUp, CutMix, or a RandomChoice of these. Each row of
// a batch is mixed with the row before it, and the first with the last, as torchvision
// does by rolling the batch by one. A Mix chooses; the pixels are the loader's work. It is
// immutable.
type Mix struct {
	Classes int    // num_classes; 0: labels are probabilities already
	Labels  string // name of the field of the labels; "": the usual one

	random bool // a RandomChoice
	ops    []mixOp
}

// mixOp is MixUp or CutMix.
type mixOp struct {
	cut   bool
	alpha float64
	p     float64 // its share in a RandomChoice
}

const mixUp, cutMix, randomChoice = "MixUp", "CutMix", "RandomChoice"

func (o *mixOp) name() string {
	if o.cut {
		return cutMix
	}
	return mixUp
}

// CompileMix reads the batch transform of a Spec:
//
//	{"op": "MixUp", "alpha": 0.2, "num_classes": 1000}
//	{"op": "CutMix", "alpha": 1, "num_classes": 1000, "labels": "label"}
//	{"op": "RandomChoice", "transforms": [MIXUP, CUTMIX], "p": [0.5, 0.5]}
//
// Names, arguments, defaults and refusals are torchvision's. labels, the name of a field,
// stands for labels_getter. An error names every problem.
func CompileMix(op Op) (*Mix, error) {
	m := &Mix{random: op.Name == randomChoice}
	var problems []problem
	note := func(where string, found ...problem) {
		for _, p := range found {
			p.where = where
			problems = append(problems, p)
		}
	}
	if !m.random {
		note("batch_transform ("+op.Name+")", m.one(op, 1)...)
		return m, report(problems)
	}
	a := &arguments{op: op}
	a.checkNames([]string{"transforms", "p"})
	inner := a.nested()
	a.checkSome(inner)
	weights := a.weights(len(inner))
	note("batch_transform (RandomChoice)", a.problems...)
	for i, op := range inner {
		weight := 0.0
		if i < len(weights) {
			weight = weights[i]
		}
		note(fmt.Sprintf("batch_transform: transform %d of %d in RandomChoice (%s)", i+1, len(inner), op.Name), m.one(op, weight)...)
	}
	if err := report(problems); err != nil {
		return nil, err
	}
	return m, nil
}

// total is the sum of p, about 1.
func (m *Mix) total() (sum float64) {
	for i := range m.ops {
		sum += m.ops[i].p
	}
	return sum
}

// one adds MixUp or CutMix.
func (m *Mix) one(op Op, weight float64) []problem {
	if op.Name != mixUp && op.Name != cutMix {
		hint := "batches are mixed by MixUp, CutMix, or a RandomChoice of these; other transforms belong to a field" + later
		if near := errs.Nearest(op.Name, []string{mixUp, cutMix, randomChoice}); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return []problem{*problemf(hint, "%q is not a transform of batches", op.Name)}
	}
	a := &arguments{op: op}
	a.checkNames([]string{"alpha", "num_classes", "labels"})
	o := mixOp{cut: op.Name == cutMix, alpha: a.alpha(), p: weight}
	classes := 0
	if n := a.wholes("num_classes", "a positive whole number", 1, mostClasses); len(n) == 1 {
		classes = n[0]
	}
	labels := a.name("labels")
	if len(m.ops) > 0 && (classes != m.Classes || labels != m.Labels) {
		a.wrong("give all the same num_classes and labels", "the transforms of a RandomChoice must make the same labels")
	}
	m.ops, m.Classes, m.Labels = append(m.ops, o), classes, labels
	return a.problems
}

// mostClasses bounds num_classes; a row of labels is then at most 64 MiB.
const mostClasses = 1 << 24

// Needs reports whether the pictures have to be floats: whether MixUp may be chosen.
func (m *Mix) Needs() bool { return slices.ContainsFunc(m.ops, func(o mixOp) bool { return !o.cut }) }

// Canon is the text that a pipeline's digest is computed from: equal work, equal text. It
// is part of saved states and may never change. The field of the labels is the caller's.
func (m *Mix) Canon() string {
	b := fmt.Appendf(nil, "mix %d", m.Classes)
	for _, o := range m.ops {
		b = fmt.Appendf(b, " %s %x", o.name(), math.Float64bits(o.alpha))
		if m.random {
			b = fmt.Appendf(b, " %x", math.Float64bits(o.p))
		}
	}
	return string(b)
}

// Mixed is what a Mix has chosen for one batch, whatever its size.
type Mixed struct {
	Number int     // of the transform in a RandomChoice
	Cut    bool    // CutMix
	Lambda float64 // as drawn: the share of the row itself
	X, Y   float64 // for CutMix: the centre of the box, as shares of width and height, below 1
}

// wordMix separates the randomness of mixing from that of augmentation.
const wordMix = 1<<63 + 2

// Choose returns the choice for a batch; first is the key of its first place
// (rng.Sample). With k for first.With(wordMix):
//
//   - RandomChoice takes the first transform whose running sum of p is above
//     k.Float64(0) times their total.
//   - Transform n draws with k.With(n): X is Float64(0), Y Float64(1), and lambda comes
//     from the draws 2, 3, ... (see beta).
//
// testdata/mixes.json locks it, and it may never change.
func (m *Mix) Choose(first rng.Key) Mixed {
	k := first.With(wordMix)
	var out Mixed
	if m.random {
		out.Number = m.pick(k.Float64(0))
	}
	o := &m.ops[out.Number]
	k = k.With(uint64(out.Number))
	out.Cut, out.Lambda = o.cut, beta(k, 2, o.alpha)
	if o.cut {
		out.X, out.Y = k.Float64(0), k.Float64(1)
	}
	return out
}

// pick is the number of the transform at point u of [0, 1).
func (m *Mix) pick(u float64) int {
	at, sum, last := u*m.total(), 0.0, 0
	for i, o := range m.ops {
		if sum += o.p; at < sum {
			return i
		}
		if o.p > 0 {
			last = i
		}
	}
	return last
}

// betaTries bounds the tries of beta. Each ends with a probability of at least 1/2.
const betaTries = 128

// beta draws from the law Beta(alpha, alpha), with draws from number n on.
//
//   - alpha = 1: draw n itself.
//   - alpha < 1 (Jöhnk 1964): try t takes u and v from the draws n+2t and n+2t+1, x =
//     u^(1/alpha) and y = v^(1/alpha), and is accepted if x + y <= 1; the result is
//     x/(x+y). Both are kept as logarithms, for small alphas.
//   - alpha > 1 (Ulrich 1984, in Devroye's polar form): try t takes u in (0, 1] and v in
//     [-1, 1) from the same draws, and is accepted if s = u^2 + v^2 <= 1; the result is
//     1/2 + u v/s sqrt(1 - s^(2/(2 alpha - 1))).
//
// u is 1 - Float64, which is never zero. Arithmetic is as in draw.go.
func beta(k rng.Key, n uint64, alpha float64) float64 {
	if alpha == 1 {
		return k.Float64(n)
	}
	for t := uint64(0); t < betaTries; t++ {
		u, v := 1-float64(k.Float64(n+2*t)), 1-float64(k.Float64(n+2*t+1))
		if alpha < 1 {
			x, y := log(u)/alpha, log(v)/alpha
			top := max(x, y)
			x, y = expDown(x-top), expDown(y-top)
			if top+log(x+y) <= 0 {
				return x / (x + y)
			}
			continue
		}
		v = 2*v - 1
		s := float64(u*u) + float64(v*v)
		if s > 1 {
			continue
		}
		spread := math.Sqrt(1 - expDown(log(s)*2/(2*alpha-1)))
		return 0.5 + float64(float64(u*v)/s*spread)
	}
	return 0.5
}

// expDown is exp for x up to 0, also far below.
func expDown(x float64) float64 {
	if x < -700 {
		return 0
	}
	return exp(x)
}

// Box is the region of a picture of w x h pixels that CutMix takes from the row before,
// [x1, x2) and [y1, y2), and the share of the picture that stays: torchvision's formulas.
func (m Mixed) Box(w, h int) (x1, y1, x2, y2 int, lambda float64) {
	r := 0.5 * math.Sqrt(1-m.Lambda)
	halfW, halfH := int(r*float64(w)), int(r*float64(h))
	x, y := int(m.X*float64(w)), int(m.Y*float64(h))
	x1, y1 = max(x-halfW, 0), max(y-halfH, 0)
	x2, y2 = min(x+halfW, w), min(y+halfH, h)
	return x1, y1, x2, y2, 1 - float64((x2-x1)*(y2-y1))/float64(w*h)
}

// Explain lists a choice, as Program.Explain does, for pictures of w x h pixels; 0: they
// are not known.
//
//	{"op": "RandomChoice", "chosen": 1}
//	{"op": "MixUp", "lam": 0.3}
//	{"op": "CutMix", "lam": 0.75, "left": 10, "top": 0, "right": 122, "bottom": 112}
//
// lam is the share of the row itself in its label. Where the size of the pictures is not
// known, CutMix has what was drawn: {"drawn": 0.7, "x": 0.31, "y": 0.9}.
func (m *Mix) Explain(c Mixed, w, h int) []Choice {
	var out []Choice
	if m.random {
		out = append(out, Choice{randomChoice, []Value{{"chosen", c.Number}}})
	}
	switch {
	case !c.Cut:
		return append(out, Choice{mixUp, []Value{{"lam", c.Lambda}}})
	case w == 0 || h == 0:
		return append(out, Choice{cutMix, []Value{{"drawn", c.Lambda}, {"x", c.X}, {"y", c.Y}}})
	}
	x1, y1, x2, y2, lambda := c.Box(w, h)
	return append(out, Choice{cutMix, []Value{{"lam", lambda}, {"left", x1}, {"top", y1}, {"right", x2}, {"bottom", y2}}})
}
