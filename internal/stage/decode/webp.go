package decode

import (
	"encoding/binary"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// webpImage is the first frame of a WebP container and its canvas. A still picture
// fills its canvas.
type webpImage struct {
	w, h   int
	x, y   int // of the frame
	frame  kernel.WebPInfo
	alpha  bool
	stream []byte // content of the frame's VP8 or VP8L chunk
}

// webpChunk splits the first chunk, padded to an even size, off b.
func webpChunk(b []byte) (kind, data, rest []byte, err error) {
	if len(b) < 8 {
		return nil, nil, nil, malformed(KindWebP, "the file ends before its first picture")
	}
	n := uint64(binary.LittleEndian.Uint32(b[4:]))
	if n > uint64(len(b)-8) {
		return nil, nil, nil, malformed(KindWebP, "chunk %s has %d bytes, %d remain", shown(b[:4]), n, len(b)-8)
	}
	return b[:4], b[8 : 8+n], b[min(uint64(len(b)), 8+n+n&1):], nil
}

// Flags of the extended header.
const (
	webpAnimated = 0x02
	webpAlpha    = 0x10
)

func webpHeader(b []byte) (p webpImage, err error) {
	size := uint64(binary.LittleEndian.Uint32(b[4:]))
	if size > uint64(len(b)-8) {
		return p, malformed(KindWebP, "the file is truncated: it has %d bytes, and its header declares %d", len(b), size+8)
	}
	if size < 4 {
		return p, malformed(KindWebP, "its header declares %d bytes", size+8)
	}
	body := b[12 : 8+size]
	kind, data, rest, err := webpChunk(body)
	if err != nil {
		return p, err
	}
	if string(kind) == "VP8 " || string(kind) == "VP8L" {
		if err := p.bitstream(body); err != nil {
			return p, err
		}
		p.w, p.h = p.frame.W, p.frame.H
		return p, nil
	}
	if string(kind) != "VP8X" || len(data) < 10 {
		return p, malformed(KindWebP, "its first chunk is %s of %d bytes", shown(kind), len(data))
	}
	p.w, p.h = webp24(data[4:])+1, webp24(data[7:])+1
	p.alpha = data[0]&webpAlpha != 0
	if err := checkSize(KindWebP, int64(p.w), int64(p.h)); err != nil {
		return p, err
	}
	if data[0]&webpAnimated != 0 {
		if rest, err = p.firstFrame(rest); err != nil {
			return p, err
		}
	}
	fw, fh := p.frame.W, p.frame.H // as declared by an animation's frame header
	if err := p.bitstream(rest); err != nil {
		return p, err
	}
	if data[0]&webpAnimated == 0 {
		fw, fh = p.w, p.h
	}
	if p.frame.W != fw || p.frame.H != fh {
		return p, malformed(KindWebP, "a picture of %d x %d, but its header declares %d x %d", p.frame.W, p.frame.H, fw, fh)
	}
	if p.x+fw > p.w || p.y+fh > p.h {
		return p, malformed(KindWebP, "the first frame is outside its canvas of %d x %d", p.w, p.h)
	}
	return p, nil
}

// scratch is the memory that decoding needs besides the pixels: the frame, if it is
// not the result itself, and what the decoder of a lossless frame keeps of it.
func (p webpImage) scratch() int64 {
	frame := int64(p.frame.W) * int64(p.frame.H)
	return 3*frame + kernel.WebPScratch(p.frame)
}

func webp24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// firstFrame finds an animation's first frame, reads its position and size, and
// returns the chunks inside it.
func (p *webpImage) firstFrame(rest []byte) (inside []byte, err error) {
	for {
		var kind, data []byte
		if kind, data, rest, err = webpChunk(rest); err != nil {
			return nil, err
		}
		if string(kind) != "ANMF" {
			continue
		}
		// 24 bits each: x / 2, y / 2, width - 1, height - 1, duration; flags.
		if len(data) < 16 {
			return nil, malformed(KindWebP, "a frame of %d bytes", len(data))
		}
		p.x, p.y = 2*webp24(data), 2*webp24(data[3:])
		p.frame.W, p.frame.H = webp24(data[6:])+1, webp24(data[9:])+1
		return data[16:], nil
	}
}

// bitstream finds the picture among chunks and reads its header. Alpha in a
// separate chunk (ALPH) is ignored, because it would be dropped anyway.
func (p *webpImage) bitstream(rest []byte) (err error) {
	for {
		var kind, data []byte
		if kind, data, rest, err = webpChunk(rest); err != nil {
			return err
		}
		lossless := string(kind) == "VP8L"
		if !lossless && string(kind) != "VP8 " {
			continue
		}
		if p.frame, err = kernel.WebPHeader(data); err != nil {
			return err
		}
		if p.frame.Lossless != lossless {
			return malformed(KindWebP, "chunk %s has the other kind of picture", shown(kind))
		}
		p.stream = data
		p.alpha = p.alpha || p.frame.Alpha
		return nil
	}
}

// webp decodes the first frame; where it does not cover the canvas, the result is
// black, which is the transparent colour of libwebp's animation decoder.
func (d *Decoder) webp(b []byte, gray bool) (canvas, error) {
	p, err := webpHeader(b)
	if err != nil {
		return canvas{}, err
	}
	covers := p.frame.W == p.w && p.frame.H == p.h
	if covers && !gray {
		c := d.canvas(p.w, p.h, false)
		return c, kernel.WebP(c.pix, p.stream)
	}
	n := p.frame.W * 3
	d.idx = sized(d.idx, n*p.frame.H)
	if err := kernel.WebP(d.idx, p.stream); err != nil {
		return canvas{}, err
	}
	c := d.canvas(p.w, p.h, gray)
	if !covers {
		clear(c.pix)
	}
	for y := range p.frame.H {
		c.colour(span{p.x, p.y + y, 1, p.frame.W}, d.idx[y*n:(y+1)*n], 3, 0, 1, 2)
	}
	return c, nil
}
