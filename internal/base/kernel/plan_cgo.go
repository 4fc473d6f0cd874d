//go:build cgo

package kernel

import "fmt"

// pass is the Go half of stk_pass: gray, box, mirror, resample, window,
// mirror, gray, colours, pad. Without resample, the window is the box and only the
// mirrors after it are used. A step that reads the whole picture takes the place of all
// stages before the second gray.
type pass struct {
	sw, sh       int // the picture it reads
	cIn, cOut    int
	grayPre      bool
	grayPost     int
	box          rect
	resample     bool
	filter       Filter
	draft        bool
	rw, rh       int
	preH, preV   bool
	win          rect
	postH, postV bool
	whole        int // 1 and the number of the planner's step that reads the whole picture
	op, nop      int // the colours: nop of the planner's, from number op on
	needs        int // numbers over the result, for step needer of the planner
	needer       int
	erase        int // boxes that are erased last: nerase of the planner's steps, from number erase on
	nerase       int
	pad          bool
	mode         PadMode
	fill         [3]uint8
	out          rect // pad: the window is at x, y of w x h; x, y may be negative
}

// maxPass is STK_MAX_PASS.
const maxPass = 64

// planner arranges steps in passes, by the rules of chain.go: crops become part of the
// window, so that nothing outside it is made, and flips mirror what they move in front
// of. A step that has no position in the pass begins the next one.
type planner struct {
	pass [maxPass]pass
	n    int     // the pass under construction
	ops  []*Step // of all passes: colours, and steps that read the whole picture
	jpeg bool    // the first pass decodes
	w, h int     // the picture after the steps so far
	c    int
}

func (p *planner) decode(h *header, gray bool) {
	c := 3
	if h.Components == 1 {
		c = 1
	}
	p.raw(h.W, h.H, c)
	p.jpeg = true
	q := &p.pass[0]
	switch {
	case gray && c == 3:
		q.grayPre = true
		p.c = 1
	case !gray && c == 1:
		// Replicated last, so that one channel is resampled, not three.
		q.grayPost = 3
		p.c = 3
	}
	q.cOut = p.c
}

func (p *planner) raw(w, h, c int) {
	p.w, p.h, p.c = w, h, c
	p.pass[p.n] = fresh(w, h, c)
}

// fresh is a pass that copies.
func fresh(w, h, c int) pass {
	all := rect{0, 0, w, h}
	return pass{sw: w, sh: h, cIn: c, cOut: c, box: all, win: all}
}

// next begins a pass over the result of the current one.
func (p *planner) next() error {
	if p.n+1 == maxPass {
		return JobError(fmt.Sprintf("the steps need more than %d passes over the picture", maxPass))
	}
	p.n++
	p.raw(p.w, p.h, p.c)
	return nil
}

