package transform

import (
	"github.com/stoker-data/stoker/internal/base/kernel"
)

// warp is the choice of a warp, done to the whole picture by a chain of its own.
func (r *replay) warp(s said) error {
	var w run
	w.chain.Reset(r.p.W, r.p.H, r.p.C)
	n := func(name string) float64 { return s[name].(float64) }
	switch s.op() {
	case "RandomRotation":
		o := warper{filter: kernel.Bilinear, fill: fill{v: [3]float64{90, 90, 90}}, filled: true}
		if err := o.rotate(&w, n("angle"), n("angle") != 180, nil); err != nil {
			return err
		}
	case "RandomAffine":
		o := warper{filter: kernel.Nearest}
		o.affine(&w, affinity{
			angle: n("angle"), shift: point{n("translate_x"), n("translate_y")},
			scale: n("scale"), shear: point{n("shear_x"), n("shear_y")},
		})
	case "RandomPerspective":
		o := warper{filter: kernel.Bilinear, filled: true}
		var end [4]point
		for i, corner := range []string{"top_left", "top_right", "bottom_right", "bottom_left"} {
			end[i] = point{n(corner + "_x"), n(corner + "_y")}
		}
		if start := w.at().corners(); start != end {
			o.perspective(&w, start, end)
		}
	}
	at := w.at()
	q := kernel.Pixels{Pix: make([]byte, at.w*at.h*at.c), W: at.w, H: at.h, C: at.c}
	if err := r.lane.Run(&kernel.Job{Src: r.p, Steps: w.chain.Steps(), Dst: q.Pix}); err != nil {
		return err
	}
	r.p = q
	return nil
}
