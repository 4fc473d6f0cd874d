//go:build cgo && stoker_libjpeg

package kernel

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// pointsOf is all points of a JPEG, from a decode of all of it.
func pointsOf(t failing, l *Lane, jpeg []byte, spacing int) []Point {
	t.Helper()
	h, err := readHeader(jpeg)
	if err != nil {
		t.Fatal(err)
	}
	c := 3
	e := Entries{Spacing: spacing}
	j := Job{JPEG: jpeg, Dst: make([]byte, h.W*h.H*c), Entries: &e}
	if err := l.Run(&j); err != nil {
		t.Fatal(err)
	}
	if e.Jumps+e.Compared+e.Extra != 0 || e.Wrong {
		t.Fatalf("without known points: %+v", e)
	}
	return slices.Clone(e.Found)
}

// boxOf decodes a box of a JPEG.
func boxOf(t failing, l *Lane, jpeg []byte, box Step, e *Entries) []byte {
	t.Helper()
	j := Job{JPEG: jpeg, Steps: []Step{box}, Dst: make([]byte, box.W*box.H*3), Entries: e}
	if err := l.Run(&j); err != nil {
		t.Fatalf("%+v: %v", box, err)
	}
	return j.Dst
}

func TestPointsAreThoseOfTheTwin(t *testing.T) {
	twin := newLane("go")
	defer twin.Close()
	for name, jpeg := range testPhotos(t) {
		for _, spacing := range []int{1, 64, 550, 5000} {
			want := pointsOf(t, twin, jpeg, spacing)
			for _, l := range allLanes(t) {
				if got := pointsOf(t, l, jpeg, spacing); !slices.Equal(got, want) {
					t.Errorf("%s, spacing %d, %s: %d points, want %d", name, spacing, l.target, len(got), len(want))
				}
			}
		}
	}
}

// Every box is the same with any points known, and what is found completes them.
func TestBoxesFromPoints(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, jpeg := range testPhotos(t) {
		h, _ := readHeader(jpeg)
		for _, l := range allLanes(t) {
			if l.target == "go" {
				continue
			}
			for range 15 {
				spacing := 16 + r.IntN(1000)
				all := pointsOf(t, l, jpeg, spacing)
				known := all[:r.IntN(len(all)+1)]
				box := drawCrop(r, h.W, h.H).box
				want := boxOf(t, l, jpeg, box, nil)
				e := Entries{Known: known, Spacing: spacing}
				if got := boxOf(t, l, jpeg, box, &e); !bytes.Equal(got, want) || e.Wrong {
					t.Fatalf("%s %s: box %+v differs with %d of %d points; %+v", name, l.target, box, len(known), len(all), e)
				}
				if grown := slices.Concat(known, e.Found); !slices.Equal(grown, all[:len(grown)]) {
					t.Fatalf("%s %s: box %+v found other points than a decode of all", name, l.target, box)
				}
				if e.Jumps > 0 && e.Compared == 0 {
					t.Fatalf("%s %s: box %+v: %d jumps, and no point passed", name, l.target, box, e.Jumps)
				}
			}
		}
	}
}

// Decoding that begins at any point makes the same pixels: of every sampling, size and
// interval, and of stuffed bytes and predictors of random pictures.
func TestFromEveryPoint(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	lanes := allLanes(t)
	twin := newLane("go")
	defer twin.Close()
	files := pairs()
	if testing.Short() {
		files = files[:len(files)/10]
	}
	for _, m := range files {
		m.w, m.h = 2*m.w, 2*m.h
		jpeg := m.encode(t, r)
		spacing := 1 + r.IntN(60)
		want := pointsOf(t, twin, jpeg, spacing)
		whole := boxOf(t, twin, jpeg, Step{Op: OpCrop, W: m.w, H: m.h}, nil)
		for _, l := range lanes {
			all := pointsOf(t, l, jpeg, spacing)
			if !slices.Equal(all, want) {
				t.Fatalf("%v, %s: points %v, want %v", m, l.target, all, want)
			}
			for k := range all {
				box := Step{Op: OpCrop, X: r.IntN(m.w), Y: m.h - 1 - r.IntN(min(m.h, 12))}
				box.W, box.H = 1+r.IntN(m.w-box.X), m.h-box.Y
				e := Entries{Known: all[:k+1], Spacing: spacing * r.IntN(2)}
				got := boxOf(t, l, jpeg, box, &e)
				if e.Wrong || !bytes.Equal(got, partOf(whole, m.w, box)) {
					t.Fatalf("%v, %s: box %+v differs with %d of %d points: %+v", m, l.target, box, k+1, len(all), e)
				}
			}
		}
	}
}

func partOf(whole []byte, w int, box Step) (part []byte) {
	for y := box.Y; y < box.Y+box.H; y++ {
		part = append(part, whole[(y*w+box.X)*3:(y*w+box.X+box.W)*3]...)
	}
	return part
}

