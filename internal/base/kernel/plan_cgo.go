//go:build cgo

package kernel

import "fmt"

// pass is the Go half of stk_pass: gray, box, mirror, resample, window,
// mirror, gray, pad. Without resample, the window is the box and only the
// mirrors after it are used.
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
	pad          bool
	mode         PadMode
	fill         [3]uint8
	out          rect // pad: the window is at x, y of w x h; x, y may be negative
}

// maxPass is STK_MAX_PASS.
const maxPass = 16

// planner lays steps out in passes, by the rules of chain.go: crops become part of
// the window, so that nothing outside of it is made, and flips mirror what they
// move in front of. What the order of a pass has no place for begins the next pass.
type planner struct {
	pass [maxPass]pass
	n    int // the pass under construction
	w, h int // the picture after the steps so far
	c    int
}

func (p *planner) jpeg(h *header, gray bool) {
	c := 3
	if h.Components == 1 {
		c = 1
	}
	p.raw(h.W, h.H, c)
	q := &p.pass[0]
	switch {
	case gray && c == 3:
		q.grayPre = true
		p.c = 1
	case !gray && c == 1:
		// Replicated last: one channel is resampled, not three.
		q.grayPost = 3
		p.c = 3
	}
	q.cOut = p.c
}

func (p *planner) raw(w, h, c int) {
	p.w, p.h, p.c = w, h, c
	all := rect{0, 0, w, h}
	p.pass[p.n] = pass{sw: w, sh: h, cIn: c, cOut: c, box: all, win: all}
}

// next begins a pass over what the current one makes.
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
		switch s.Op {
		case OpCrop:
			p.crop(rect{s.X, s.Y, s.W, s.H})
		case OpResize:
			err = p.resize(s)
		case OpPad:
			err = p.padTo(s)
		case OpFlipH:
			q := &p.pass[p.n]
			if q.pad {
				q.out.x = mirrored(q.out.x, q.win.w, q.out.w)
			}
			q.postH = !q.postH
		case OpFlipV:
			q := &p.pass[p.n]
			if q.pad {
				q.out.y = mirrored(q.out.y, q.win.h, q.out.h)
			}
			q.postV = !q.postV
		case OpGray:
			p.gray(s.C)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) crop(r rect) {
	q := &p.pass[p.n]
	p.w, p.h = r.w, r.h
	if q.pad && !q.cropPad(&r) {
		return
	}
	q.cut(r)
}

// cropPad crops the padded window to r, and makes r what that leaves of the window.
// It says false where the window has to stay as it is.
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

// cut narrows the window to r, given as seen after the flips.
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
	if q := &p.pass[p.n]; q.resample || q.pad {
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

func (p *planner) gray(c int) {
	q := &p.pass[p.n]
	if p.c == 3 {
		y := luma(q.fill[0], q.fill[1], q.fill[2])
		q.fill = [3]uint8{y, y, y}
	} else {
		q.fill[1], q.fill[2] = q.fill[0], q.fill[0]
	}
	q.grayPost, q.cOut, p.c = c, c, c
}
