package kernel

import (
	"bytes"
	"fmt"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// photos are the pictures of testdata/photos.
func photos(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("../../../testdata/photos/*.jpg")
	if err != nil || len(names) == 0 {
		t.Fatalf("no photos: %v", err)
	}
	m := map[string][]byte{}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		m[filepath.Base(n)] = b
	}
	return m
}

func TestReadHeader(t *testing.T) {
	for name, b := range photos(t) {
		want, err := jpeg.DecodeConfig(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		h, err := ReadHeader(b)
		if err != nil || h.W != want.Width || h.H != want.Height || h.Components != 3 {
			t.Errorf("%s: %+v, %v; want %d x %d", name, h, err, want.Width, want.Height)
		}
	}
}

// The environment's target is taken where the machine has it, and else the best below.
func TestTarget(t *testing.T) {
	have := targets()
	for want, least := range map[string]string{"go": "go", "": have[len(have)-1], "avx512": have[len(have)-1]} {
		t.Setenv(kernelEnv, want)
		if got := Target(); got != least {
			t.Errorf("%s=%q gives %s, not %s", kernelEnv, want, got, least)
		}
	}
	for _, name := range have {
		t.Setenv(kernelEnv, name)
		if got := Target(); got != name {
			t.Errorf("%s=%s gives %s", kernelEnv, name, got)
		}
	}
}

// failing is what testing and rapid have in common.
type failing interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// run runs a job on one target and returns the result.
func run(t failing, l *Lane, j Job) []byte {
	t.Helper()
	w, h, c := j.Src.W, j.Src.H, j.Src.C
	if j.JPEG != nil {
		hd, err := ReadHeader(j.JPEG)
		if err != nil {
			t.Fatal(err)
		}
		w, h, c = hd.W, hd.H, 3
		if j.Gray {
			c = 1
		}
	}
	w, h, c, err := ResultSize(j.Steps, w, h, c)
	if err != nil {
		t.Fatal(err)
	}
	j.Dst = make([]byte, w*h*c*j.Out.size())
	if err := l.Run(&j); err != nil {
		t.Fatalf("%s: %v", l.target, err)
	}
	return j.Dst
}

func random(r *rand.Rand, w, h, c int) Pixels {
	p := newPixels(w, h, c)
	for i := range p.Pix {
		p.Pix[i] = byte(r.Uint32())
	}
	return p
}

// smooth is a picture that compresses like a photograph, different everywhere.
func smooth(r *rand.Rand, w, h, c int) Pixels {
	p := newPixels(w, h, c)
	fx, fy := 5+r.IntN(40), 5+r.IntN(40)
	for y := range h {
		for x := range w {
			for k := range c {
				p.Pix[(y*w+x)*c+k] = byte((x*fx*(k+1)/7+y*fy/(k+2))&0x7f + (x*y>>4)&0x3f + r.IntN(24))
			}
		}
	}
	return p
}

// tested are the targets of this machine, the twin first, and what the base is on others.
func tested() []string {
	all := slices.Clone(targets())
	if len(all) > 1 {
		all = append(all, portable)
	}
	return all
}

// each runs f for every target of this machine, the twin included.
func each(t *testing.T, f func(t *testing.T, l *Lane)) {
	for _, name := range targets() {
		t.Run(name, func(t *testing.T) {
			l := newLane(name)
			defer l.Close()
			f(t, l)
		})
	}
}

// byLibjpeg says that l leaves JPEGs to libjpeg, and not to the standard library,
// which is not as strict.
func byLibjpeg(l *Lane) bool { return HasLibjpeg && l.target != "go" }

func diff(a, b []byte) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d bytes, want %d", len(a), len(b))
	}
	if bytes.Equal(a, b) {
		return ""
	}
	n, most, first := 0, 0, -1
	for i := range a {
		if d := int(a[i]) - int(b[i]); d != 0 {
			if first < 0 {
				first = i
			}
			n++
			most = max(most, d, -d)
		}
	}
	return fmt.Sprintf("%d of %d bytes differ, by at most %d, first at %d: %d, want %d", n, len(a), most, first, a[first], b[first])
}

func box(r *rand.Rand, w, h int) (x, y, bw, bh int) {
	bw, bh = 1+r.IntN(w), 1+r.IntN(h)
	return r.IntN(w - bw + 1), r.IntN(h - bh + 1), bw, bh
}

// Tables of its own make a file smaller and leave its pixels as they are.
func TestEncodeOptimized(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	p := smooth(r, 231, 120, 3)
	usual, err := EncodeJPEG(p, 90, "4:2:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	small, err := EncodeOptimized(p, 90, "4:2:0")
	if err != nil {
		t.Fatal(err)
	}
	if len(small) > len(usual) || HasLibjpeg && len(small) == len(usual) {
		t.Errorf("%d bytes, with the usual tables %d", len(small), len(usual))
	}
	each(t, func(t *testing.T, l *Lane) {
		if d := diff(run(t, l, Job{JPEG: small}), run(t, l, Job{JPEG: usual})); d != "" {
			t.Error(d)
		}
	})
	if _, err := EncodeOptimized(p, 101, "4:2:0"); err == nil {
		t.Error("a quality of 101 passes")
	}
}
