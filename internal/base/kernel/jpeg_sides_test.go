//go:build cgo && stoker_libjpeg

package kernel

import (
	"encoding/binary"
	"fmt"
	mathbits "math/bits"
	"math/rand/v2"
	"testing"
)

// A scanWriter writes entropy-coded data by the standard's own tables (K.3 to K.6),
// of which it needs a few codes: pictures with sides that no encoder writes.
type scanWriter struct {
	out  []byte
	acc  uint64
	bits int
}

func (w *scanWriter) put(code uint64, n int) {
	w.acc, w.bits = w.acc<<n|code, w.bits+n
	for ; w.bits >= 8; w.bits -= 8 {
		b := byte(w.acc >> (w.bits - 8))
		if w.out = append(w.out, b); b == 0xff {
			w.out = append(w.out, 0)
		}
	}
}

// block writes a difference of DC and, with some luck, one small coefficient. full: instead the
// last one, whose bits are all ones, after which no end of block follows; not for chroma.
func (w *scanWriter) block(r *rand.Rand, chroma bool, diff int, full bool) {
	size := mathbits.Len(uint(max(diff, -diff)))
	dc := [2][12][2]uint64{ // code and its length, by size
		{{0b00, 2}, {0b010, 3}, {0b011, 3}, {0b100, 3}, {0b101, 3}, {0b110, 3}, {0xe, 4}, {0x1e, 5}, {0x3e, 6}, {0x7e, 7}, {0xfe, 8}, {0x1fe, 9}},
		{{0b00, 2}, {0b01, 2}, {0b10, 2}, {0b110, 3}, {0xe, 4}, {0x1e, 5}, {0x3e, 6}, {0x7e, 7}, {0xfe, 8}, {0x1fe, 9}, {0x3fe, 10}, {0x7fe, 11}},
	}
	ac, end := [2][2]uint64{{0b00, 2}, {0b01, 2}}, [2][2]uint64{{0b1010, 4}, {0b00, 2}} // 0/1 and end of block
	t := 0
	if chroma {
		t = 1
	}
	w.put(dc[t][size][0], int(dc[t][size][1]))
	if diff < 0 {
		diff += 1<<size - 1
	}
	w.put(uint64(diff), size)
	if full && !chroma {
		for range 3 {
			w.put(0x7f9, 11) // 15/0
		}
		w.put(0xfff4, 16) // 14/10
		w.put(0x3ff, 10)
		return
	}
	if r.IntN(3) == 0 {
		w.put(ac[t][0], int(ac[t][1]))
		w.put(uint64(r.IntN(2)), 1)
	}
	w.put(end[t][0], int(end[t][1]))
}

// giant makes a picture of a kind, of any size up to 65,535 a side.
func giant(t testing.TB, kind string, w, h, restart int) []byte {
	return scanned(t, kind, w, h, restart, func(r *rand.Rand, _, _ int) (int, bool) { return r.IntN(31) - 15, false })
}

// scanned makes a picture of which draw draws the next block of a component in an MCU: the
// difference of its DC, at most 2047, and whether it is full.
func scanned(t testing.TB, kind string, w, h, restart int, draw func(r *rand.Rand, mcu, component int) (diff int, full bool)) []byte {
	r := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	m := cutMarkers(t, encodeKind(t, r, kind, 16, 16, encodeOptions{quality: 75}))
	f := m.at(t, 0xc0)
	binary.BigEndian.PutUint16(m[f][5:], uint16(h))
	binary.BigEndian.PutUint16(m[f][7:], uint16(w))
	if restart > 0 {
		m = m.insert(f, segmentOf(0xdd, byte(restart>>8), byte(restart)))
	}
	mcuW, mcuH, luma, chroma := 8, 8, 1, 2
	switch kind {
	case "gray":
		chroma = 0
	case "4:2:2":
		mcuW, luma = 16, 2
	case "4:4:0":
		mcuH, luma = 16, 2
	case "4:2:0":
		mcuW, mcuH, luma = 16, 16, 4
	}
	var s scanWriter
	mcus := (w + mcuW - 1) / mcuW * ((h + mcuH - 1) / mcuH)
	for i := range mcus {
		if restart > 0 && i > 0 && i%restart == 0 {
			s.put(0x7f>>((s.bits+7)%8), 7-(s.bits+7)%8)
			s.out = append(s.out, 0xff, 0xd0+byte(i/restart-1)&7)
		}
		for b := range luma + chroma {
			diff, full := draw(r, i, max(0, b-luma+1))
			s.block(r, b >= luma, diff, full)
		}
	}
	s.put(0x7f, 7)
	sos := m.at(t, 0xda)
	head := m[sos][:2+int(binary.BigEndian.Uint16(m[sos][2:]))]
	return append(append(m[:sos].join(), append(append([]byte{}, head...), s.out...)...), 0xff, 0xd9)
}

// Sides go to 65,535, which no encoder here writes: wide and tall, thin pictures.
// libjpeg ends at 65,500; beyond it the twin is the measure.
func TestLongestSides(t *testing.T) {
	const most, stocks = 65535, 65500
	stock, twin := stocked(), newLane("go")
	defer stock.Close()
	for _, kind := range []string{"gray", "4:4:4", "4:2:0", "4:2:2", "4:4:0"} {
		for _, size := range [][2]int{{stocks, 3}, {most, 1}, {most, 19}, {most - 1, 2}, {7, stocks}, {1, most}, {21, most}, {2, most - 1}} {
			for _, restart := range []int{0, 37} {
				w, h := size[0], size[1]
				jpeg := giant(t, kind, w, h, restart)
				measure := twin
				if max(w, h) <= stocks {
					measure = stock
				}
				whole := Pixels{Pix: run(t, measure, Job{JPEG: jpeg}), W: w, H: h, C: 3}
				boxes := []Step{{W: w, H: h}, {X: w - 1, Y: h - 1, W: 1, H: 1}, {X: max(0, w-40), Y: max(0, h-40), W: min(w, 40), H: min(h, 40)}}
				r := rand.New(rand.NewPCG(uint64(w), uint64(h)))
				for range 4 {
					b := Step{W: min(w, 1+r.IntN(300)), H: min(h, 1+r.IntN(300))}
					b.X, b.Y = r.IntN(w-b.W+1), r.IntN(h-b.H+1)
					boxes = append(boxes, b)
				}
				for _, target := range targets()[1:] {
					l := newLane(target)
					for _, b := range boxes {
						b.Op = OpCrop
						got := run(named{t, boxed{kind, b}}, l, Job{JPEG: jpeg, Steps: []Step{b}})
						if d := diff(got, crop(whole, b.X, b.Y, b.W, b.H).Pix); d != "" {
							t.Errorf("%s: %s %dx%d restart %d: box %+v: %s", target, kind, w, h, restart, b, d)
						}
					}
					l.Close()
				}
			}
		}
	}
}

// boxed names a box of a picture.
type boxed struct {
	kind string
	box  Step
}

func (p boxed) String() string { return fmt.Sprintf("%s %+v", p.kind, p.box) }
