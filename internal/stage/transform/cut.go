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
// but delivers bytes, and after converts. The same holds for the erasing of floats. What a
// container holds is not divided: a cut in it is made before it.
func (p *Program) Cut(n int) (before, after *Program) {
	n = p.outside(n)
	in := p.at
	if n < len(p.steps) {
		in = p.steps[n].in
	}
	first, second := *p, *p
	first.steps, second.steps = p.steps[:n:n], append(conversions(p.steps[:n]), p.steps[n:]...)
	own(second.steps)
	first.dtype, first.chw, first.shown, first.undone = mem.Uint8, false, "hwc", true
	first.at = known{c: in.c, tone: plain()}
	first.digest = first.fingerprint()
	second.kind, second.says = &picture{gray: in.c == 1}, nil
	return &first, &second
}

// outside is n, or the number of the outermost container that step n is in.
func (p *Program) outside(n int) int {
	for i := 0; i < n && i < len(p.steps); i += 1 + p.steps[i].span() {
		if n <= i+p.steps[i].span() {
			return i
		}
	}
	return n
}

// conversions are those of steps, what erases floats, and the containers that hold some.
func conversions(steps []step) (out []step) {
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		if s.cost == converts || s.erases && s.in.tone.float {
			out = append(out, s)
		}
		if len(s.holds) == 0 {
			continue
		}
		at := len(out)
		out = append(out, s)
		out[at].holds = nil
		for _, many := range s.holds {
			part := conversions(steps[i+1 : i+1+many])
			out = append(out, part...)
			out[at].holds = append(out[at].holds, len(part))
			i += many
		}
		if len(out) == at+1 {
			out = out[:at]
		}
	}
	return out
}

// Steps is the number of operations of the program: a container counts, and so does
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

// output is how the kernel writes the picture of a run.
func (p *Program) output(r *run) kernel.Output {
	if p.undone {
		return kernel.Output{}
	}
	out := r.tone.output(p.chw)
	out.Erased = r.boxes()
	return out
}
