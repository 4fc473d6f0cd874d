//go:build cgo

package kernel

import "fmt"

type rect struct{ x, y, w, h int }

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
	out          rect // pad: the window lies at x, y of w x h; x, y may be negative
}

// maxPass is STK_MAX_PASS.
const maxPass = 16

// planner folds steps into passes. What may be folded is what leaves every
// pixel as it would be, one step after the other: crops move into the window,
// so that nothing outside of it is made; flips move past crops and pads, but
// never past a resampling, which is not symmetric to the last bit; grey moves
// past everything but bilinear.
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
				q.out.x = q.out.w - q.out.x - q.win.w
			}
			q.postH = !q.postH
		case OpFlipV:
			q := &p.pass[p.n]
			if q.pad {
				q.out.y = q.out.h - q.out.y - q.win.h
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
	if q.pad {
		q.out = rect{q.out.x - r.x, q.out.y - r.y, r.w, r.h}
		p.trim()
		return
	}
	q.cut(r)
}

// cut narrows the window to r, given as seen after the flips.
func (q *pass) cut(r rect) {
	if q.postH {
		r.x = q.win.w - r.x - r.w
	}
	if q.postV {
		r.y = q.win.h - r.y - r.h
	}
	q.win = rect{q.win.x + r.x, q.win.y + r.y, r.w, r.h}
	if !q.resample {
		q.box = q.win
	}
}

// trim drops a pad that has been cropped away, and what a constant pad's
// picture no longer shows.
func (p *planner) trim() {
	q := &p.pass[p.n]
	x0, y0 := max(0, -q.out.x), max(0, -q.out.y)
	x1, y1 := min(q.win.w, q.out.w-q.out.x), min(q.win.h, q.out.h-q.out.y)
	if x1 <= x0 || y1 <= y0 {
		if q.mode == PadConstant {
			// Only fill is left: one pixel, placed where it does not show.
			q.cut(rect{0, 0, 1, 1})
			q.out.x, q.out.y = q.out.w, q.out.h
		}
		return
	}
	covered := x1-x0 == q.out.w && y1-y0 == q.out.h
	if q.mode != PadConstant && !covered {
		return
	}
	q.cut(rect{x0, y0, x1 - x0, y1 - y0})
	q.out.x, q.out.y = q.out.x+x0, q.out.y+y0
	if covered {
		q.pad = false
	}
}

func (p *planner) resize(s *Step) error {
	if s.W == p.w && s.H == p.h {
		return nil
	}
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
	if s.W == p.w && s.H == p.h {
		return nil
	}
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
	if c == p.c && c == 1 {
		return
	}
	q := &p.pass[p.n]
	if p.c == 3 {
		y := luma(q.fill[0], q.fill[1], q.fill[2])
		q.fill = [3]uint8{y, y, y}
	} else {
		q.fill[1], q.fill[2] = q.fill[0], q.fill[0]
	}
	q.grayPost, q.cOut, p.c = c, c, c
}
