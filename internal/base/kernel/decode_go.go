package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
)

// maxScans bounds the walks over a picture that a file of few bytes can cause;
// jpeg.c has the same limit, and another for large pictures.
const maxScans = 300

// decodeGo decodes a whole JPEG by the standard library: to one channel where
// it has one component, else to RGB. It differs from libjpeg by the rounding
// of the DCT: at most 3.
func decodeGo(b []byte, h *header) (Pixels, error) {
	if h.arithmetic {
		return Pixels{}, UnsupportedError("an arithmetic-coded JPEG (the kernel without C does not decode it)")
	}
	if n := bytes.Count(b[h.scan:], []byte{0xff, 0xda}); n > maxScans {
		return Pixels{}, FormatError(fmt.Sprintf("%d scans for %d x %d pixels", n+1, h.W, h.H))
	}
	img, err := jpeg.Decode(bytes.NewReader(b))
	if err != nil {
		var u jpeg.UnsupportedError
		switch {
		case errors.As(err, &u):
			return Pixels{}, UnsupportedError(err.Error())
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
			return Pixels{}, FormatError("the data end within the picture")
		}
		return Pixels{}, FormatError(err.Error())
	}
	if s := img.Bounds().Size(); s.X != h.W || s.Y != h.H {
		return Pixels{}, FormatError("two headers that contradict each other")
	}
	switch m := img.(type) {
	case *image.Gray:
		return fromGray(m), nil
	case *image.YCbCr:
		return fromYCbCr(m), nil
	case *image.RGBA:
		return fromRGBA(m), nil
	case *image.CMYK:
		return fromCMYK(m), nil
	}
	return Pixels{}, UnsupportedError(fmt.Sprintf("a JPEG that decodes to %T", img))
}

func fromGray(m *image.Gray) Pixels {
	s := m.Bounds().Size()
	p := newPixels(s.X, s.Y, 1)
	for y := range s.Y {
		copy(p.row(y), m.Pix[y*m.Stride:])
	}
	return p
}

func fromRGBA(m *image.RGBA) Pixels {
	s := m.Bounds().Size()
	p := newPixels(s.X, s.Y, 3)
	for y := range s.Y {
		row := p.row(y)
		for x := range s.X {
			copy(row[3*x:3*x+3], m.Pix[y*m.Stride+4*x:])
		}
	}
	return p
}

// fromCMYK is Pillow's convert("RGB"). The standard library has already turned
// Adobe's inverted ink back into ink.
func fromCMYK(m *image.CMYK) Pixels {
	s := m.Bounds().Size()
	p := newPixels(s.X, s.Y, 3)
	for y := range s.Y {
		row := p.row(y)
		for x := range s.X {
			in := m.Pix[y*m.Stride+4*x:]
			k := 255 - uint32(in[3])
			for c := range 3 {
				t := uint32(in[c])*k + 128
				row[3*x+c] = uint8(k - (t>>8+t)>>8)
			}
		}
	}
	return p
}
