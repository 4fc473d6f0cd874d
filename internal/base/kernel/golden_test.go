package kernel

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// golden is one case of testdata/golden.json, which golden.py makes.
type golden struct {
	Photo, File string
	Raw         [3]int // width, height, channels
	Box         [4]int
	Size        [2]int
	Nearest     bool
	Gray        bool
	At, N       int
}

func rawPixels(w, h, c int) Pixels {
	p := newPixels(w, h, c)
	for i := range p.Pix {
		p.Pix[i] = byte(uint32(i) * 2654435761 >> 13)
	}
	return p
}

// What torchvision v2 and Pillow give, on every target: without a difference,
// except where a JPEG is left to the standard library.
func TestGoldens(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/golden.bin")
	if err != nil {
		t.Fatal(err)
	}
	var cases []golden
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, l *Lane) {
		for _, g := range cases {
			j := g.job(t)
			tolerance := 0
			if _, taken := readFrame(j.JPEG); j.JPEG != nil && !taken && !byLibjpeg(l) {
				tolerance = 3
				if g.File == "ycck.jpg" {
					tolerance = 15 // the standard library repeats its chroma
				}
			}
			got, want := run(t, l, j), data[g.At:g.At+g.N]
			if len(got) != len(want) {
				t.Fatalf("%+v: %d bytes, want %d", g, len(got), len(want))
			}
			for i := range got {
				if d := int(got[i]) - int(want[i]); d > tolerance || -d > tolerance {
					t.Errorf("%+v: %s", g, diff(got, want))
					break
				}
			}
		}
	})
}

func (g *golden) job(t *testing.T) (j Job) {
	t.Helper()
	var err error
	switch {
	case g.Photo != "":
		j.JPEG, err = os.ReadFile(filepath.Join("../../../testdata/photos", g.Photo))
		b := g.Box
		j.Steps = append(j.Steps, Step{Op: OpCrop, X: b[0], Y: b[1], W: b[2], H: b[3]})
	case g.File != "":
		j.JPEG, err = os.ReadFile(filepath.Join("testdata", g.File))
		j.Gray = g.Gray
	default:
		j.Src = rawPixels(g.Raw[0], g.Raw[1], g.Raw[2])
	}
	if err != nil {
		t.Fatal(err)
	}
	if g.Size[0] > 0 {
		s := Step{Op: OpResize, W: g.Size[0], H: g.Size[1]}
		if g.Nearest {
			s.Filter = Nearest
		}
		j.Steps = append(j.Steps, s)
	}
	return j
}
