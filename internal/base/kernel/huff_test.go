//go:build cgo && stoker_libjpeg

package kernel

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testPhotos are those anywhere in STOKER_TEST_PHOTOS, or testdata's.
func testPhotos(t *testing.T) map[string][]byte {
	folder := os.Getenv("STOKER_TEST_PHOTOS")
	if folder == "" {
		return photos(t)
	}
	m := map[string][]byte{}
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if ext := strings.ToLower(filepath.Ext(path)); err == nil && (ext == ".jpg" || ext == ".jpeg") {
			m[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil || len(m) == 0 {
		t.Fatalf("no photographs in %s: %v", folder, err)
	}
	return m
}

// stocked makes a lane whose entropy decoder is libjpeg's.
func stocked() *Lane {
	l := newLane("base")
	l.engine.stock = true
	return l
}

// The entropy decoder gives what libjpeg's gives: of photographs, of every
// quality from a few coefficients to codes of 16 bits, with tables of all sorts.
func TestEntropyDecoder(t *testing.T) {
	stock := stocked()
	defer stock.Close()
	r := rand.New(rand.NewPCG(31, 32))
	pictures := testPhotos(t)
	for i := range 120 {
		o := encodeOptions{quality: 1 + r.IntN(100), restart: r.IntN(2) * r.IntN(40), optimize: i%2 == 0}
		o.subsampling = []string{"4:4:4", "4:2:0", "4:2:2", "4:1:1"}[i%4]
		p := smooth(r, 1+r.IntN(200), 1+r.IntN(150), 3)
		if i%5 == 0 {
			p = random(r, p.W, p.H, 3)
		}
		jpeg, err := encode(p, o)
		if err != nil {
			t.Fatal(err)
		}
		pictures[fmt.Sprintf("%d: %dx%d %+v", i, p.W, p.H, o)] = jpeg
	}
	each(t, func(t *testing.T, l *Lane) {
		if l.target == "go" {
			return
		}
		r := rand.New(rand.NewPCG(33, 34))
		for name, jpeg := range pictures {
			j := Job{JPEG: jpeg}
			if d := diff(run(t, l, j), run(t, stock, j)); d != "" {
				t.Fatalf("%s: %s", name, d)
			}
			h, _ := ReadHeader(jpeg)
			x, y, w, hh := box(r, h.W, h.H)
			j.Steps = []Step{{Op: OpCrop, X: x, Y: y, W: w, H: hh}}
			if d := diff(run(t, l, j), run(t, stock, j)); d != "" {
				t.Fatalf("%s: %+v: %s", name, j.Steps, d)
			}
		}
	})
}

// Of damaged files it is stricter than libjpeg's; where both go through, they agree.
func TestEntropyDecoderOnDamage(t *testing.T) {
	want := newReference()
	defer want.Close()
	l := NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(41, 42))
	both, refused, missed := 0, 0, 0
	for name, jpeg := range samples(t) {
		h, err := readHeader(jpeg)
		if err != nil {
			t.Fatal(err)
		}
		for range 400 {
			bad := append([]byte{}, jpeg...)
			for range 1 + r.IntN(3) {
				bad[h.scan+r.IntN(len(bad)-h.scan-2)] = byte(r.Uint32())
			}
			a := Job{JPEG: bad, Dst: make([]byte, 3*h.W*h.H)}
			b := Job{JPEG: bad, Dst: make([]byte, 3*h.W*h.H)}
			ea, eb := l.Run(&a), want.of(bad).Run(&b)
			switch {
			case ea == nil && eb == nil:
				both++
				if d := diff(a.Dst, b.Dst); d != "" {
					t.Fatalf("%s: %s", name, d)
				}
			case ea != nil:
				refused++
			default:
				missed++
				t.Logf("%s: only libjpeg's notices: %v", name, eb)
			}
		}
	}
	t.Logf("%d files decoded by both, %d refused, %d refused by libjpeg's only", both, refused, missed)
	if missed > both/50 {
		t.Errorf("%d damaged files pass that libjpeg refuses", missed)
	}
}
