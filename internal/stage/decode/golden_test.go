package decode

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// fixture is one file of testdata/files with what testdata/make.py says its
// pixels are.
type fixture struct {
	name string
	data []byte
	rgb  kernel.Pixels
}

func fixtures(t testing.TB) []fixture {
	t.Helper()
	names, err := filepath.Glob("testdata/files/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in testdata/files: run testdata/make.py (%v)", err)
	}
	var all []fixture
	for _, path := range names {
		name := filepath.Base(path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata/pixels", name+".ppm"))
		if err != nil {
			t.Fatal(err)
		}
		px := kernel.Pixels{C: 3}
		if _, err := fmt.Sscanf(string(want), "P6\n%d %d\n255\n", &px.W, &px.H); err != nil {
			t.Fatalf("%s.ppm: %v", name, err)
		}
		px.Pix = want[len(want)-px.W*px.H*3:]
		all = append(all, fixture{name, data, px})
	}
	return all
}

// same fails at the first pixel that differs.
func same(t *testing.T, got, want kernel.Pixels) {
	t.Helper()
	if got.W != want.W || got.H != want.H || got.C != want.C || len(got.Pix) != len(want.Pix) {
		t.Fatalf("got %d x %d x %d (%d bytes), want %d x %d x %d (%d)", got.W, got.H, got.C, len(got.Pix), want.W, want.H, want.C, len(want.Pix))
	}
	for i := 0; i < len(want.Pix); i += want.C {
		if g, w := got.Pix[i:i+want.C], want.Pix[i:i+want.C]; !bytes.Equal(g, w) {
			t.Fatalf("pixel (%d, %d): got %v, want %v", i/want.C%want.W, i/want.C/want.W, g, w)
		}
	}
}

func grayOf(p kernel.Pixels) kernel.Pixels {
	g := kernel.Pixels{W: p.W, H: p.H, C: 1, Pix: make([]byte, p.W*p.H)}
	for i := range g.Pix {
		g.Pix[i] = luma(p.Pix[3*i], p.Pix[3*i+1], p.Pix[3*i+2])
	}
	return g
}

func TestPixelsEqualPillow(t *testing.T) {
	d := NewDecoder() // one for all: what a picture leaves behind must not matter
	for _, f := range fixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			h, err := ReadHeader(f.data)
			if err != nil {
				t.Fatal(err)
			}
			if h.W != f.rgb.W || h.H != f.rgb.H {
				t.Errorf("header says %d x %d, the picture has %d x %d", h.W, h.H, f.rgb.W, f.rgb.H)
			}
			for range 2 {
				for i := range d.pix {
					d.pix[i] = 0xa5
				}
				got, err := d.Pixels(f.data, false)
				if err != nil {
					t.Fatal(err)
				}
				same(t, got, f.rgb)
				got, err = d.Pixels(f.data, true)
				if err != nil {
					t.Fatal(err)
				}
				same(t, got, grayOf(f.rgb))
			}
		})
	}
}

// named reports whether err is one of the two kinds that callers tell apart.
func named(err error) bool {
	var f kernel.FormatError
	var u kernel.UnsupportedError
	return errors.As(err, &f) || errors.As(err, &u)
}
