//go:build !cgo

package kernel

import (
	"bytes"
	"image"
	"image/jpeg"
)

// haveC says that libjpeg encodes.
const haveC = false

func encode(p Pixels, o encodeOptions) ([]byte, error) {
	if _, _, err := o.check(&p); err != nil {
		return nil, err
	}
	if o.restart != 0 || o.progressive || o.optimize || o.separate || o.arithmetic || o.rgb || o.ycck || o.hs > 0 || p.C == 4 || p.C == 3 && o.subsampling != "4:2:0" {
		return nil, UnsupportedError("the kernel without C encodes grey and 4:2:0 only, without restart markers")
	}
	var img image.Image
	if p.C == 1 {
		img = &image.Gray{Pix: p.Pix, Stride: p.W, Rect: image.Rect(0, 0, p.W, p.H)}
	} else {
		m := image.NewRGBA(image.Rect(0, 0, p.W, p.H))
		for i := range p.W * p.H {
			copy(m.Pix[4*i:], p.Pix[3*i:3*i+3])
			m.Pix[4*i+3] = 255
		}
		img = m
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: o.quality}); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