// Points of another picture change nothing: they are noticed, or lead to the same. Nor do
// forged ones, unless every one of them is moved alike: those fit each other.
func TestPointsOfAnotherPicture(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var files [][]byte
	for _, jpeg := range testPhotos(t) {
		if len(jpeg) < 300<<10 {
			files = append(files, jpeg)
		}
	}
	for _, l := range allLanes(t) {
		points := make([][]Point, len(files))
		for i, jpeg := range files {
			points[i] = pointsOf(t, l, jpeg, 300)
		}
		noticed, fitting := 0, 0
		for i, jpeg := range files {
			h, _ := readHeader(jpeg)
			k := i
			if i%2 == 1 {
				k = r.IntN(len(files))
			}
			box := drawCrop(r, h.W, h.H).box
			want := boxOf(t, l, jpeg, box, nil)
			for n, forged := range forgeries(r, points[k]) {
				e := Entries{Known: forged, Spacing: 300}
				if got := boxOf(t, l, jpeg, box, &e); !bytes.Equal(got, want) {
					if n < alike && bytes.Equal(jpeg, files[k]) {
						fitting++
					} else {
						t.Errorf("%s: picture %d, points of %d, forged in way %d: other pixels; %d jumps, %d compared", l.target, i, k, n, e.Jumps, e.Compared)
					}
				}
				if e.Wrong {
					noticed++
					if !slices.Equal(e.Found, points[i][:len(e.Found)]) {
						t.Errorf("%s: picture %d: after wrong points, %d are found that are not its own", l.target, i, len(e.Found))
					}
				}
			}
		}
		t.Logf("%s: wrong points were noticed %d times, and fitted %d times", l.target, noticed, fitting)
		if l.target != "go" && noticed == 0 {
			t.Errorf("%s: no wrong point was noticed", l.target)
		}
	}
}

// Points that are right up to where a picture is damaged are not wrong: they stay what they
// are, and none of them is found again.
func TestPointsOfADamagedPicture(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, l := range allLanes(t) {
		failed := 0
		for name, jpeg := range testPhotos(t) {
			h, _ := readHeader(jpeg)
			bad := slices.Clone(jpeg[:len(jpeg)/2]) // its second half is missing
			known, _ := l.Points(bad, 300)
			known = slices.Clone(known)
			for range 4 {
				box := Step{Op: OpCrop, X: r.IntN(h.W / 2), Y: h.H / 8, W: 1 + r.IntN(h.W/2), H: h.H - h.H/8}
				j := Job{JPEG: bad, Steps: []Step{box}, Entries: &Entries{Known: known, Spacing: 300}, Dst: make([]byte, box.W*box.H*3)}
				if err := l.Run(&j); err == nil {
					continue
				}
				failed++
				if e := j.Entries; e.Wrong || len(e.Found) > 0 && e.Found[0].MCU <= known[len(known)-1].MCU {
					t.Errorf("%s %s: wrong: %v; %d points are found", name, l.target, e.Wrong, len(e.Found))
				}
			}
		}
		if failed == 0 {
			t.Errorf("%s: nothing failed", l.target)
		}
	}
}

// A point that is wrong alone is noticed, or not used: also in a region so narrow that it ends
// before the next point in each row. Otherwise right points below would speak for it, as if
// part of a picture had been edited and the rest had kept its place.
func TestEveryJumpIsCompared(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	jpeg := photos(t)["rocket.jpg"]
	h, _ := readHeader(jpeg)
	for _, l := range allLanes(t)[1:] {
		all := pointsOf(t, l, jpeg, 850)
		noticed := 0
		for k := range all {
			known := slices.Clone(all)
			known[k].Pred[0] += 100
			box := Step{Op: OpCrop, X: r.IntN(h.W - 16), W: 16, H: h.H}
			want := boxOf(t, l, jpeg, box, nil)
			e := Entries{Known: known}
			if got := boxOf(t, l, jpeg, box, &e); !bytes.Equal(got, want) {
				t.Errorf("%s: box %+v has other pixels, and point %d of %d, which is wrong, was not noticed", l.target, box, k, len(all))
			}
			if e.Wrong {
				noticed++
			}
		}
		if noticed == 0 {
			t.Errorf("%s: none of %d wrong points was noticed", l.target, len(all))
		}
	}
}

// alike is how many of the forgeries move all points alike.
const alike = 2

// forgeries are points moved alike, then shifted, in disorder, beyond everything, and random.
func forgeries(r *rand.Rand, points []Point) (all [][]Point) {
	change := func(by func(i int, p *Point)) {
		some := slices.Clone(points)
		for i := range some {
			by(i, &some[i])
		}
		all = append(all, some)
	}
	at, c := r.IntN(len(points)), r.IntN(3)
	change(func(_ int, p *Point) { p.MCU++ })
	change(func(_ int, p *Point) { p.Pred[c]++ })
	all = append(all, points[:at])
	change(func(_ int, p *Point) { p.Byte++ })
	change(func(_ int, p *Point) { p.Bit ^= 1 })
	change(func(_ int, p *Point) { p.Bit += 8 })
	change(func(i int, p *Point) {
		if i >= at {
			p.Byte += uint32(r.IntN(40))
		}
	})
	change(func(i int, p *Point) { p.Pred[i%3] ^= 1 })
	change(func(_ int, p *Point) { p.Byte += 1 << 30 })
	change(func(_ int, p *Point) { p.MCU += 1 << 30 })
	change(func(i int, p *Point) { *p = points[len(points)-1-i] })
	change(func(_ int, p *Point) { *p = points[at] })
	change(func(_ int, p *Point) {
		*p = Point{MCU: r.Uint32(), Byte: r.Uint32(), Bit: uint16(r.Uint32()), Pred: [3]int16{int16(r.Uint32()), int16(r.Uint32()), int16(r.Uint32())}}
	})
	change(func(i int, p *Point) {
		*p = Point{MCU: uint32(40*i + r.IntN(40)), Byte: uint32(300*i + r.IntN(300)), Bit: uint16(r.IntN(8))}
	})
	return all
}
