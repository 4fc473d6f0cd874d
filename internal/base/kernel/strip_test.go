//go:build cgo && stoker_libjpeg

package kernel

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// at is the place in a strip of what is at a place in the picture, in pixels.
func (s *Strip) at(x, y int) (int, int) {
	if s.Interval == 0 {
		return x, y
	}
	mcu := y/s.MCUH*s.Cols + x/s.MCUW
	place, last := 0, -1
	for row := s.Top; ; row++ {
		from, to := (row*s.Cols+s.First)/s.Interval, (row*s.Cols+s.Last)/s.Interval
		first := max(from, last+1)
		if row == y/s.MCUH {
			place += mcu/s.Interval - first
			break
		}
		place, last = place+to-first+1, to
	}
	return mcu%s.Interval*s.MCUW + x%s.MCUW, place*s.MCUH + y%s.MCUH
}

// planes are the decoded components of a picture.
func planes(t failing, jpeg []byte) *frame {
	t.Helper()
	f, ok := readFrame(jpeg)
	if !ok {
		t.Fatal("not a frame that is decoded here")
	}
	if _, err := f.decode(0); err != nil {
		t.Fatal(err)
	}
	return f
}

// What is sent for a box is a legal JPEG, has the samples of every block of the box, and is
// the same whichever kernel finds the segments. Its bytes are fewer than the picture's.
func TestStripHasTheBox(t *testing.T) {
	l, twin := NewLane(), newLane("go")
	defer l.Close()
	strips, wholes := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		kind := rapid.SampledFrom(kinds[:6]).Draw(t, "kind")
		w, h := rapid.IntRange(1, 300).Draw(t, "w"), rapid.IntRange(1, 200).Draw(t, "h")
		jpeg := encodeKind(t, r, kind, w, h, encodeOptions{quality: 85})
		if rapid.Bool().Draw(t, "packed") {
			jpeg, _ = index(t, l, jpeg, IndexOptions{Segment: rapid.IntRange(1, 12).Draw(t, "segment"), Growth: 10000})
		}
		bw, bh := rapid.IntRange(1, w).Draw(t, "bw"), rapid.IntRange(1, h).Draw(t, "bh")
		x, y := rapid.IntRange(0, w-bw).Draw(t, "x"), rapid.IntRange(0, h-bh).Draw(t, "y")
		subsampled := rapid.Bool().Draw(t, "repeats")
		out, s, err := l.Strip([]byte("before"), withSegments(jpeg), x, y, bw, bh, subsampled)
		if err != nil {
			t.Fatal(err)
		}
		other, same, err := twin.Strip([]byte("before"), withSegments(jpeg), x, y, bw, bh, subsampled)
		if err != nil || same != s || !bytes.Equal(out, other) {
			t.Fatalf("the twin sends %+v (%v), not %+v", same, err, s)
		}
		if !bytes.HasPrefix(out, []byte("before")) {
			t.Fatal("what dst held is gone")
		}
		out = out[len("before"):]
		for _, lost := range []string{"Exif", "ICC_PROFILE", "Photoshop", "com"} {
			if bytes.Contains(out[:min(len(out), 600)], []byte(lost)) {
				t.Fatalf("%s is sent", lost)
			}
		}
		if s.Interval == 0 {
			wholes++
		} else {
			strips++
			if len(out) >= len(jpeg) {
				t.Fatalf("a strip of %d bytes, of a picture of %d", len(out), len(jpeg))
			}
		}
		a, b := planes(t, jpeg), planes(t, out)
		if b.x != s.W || b.y != s.H {
			t.Fatalf("the strip has %d x %d pixels, not %d x %d", b.x, b.y, s.W, s.H)
		}
		for i := range a.comp {
			ca, cb := &a.comp[i], &b.comp[i]
			sx, sy := a.hmax/ca.h, a.vmax/ca.v
			for py := y; py < y+bh; py++ {
				for px := x; px < x+bw; px++ {
					qx, qy := s.at(px, py)
					if u, v := ca.pix[py/sy*ca.stride+px/sx], cb.pix[qy/sy*cb.stride+qx/sx]; u != v {
						t.Fatalf("component %d at %d,%d is %d, in the strip at %d,%d %d", i, px, py, u, qx, qy, v)
					}
				}
			}
		}
	})
	if !testing.Short() && (strips < 5 || wholes < 5) {
		t.Fatalf("%d strips and %d whole pictures are too few", strips, wholes)
	}
}

