package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
)

// maxScans limits the passes over a picture that a small file can cause; libjpeg.c has
// the same limit, and another for large pictures.
const maxScans = 300

// decodeGo decodes a whole JPEG: to one channel if it has one component, otherwise to
// RGB. The standard library decodes what the plain decoder does not, mainly progressive
// pictures and CMYK. Its DCT rounds differently from libjpeg's: samples differ by at
// most 3.
func decodeGo(j *Job, h *header) (Pixels, Way, error) {
	if f, taken := readFrame(j.JPEG); taken {
		f.strict, f.entries = j.Strict, j.entries()
		p, err := f.decode(0)
		return p, WayOwn, err
	}
	p, err := decodeStandard(j.JPEG, h)
	return p, WayGo, err
}

// checkScans checks that every component is in a scan, with its quantisation table
// before the first scan. The standard library does not: it returns grey, or
// whatever zeros give. It also refuses scans of one component with several blocks
// per MCU and restart markers: these come after a number of blocks, but the
// standard library counts MCUs.
func checkScans(b []byte) error {
	var tables [16]bool
	table, scanned, blocks := map[byte]byte{}, map[byte]bool{}, map[byte]byte{}
	interval := 0
	for at := 2; ; {
		m, next, ok := behindData(b, at)
		if !ok || m == mEOI || next+2 > len(b) {
			break
		}
		if at = next + max(word(b[next:]), 2); at > len(b) {
			break
		}
		seg := b[next+2 : at]
		switch {
		case m == mDQT:
			for len(seg) > 0 {
				tables[seg[0]&15] = true
				seg = seg[min(len(seg), 1+blockSize*(1+int(seg[0]>>4&1))):]
			}
		case isSOF(m) && len(seg) > 6:
			for c := seg[6:]; len(c) >= 3; c = c[3:] {
				table[c[0]], blocks[c[0]] = c[2], (c[1]>>4)*(c[1]&15)
			}
		case m == mDRI && len(seg) == 2:
			interval = word(seg)
		case m == mSOS && len(seg) > 1:
			if seg[0] == 1 && len(table) > 1 && blocks[seg[1]] > 1 && interval > 0 {
				return UnsupportedError("a JPEG of several scans with restart markers, which only the C kernel with libjpeg-turbo decodes: " +
					"build stoker with a C compiler and libjpeg-turbo (Debian and Ubuntu: libjpeg-dev)")
			}
			for c := seg[1:min(len(seg), 1+2*int(seg[0]))]; len(c) >= 2; c = c[2:] {
				if t := table[c[0]]; t > 15 || !tables[t] && !scanned[c[0]] {
					return FormatError(fmt.Sprintf("quantisation table %d, which component %d uses, is missing", t, c[0]))
				}
				scanned[c[0]] = true
			}
		}
	}
	if n := len(table) - len(scanned); n > 0 {
		return FormatError(fmt.Sprintf("the JPEG ends before all of its scans: %d of %d components have no scan", n, len(table)))
	}
	return nil
}

// behindData finds the marker that ends the entropy-coded data at at, past restart
// markers.
func behindData(b []byte, at int) (m byte, next int, ok bool) {
	for ; at+1 < len(b); at++ {
		if m = b[at+1]; b[at] == 0xff && m != 0 && m != 0xff && (m < mRST0 || m > mRST0+7) {
			return m, at + 2, true
		}
	}
	return 0, at, false
}

// decodeStandard decodes a JPEG with the standard library.
func decodeStandard(b []byte, h *header) (Pixels, error) {
	if h.Arithmetic && libjpegVersion() != "" {
		return Pixels{}, UnsupportedError("an arithmetic-coded JPEG, which the Go kernel does not decode; " + kernelEnv + " selects that kernel: unset it")
	}
	if h.Arithmetic {
		return Pixels{}, UnsupportedError("an arithmetic-coded JPEG, which only the C kernel with libjpeg-turbo decodes: build stoker with a C compiler and libjpeg-turbo (Debian and Ubuntu: libjpeg-dev)")
	}
	if n := bytes.Count(b[h.scan:], []byte{0xff, 0xda}); n > maxScans {
		return Pixels{}, FormatError(fmt.Sprintf("%d scans for %d x %d pixels", n+1, h.W, h.H))
	}
	if err := checkScans(b); err != nil {
		return Pixels{}, err
	}
	img, err := jpeg.Decode(bytes.NewReader(b))
	if err != nil {
		var u jpeg.UnsupportedError
		switch {
		case errors.As(err, &u):
			return Pixels{}, UnsupportedError(err.Error() + " (from Go's standard library, which decodes such files in a build without libjpeg-turbo)")
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
			return Pixels{}, FormatError("the data ends inside the picture")
		}
		return Pixels{}, FormatError(err.Error())
	}
	if s := img.Bounds().Size(); s.X != h.W || s.Y != h.H {
		return Pixels{}, FormatError("two headers contradict each other")
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

// fromYCbCr converts samples as the plain decoder does.
func fromYCbCr(m *image.YCbCr) Pixels {
	s := m.Bounds().Size()
	p := newPixels(s.X, s.Y, 3)
	hs, vs := 1, 1
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		hs = 2
	case image.YCbCrSubsampleRatio420:
		hs, vs = 2, 2
	case image.YCbCrSubsampleRatio440:
		vs = 2
	case image.YCbCrSubsampleRatio411:
		hs = 4
	case image.YCbCrSubsampleRatio410:
		hs, vs = 4, 2
	}
	w, h := ceilDiv(s.X, hs), ceilDiv(s.Y, vs)
	up := [2]upsampler{newUpsampler(m.Cb, m.CStride, w, h, hs, vs), newUpsampler(m.Cr, m.CStride, w, h, hs, vs)}
	cb, cr := make([]byte, s.X), make([]byte, s.X)
	for y := range s.Y {
		up[0].row(cb, y)
		up[1].row(cr, y)
		yccToRGB(p.row(y), m.Y[y*m.YStride:y*m.YStride+s.X], cb, cr)
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
