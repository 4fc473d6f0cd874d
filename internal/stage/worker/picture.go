package worker

import (
	"fmt"
	"math"
)

// pictureBytes is the size of a Picture in a frame.
const pictureBytes = 4*4 + 1 + 6*4

// mostPixels bounds a picture as the kernel does; its bytes fit into 31 bits.
const mostPixels = 1 << 29

// pictures reads which columns are pictures, of columns with these sizes.
func (r *reader) pictures(sizes []int64) []Picture {
	all := make([]Picture, r.count(pictureBytes))
	for i := range all {
		p := &all[i]
		p.Column, p.W, p.H, p.C, p.Planes = int(r.u32()), int(r.u32()), int(r.u32()), int(r.u32()), r.u8() != 0
		for _, three := range []*[3]float32{&p.Scale, &p.Bias} {
			for c := range three {
				three[c] = math.Float32frombits(r.u32())
			}
		}
		pixels := int64(p.W) * int64(p.H)
		if p.C != 1 && p.C != 3 || pixels <= 0 || pixels > mostPixels || p.Column >= len(sizes) || sizes[p.Column] != 4*pixels*int64(p.C) {
			r.err = fmt.Errorf("worker: a picture of %d x %d x %d in column %d of %d", p.H, p.W, p.C, p.Column, len(sizes))
		}
	}
	return all
}
