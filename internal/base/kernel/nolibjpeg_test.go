//go:build cgo && !stoker_libjpeg

package kernel

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// The kernel without libjpeg: what is not its own it leaves to the twin's decoder,
// and works on its pixels.

// others are files that frame.c does not take.
func others(t testing.TB) map[string][]byte {
	t.Helper()
	m := map[string][]byte{}
	for _, name := range []string{"progressive411", "cmyk", "ycck"} {
		b, err := os.ReadFile("testdata/" + name + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		m[name] = b
	}
	return m
}

func TestRestEqualsTwin(t *testing.T) {
	twin := newLane("go")
	each(t, func(t *testing.T, l *Lane) {
		r := rand.New(rand.NewPCG(161, 162))
		for name, jpeg := range others(t) {
			h, err := ReadHeader(jpeg)
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				j := Job{JPEG: jpeg, Gray: r.IntN(4) == 0, Steps: chain(r, h.W, h.H, 3, r.IntN(5), 60), Out: anyOutput(r)}
				if d := diff(run(t, l, j), run(t, twin, j)); d != "" {
					t.Fatalf("%s: %s: %s", name, describe(&j), d)
				}
			}
		}
	})
}

// A lane says which decoder took a picture, also after one that another took, and
// where its time went.
func TestRestSaysItsWay(t *testing.T) {
	own := samples(t)["420"]
	each(t, func(t *testing.T, l *Lane) {
		for name, jpeg := range others(t) {
			h, err := ReadHeader(jpeg)
			if err != nil {
				t.Fatal(err)
			}
			j := Job{JPEG: jpeg, Dst: make([]byte, 3*h.W*h.H), Timed: true}
			if err := l.Run(&j); err != nil || j.Way != WayGo {
				t.Errorf("%s: way %d, %v", name, j.Way, err)
			}
			if s := j.Spent; s.Decode <= 0 || s.Decode+s.Write > s.All {
				t.Errorf("%s: %+v", name, s)
			}
			j = Job{JPEG: own, Dst: make([]byte, 3*75*50)}
			if err := l.Run(&j); err != nil || j.Way != WayOwn {
				t.Errorf("after %s: way %d, %v", name, j.Way, err)
			}
		}
	})
}

// What needs libjpeg says so, and how to come by it; what is damaged is called that.
func TestRestRefused(t *testing.T) {
	arithmetic := append([]byte{}, samples(t)["420"]...)
	arithmetic[sof(arithmetic)+1] = 0xc9
	each(t, func(t *testing.T, l *Lane) {
		if l.target == "go" {
			return
		}
		var u UnsupportedError
		err := l.Run(&Job{JPEG: arithmetic, Dst: make([]byte, 3*75*50)})
		if !errors.As(err, &u) || !strings.Contains(err.Error(), "libjpeg-dev") {
			t.Errorf("arithmetic coding: %v", err)
		}
		for name, jpeg := range others(t) {
			out, _, err := l.IndexJPEG([]byte("before"), jpeg, IndexOptions{Progressive: true})
			if !errors.As(err, &u) || !strings.Contains(err.Error(), "libjpeg-dev") || string(out) != "before" {
				t.Errorf("%s: %q, %v", name, out, err)
			}
		}
		var f FormatError
		bare := withoutTables(samples(t)["p422"])
		if _, _, err := l.IndexJPEG(nil, bare, IndexOptions{}); !errors.As(err, &f) {
			t.Errorf("without quantisation tables: %v", err)
		}
	})
}
