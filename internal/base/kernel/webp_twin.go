package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"io"

	"golang.org/x/image/vp8"
	"golang.org/x/image/vp8l"
)

// webpTwin decodes in plain Go. Both bitstreams are specified to the bit; what
// is free is how chroma becomes as wide as luma, and image.YCbCr takes the
// nearest sample there. The twin interpolates as libwebp does.
func webpTwin(dst, stream []byte, i WebPInfo) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = FormatError(fmt.Sprintf("WebP: the decoder gave up: %v", cause))
		}
	}()
	if i.Lossless {
		m, err := vp8l.Decode(bytes.NewReader(stream))
		if err != nil {
			return webpTwinError(err)
		}
		n, ok := m.(*image.NRGBA)
		if !ok || n.Rect.Dx() != i.W || n.Rect.Dy() != i.H {
			return FormatError("WebP: the lossless picture is not what its header says")
		}
		for y := range i.H {
			row, out := n.Pix[y*n.Stride:], dst[y*i.W*3:]
			for x := range i.W {
				copy(out[3*x:3*x+3], row[4*x:4*x+3])
			}
		}
		return nil
	}
	d := vp8.NewDecoder()
	d.Init(bytes.NewReader(stream), len(stream))
	if _, err := d.DecodeFrameHeader(); err != nil {
		return webpTwinError(err)
	}
	m, err := d.DecodeFrame()
	if err != nil {
		return webpTwinError(err)
	}
	if m.Rect.Dx() != i.W || m.Rect.Dy() != i.H {
		return FormatError("WebP: the lossy picture is not what its header says")
	}
	webpRGB(dst, m)
	return nil
}

func webpTwinError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return FormatError("WebP: the compressed pixels end before the last row")
	}
	return FormatError(fmt.Sprintf("WebP: the compressed pixels are damaged: %v", err))
}

// webpRGB turns 4:2:0 into RGB. A chroma sample is at the centre of its 2 x 2
// pixels, so each pixel mixes the four samples around it, 9:3:3:1 by distance. At
// the left and right edge the outer two are missing, which leaves 3:1 of the
// column; at top and bottom a row is its own neighbour.
func webpRGB(dst []byte, m *image.YCbCr) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	chromaRows := (h + 1) / 2
	for y := range h {
		near := y / 2
		far := near - 1 + 2*(y&1)
		far = min(max(far, 0), chromaRows-1)
		luma := m.Y[y*m.YStride:][:w]
		u := chromaRow{m.Cb[near*m.CStride:], m.Cb[far*m.CStride:]}
		v := chromaRow{m.Cr[near*m.CStride:], m.Cr[far*m.CStride:]}
		out := dst[y*w*3:][:3*w]
		for x := range w {
			out[3*x], out[3*x+1], out[3*x+2] = webpColour(int(luma[x]), u.at(x, w), v.at(x, w))
		}
	}
}

// chromaRow is one plane's row nearest to a pixel, and the next nearest.
type chromaRow struct{ near, far []byte }

// at interpolates for pixel x of w. The mean of four and the mean of the
// diagonal are rounded in two steps; the order is part of the result.
func (r chromaRow) at(x, w int) int {
	i := x / 2
	j := i - 1 + 2*(x&1)
	if j < 0 || j >= (w+1)/2 {
		return (3*int(r.near[i]) + int(r.far[i]) + 2) >> 2
	}
	nearest, side, above, across := int(r.near[i]), int(r.near[j]), int(r.far[i]), int(r.far[j])
	sum := nearest + side + above + across + 8
	return ((sum+2*(side+above))>>3 + nearest) >> 1
}

// webpColour is BT.601 with video range luma in 14-bit fixed point: products keep
// their bits above the lowest 8, sums have 6 fraction bits.
func webpColour(y, u, v int) (r, g, b byte) {
	base := y * 19077 >> 8                      // 1.164
	return webpClip(base + v*26149>>8 - 14234), // 1.596 (v - 128)
		webpClip(base - u*6419>>8 - v*13320>>8 + 8708), // 0.392, 0.813
		webpClip(base + u*33050>>8 - 17685) // 2.017
}

func webpClip(v int) byte { return byte(min(max(v>>6, 0), 255)) }
