package kernel

// Steps that read a pixel's neighbours: each is a pass of its own over a whole picture, in
// memory. The twins are in this file and others of their names.

// whole reports whether the step is one of these.
func (o Op) whole() bool {
	return o == OpSharpness || o == OpBlur || o.warps() || o.summing()
}

// sharpen is torchvision's adjust_sharpness: the inner pixels are blended with the mean of
// their 3 x 3 neighbourhood, in which the pixel itself counts five times. Pictures of less
// than 3 x 3 pixels stay.
func sharpen(p Pixels, n float64) Pixels {
	q := newPixels(p.W, p.H, p.C)
	copy(q.Pix, p.Pix)
	if p.W < 3 || p.H < 3 {
		return q
	}
	f, rest := float32(n), float32(1-n)
	for y := 1; y < p.H-1; y++ {
		above, row, below, out := p.row(y-1), p.row(y), p.row(y+1), q.row(y)
		for i := p.C; i < len(row)-p.C; i++ {
			sum := 4 * int(row[i])
			for _, r := range [][]byte{above, row, below} {
				sum += int(r[i-p.C]) + int(r[i]) + int(r[i+p.C])
			}
			smooth := (2*sum + 13) / 26 // rounded; a 13th is never a half
			out[i] = clipped(float32(float32(row[i])*f) + float32(float32(smooth)*rest))
		}
	}
	return q
}
