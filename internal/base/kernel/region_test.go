//go:build cgo && stoker_libjpeg

package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// A region has the same bytes as that part of the whole picture as libjpeg alone
// decodes it, wherever it is.
func TestRegionIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l := NewLane()
	defer l.Close()
	sizes := [][2]int{{1, 1}, {7, 5}, {16, 16}, {17, 33}, {64, 48}, {97, 131}, {250, 187}, {333, 120}}
	boxes := 0
	for _, sub := range []string{"4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1", "gray", "cmyk", "ycck", "rgb"} {
		for _, restart := range []int{0, 1, 3, 50} {
			for _, kind := range []string{"sequential", "progressive", "separate", "arithmetic"} {
				for _, size := range sizes {
					o := encodeOptions{quality: 30 + r.IntN(70), subsampling: "4:4:4", restart: restart}
					o.progressive, o.separate, o.arithmetic = kind == "progressive", kind == "separate", kind == "arithmetic"
					c := 3
					switch sub {
					case "gray":
						c = 1
					case "cmyk":
						c = 4
					case "ycck":
						c, o.ycck, o.subsampling = 4, true, "4:2:0"
					case "rgb":
						o.rgb = true
					default:
						o.subsampling = sub
					}
					name := fmt.Sprintf("%s restart %d %s %dx%d", sub, restart, kind, size[0], size[1])
					jpeg, err := encode(smooth(r, size[0], size[1], c), o)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					l.engine.stock = true
					whole := Pixels{Pix: run(t, l, Job{JPEG: jpeg}), W: size[0], H: size[1], C: 3}
					l.engine.stock = false
					if d := diff(run(t, l, Job{JPEG: jpeg}), whole.Pix); d != "" {
						t.Fatalf("%s: not what libjpeg gives: %s", name, d)
					}
					for range 6 {
						x, y, w, h := box(r, size[0], size[1])
						got := run(t, l, Job{JPEG: jpeg, Steps: []Step{{Op: OpCrop, X: x, Y: y, W: w, H: h}}})
						if d := diff(got, crop(whole, x, y, w, h).Pix); d != "" {
							t.Fatalf("%s: box %d,%d %dx%d: %s", name, x, y, w, h, d)
						}
						boxes++
					}
				}
			}
		}
	}
	t.Logf("%d boxes", boxes)
}

// A grey picture may name any sampling factors: they mean nothing, since there
// is nothing to sample against, and its scan goes block by block.
func TestGreySamplingFactorsMeanNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	l := NewLane()
	defer l.Close()
	for _, restart := range []int{0, 3} {
		plain, err := encode(smooth(r, 97, 75, 1), encodeOptions{quality: 90, subsampling: "4:4:4", restart: restart})
		if err != nil {
			t.Fatal(err)
		}
		sof := bytes.Index(plain, []byte{0xff, 0xc0})
		for _, factor := range []byte{0x12, 0x13, 0x14, 0x21, 0x22, 0x31, 0x33, 0x41, 0x42, 0x44} {
			jpeg := bytes.Clone(plain)
			jpeg[sof+11] = factor
			l.engine.stock = true
			whole := Pixels{Pix: run(t, l, Job{JPEG: jpeg}), W: 97, H: 75, C: 3}
			l.engine.stock = false
			for range 30 {
				x, y, w, h := box(r, 97, 75)
				got := run(t, l, Job{JPEG: jpeg, Steps: []Step{{Op: OpCrop, X: x, Y: y, W: w, H: h}}})
				if d := diff(got, crop(whole, x, y, w, h).Pix); d != "" {
					t.Fatalf("factors %#x, restart %d: box %d,%d %dx%d: %s", factor, restart, x, y, w, h, d)
				}
			}
		}
	}
}
