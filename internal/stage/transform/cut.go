package transform

import (
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// Cut cuts the program of a picture before its operation n, counted as by Steps:
// before gives the picture at that point, as bytes and HWC; after is the rest, and
// reads what before gave as a portable pixmap. Together they give the bytes of the
// whole program, for the same key.
//
// Both halves may depend on one operation. If a conversion to floats is before the
// cut, before takes it into account, because a fill after it is written in floats,
// but delivers bytes, and after converts. A RandomApply that is cut is in both, and
// chooses the same in both.
func (p *Program) Cut(n int) (before, after *Program) {
	in := p.at
	if n < len(p.steps) {
		in = p.steps[n].in
	}
	first, second := *p, *p
	first.steps, second.steps = halves(p.steps, n)
	first.parts, second.parts = reduces(first.steps), reduces(second.steps)
	first.dtype, first.chw, first.shown, first.undone = mem.Uint8, false, "hwc", true
	first.at = known{c: in.c, tone: plain()}
	first.digest = first.fingerprint()
	second.kind, second.says = &picture{gray: in.c == 1}, nil
	return &first, &second
}

// halves are the steps on both sides of step n.
func halves(steps []step, n int) (a, b []step) {
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		switch {
		case s.span > 0:
			ha, hb := halves(steps[i+1:i+1+s.span], n-i-1)
			a, b = holding(a, s, ha), holding(b, s, hb)
			i += s.span
		case i >= n:
			b = append(b, s)
		default:
			a = append(a, s)
			if s.cost == converts {
				b = append(b, s)
			}
		}
	}
	return a, b
}

// holding appends a RandomApply with the operations that are left in it.
func holding(to []step, head step, within []step) []step {
	if len(within) == 0 {
		return to
	}
	head.span = len(within)
	return append(append(to, head), within...)
}

// Steps is the number of operations of the program: RandomApply counts, and so does
// each operation in it.
func (p *Program) Steps() int { return len(p.steps) }

// Settled is how many operations, from the first on, give the same bytes in every
// epoch, with the channels that are decoded: a cache may keep their result. ok is
// false for programs that do not decode pictures.
func (p *Program) Settled() (n int, ok bool) {
	k, ok := p.kind.(*picture)
	if !ok || k.stored != (size{}) {
		return 0, false
	}
	for n < len(p.steps) && p.steps[n].settled {
		n++
	}
	return n, true
}

// output is how the kernel writes a picture of this tone.
func (p *Program) output(t *tone) kernel.Output {
	if p.undone {
		return kernel.Output{}
	}
	return t.output(p.chw)
}