func (p *planner) fold(steps []Step) error {
	for i := range steps {
		s := &steps[i]
		if s.idle(size{p.w, p.h}, p.c) {
			continue
		}
		var err error
		if p.pass[p.n].nerase > 0 && s.Op != OpErase {
			if err = p.next(); err != nil {
				return err
			}
		}
		switch s.Op {
		case OpCrop:
			if err = p.apart(); err == nil {
				p.crop(rect{s.X, s.Y, s.W, s.H})
			}
		case OpResize:
			err = p.resize(s)
		case OpPad:
			err = p.padTo(s)
		case OpFlipH, OpFlipV:
			if err = p.apart(); err == nil {
				p.pass[p.n].flip(s.Op)
			}
		case OpGray:
			err = p.gray(s)
		case OpErase:
			p.erase(s)
		default:
			if s.Op.whole() {
				err = p.whole(s)
			} else {
				err = p.colour(s)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apart begins the next pass if this one has a step that reads the whole picture: such a step
// cannot crop or mirror its result.
func (p *planner) apart() error {
	if p.pass[p.n].whole != 0 {
		return p.next()
	}
	return nil
}

// whole begins a pass of a step that reads the whole picture.
func (p *planner) whole(s *Step) error {
	if q := &p.pass[p.n]; p.n == 0 && p.jpeg || *q != fresh(q.sw, q.sh, q.cIn) {
		if err := p.next(); err != nil {
			return err
		}
	}
	p.ops = append(p.ops, s)
	to := s.result(size{p.w, p.h})
	p.w, p.h = to.w, to.h
	q := &p.pass[p.n]
	q.whole, q.win = len(p.ops), rect{0, 0, to.w, to.h}
	return nil
}

// erase adds a box to those that the pass erases in its result, after everything else. Later
// steps are in the next pass.
func (p *planner) erase(s *Step) {
	q := &p.pass[p.n]
	if q.nerase == 0 {
		q.erase = len(p.ops)
	}
	p.ops = append(p.ops, s)
	q.nerase++
}

func (q *pass) flip(op Op) {
	if op == OpFlipH {
		if q.pad {
			q.out.x = mirrored(q.out.x, q.win.w, q.out.w)
		}
		q.postH = !q.postH
		return
	}
	if q.pad {
		q.out.y = mirrored(q.out.y, q.win.h, q.out.h)
	}
	q.postV = !q.postV
}

func (p *planner) crop(r rect) {
	q := &p.pass[p.n]
	p.w, p.h = r.w, r.h
	if q.pad && !q.cropPad(&r) {
		return
	}
	q.cut(r)
}

// cropPad crops the padded window to r, and sets r to the part of it in the window. It
// returns false if the window must stay as it is.
func (q *pass) cropPad(r *rect) bool {
	pad := Step{Op: OpPad, Mode: q.mode, X: q.out.x, Y: q.out.y, W: q.out.w, H: q.out.h}
	window := size{q.win.w, q.win.h}
	shown := rect{q.out.x - r.x, q.out.y - r.y, r.w, r.h}
	if pad.before(window, r) {
		q.out = rect{pad.X, pad.Y, pad.W, pad.H}
		q.pad = !pad.idle(size{r.w, r.h}, q.cOut)
		return true
	}
	q.out = shown
	if q.mode != PadConstant {
		return false
	}
	// Only fill is left: one pixel, placed where it does not show.
	q.out.x, q.out.y = q.out.w, q.out.h
	*r = rect{0, 0, 1, 1}
	return true
}

// cut narrows the window to r, given in coordinates after the flips.
func (q *pass) cut(r rect) {
	if q.postH {
		r.x = mirrored(r.x, r.w, q.win.w)
	}
	if q.postV {
		r.y = mirrored(r.y, r.h, q.win.h)
	}
	q.win = rect{q.win.x + r.x, q.win.y + r.y, r.w, r.h}
	if !q.resample {
		q.box = q.win
	}
}

func (p *planner) resize(s *Step) error {
	if q := &p.pass[p.n]; q.resample || q.pad || q.nop > 0 || q.whole != 0 {
		if err := p.next(); err != nil {
			return err
		}
	}
	q := &p.pass[p.n]
	if q.grayPost != 0 && q.cIn == 3 && !q.grayPre {
		q.grayPre = true
	}
	q.resample, q.filter, q.draft = true, s.Filter, s.Draft
	q.rw, q.rh = s.W, s.H
	q.preH, q.preV, q.postH, q.postV = q.postH, q.postV, false, false
	q.win = rect{0, 0, s.W, s.H}
	p.w, p.h = s.W, s.H
	return nil
}

func (p *planner) padTo(s *Step) error {
	if p.pass[p.n].pad {
		if err := p.next(); err != nil {
			return err
		}
	}
	q := &p.pass[p.n]
	q.pad, q.mode, q.fill = true, s.Mode, s.Fill
	q.out = rect{s.X, s.Y, s.W, s.H}
	p.w, p.h = s.W, s.H
	return nil
}

func (p *planner) gray(s *Step) error {
	if q := &p.pass[p.n]; q.nop > 0 {
		return p.colour(s)
	}
	q := &p.pass[p.n]
	if p.c == 3 {
		y := luma(q.fill[0], q.fill[1], q.fill[2])
		q.fill = [3]uint8{y, y, y}
	} else {
		q.fill[1], q.fill[2] = q.fill[0], q.fill[0]
	}
	q.grayPost, q.cOut, p.c = s.C, s.C, s.C
	return nil
}

// colour adds a step to the colours of the pass. A pass with a pad colours what is inside
// it, and one step needs numbers over all the pixels before it: both begin the next pass.
// The pass flips and crops before its colours, with the same result.
func (p *planner) colour(s *Step) error {
	if p.pass[p.n].pad {
		if err := p.next(); err != nil {
			return err
		}
	}
	if needs := s.Op.needs(); needs != 0 {
		p.pass[p.n].needs, p.pass[p.n].needer = needs, len(p.ops)
		if err := p.next(); err != nil {
			return err
		}
	}
	q := &p.pass[p.n]
	if q.nop == 0 {
		q.op = len(p.ops)
	}
	p.ops = append(p.ops, s)
	q.nop++
	if s.Op == OpGray {
		q.cOut, p.c = s.C, s.C
	}
	return nil
}