// A picture without subsampled chroma has the same pixels in its strip, whoever decodes it.
func TestStripPixels(t *testing.T) {
	l, stock := NewLane(), stocked()
	defer l.Close()
	defer stock.Close()
	r := rand.New(rand.NewPCG(3, 4))
	for _, kind := range []string{"4:4:4", "gray"} {
		jpeg, done := index(t, l, encodeKind(t, r, kind, 331, 207, encodeOptions{quality: 92}), IndexOptions{Growth: 10000})
		if done.Interval != indexSegment {
			t.Fatalf("%+v", done)
		}
		for range 50 {
			w, h := 1+r.IntN(200), 1+r.IntN(150)
			x, y := r.IntN(331-w), r.IntN(207-h)
			out, s, err := l.Strip(nil, jpeg, x, y, w, h, false)
			if err != nil {
				t.Fatal(err)
			}
			if s.Interval == 0 {
				t.Fatalf("%s: the box %d,%d %dx%d is sent whole", kind, x, y, w, h)
			}
			want := run(t, stock, Job{JPEG: jpeg, Steps: []Step{{Op: OpCrop, X: x, Y: y, W: w, H: h}}})
			got := run(t, stock, Job{JPEG: out})
			c := len(got) / (s.W * s.H)
			for py := range h {
				for px := range w {
					qx, qy := s.at(x+px, y+py)
					if !bytes.Equal(got[(qy*s.W+qx)*c:][:c], want[(py*w+px)*c:][:c]) {
						t.Fatalf("%s: another pixel at %d,%d", kind, x+px, y+py)
					}
				}
			}
		}
	}
}

// What other decoders may read differently is not sent, nor what is damaged where segments
// are looked for.
func TestStripElsewhere(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	restart := encodeKind(t, r, "4:4:4", 150, 90, encodeOptions{quality: 80, restart: 4})
	at := restartAt(t, restart, 3)
	wrong := splice(restart, at+1, at+2, 0xd7)
	missing := splice(restart, at, at+2)
	dri, _ := segment(t, restart, 0xdd)
	interval := splice(restart, dri+5, dri+6, 5)
	for _, target := range targets() {
		l := newLane(target)
		for name, jpeg := range map[string][]byte{
			"rgb": encodeKind(t, r, "rgb", 60, 60, encodeOptions{quality: 80}), "cmyk": encodeKind(t, r, "cmyk", 60, 60, encodeOptions{quality: 80}),
			"progressive": encodeKind(t, r, "4:2:0", 60, 60, encodeOptions{quality: 80, progressive: true}),
			"scans":       encodeKind(t, r, "4:4:4", 60, 60, encodeOptions{quality: 80, separate: true}),
			"wrong":       wrong, "missing": missing, "interval": interval, "cut": restart[:len(restart)/2], "empty": {},
		} {
			if out, _, err := l.Strip(nil, jpeg, 0, 0, 50, 50, false); !errors.Is(err, ErrElsewhere) || len(out) > 0 {
				t.Errorf("%s, %s: %d bytes, %v", target, name, len(out), err)
			}
		}
		var job JobError
		if _, _, err := l.Strip(nil, restart, 100, 0, 51, 50, false); !errors.As(err, &job) {
			t.Errorf("a box outside the picture: %v", err)
		}
		l.Close()
	}
}

// Damaged bytes are sent or refused, the same by every kernel.
func TestStripDamage(t *testing.T) {
	l, twin := NewLane(), newLane("go")
	defer l.Close()
	r := rand.New(rand.NewPCG(7, 8))
	jpeg := encodeKind(t, r, "4:2:2", 150, 90, encodeOptions{quality: 80, restart: 4})
	sent := 0
	for range 3000 {
		b := bytes.Clone(jpeg)
		for range 1 + r.IntN(3) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		b = b[:len(b)-r.IntN(3)*r.IntN(50)]
		out, s, err := l.Strip(nil, b, 10, 10, 60, 40, true)
		other, same, twins := twin.Strip(nil, b, 10, 10, 60, 40, true)
		if !errors.Is(twins, err) || s != same || !bytes.Equal(out, other) {
			t.Fatalf("%v and %v; %+v and %+v", err, twins, s, same)
		}
		if err == nil {
			sent++
		}
	}
	if sent < 100 {
		t.Fatalf("%d of 3000 were sent", sent)
	}
}
