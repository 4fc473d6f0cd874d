//go:build !cgo || !stoker_libjpeg

package kernel

import (
	"bytes"
	"image"
	"image/jpeg"
)

// HasLibjpeg reports whether libjpeg-turbo is built in, by the build tag stoker_libjpeg.
// Without it, the standard library encodes all pictures, and decodes those that the
// kernel does not.
const HasLibjpeg = false

func libjpegVersion() string { return "" }

func encode(p Pixels, o encodeOptions) ([]byte, error) {
	if _, _, err := o.check(&p); err != nil {
		return nil, err
	}
	if o.restart != 0 || o.progressive || o.optimize || o.separate || o.arithmetic || o.rgb || o.ycck || o.hs > 0 || p.C == 4 || p.C == 3 && o.subsampling != "4:2:0" {
		return nil, UnsupportedError("the kernel without libjpeg-turbo encodes grey and 4:2:0 only, without restart markers")
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
