//go:build cgo && stoker_libjpeg

package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// plainKinds are those of encodeKind that the plain decoder takes.
var plainKinds = []string{"4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1", "gray", "rgb"}

// The plain decoder gives libjpeg's bytes: of photographs, of every quality and
// subsampling that libjpeg writes.
func TestPlainIsLibjpegs(t *testing.T) {
	stock, twin := stocked(), newLane("go")
	defer stock.Close()
	taken := 0
	for name, jpeg := range testPhotos(t) {
		if _, ok := readFrame(jpeg); !ok {
			continue
		}
		taken++
		if d := diff(run(t, twin, Job{JPEG: jpeg}), run(t, stock, Job{JPEG: jpeg})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	t.Logf("%d photographs", taken)
	r := rand.New(rand.NewPCG(61, 62))
	for i := range 100 * len(plainKinds) {
		o := encodeOptions{quality: 1 + i/len(plainKinds), restart: r.IntN(2) * r.IntN(40), optimize: r.IntN(2) == 0}
		kind, w, h := plainKinds[i%len(plainKinds)], 1+r.IntN(70), 1+r.IntN(70)
		name := fmt.Sprintf("%s %dx%d %+v", kind, w, h, o)
		jpeg := encodeKind(t, r, kind, w, h, o)
		if _, ok := readFrame(jpeg); !ok {
			t.Fatalf("%s: not taken", name)
		}
		gray := i%10 == 0
		if d := diff(run(t, twin, Job{JPEG: jpeg, Gray: gray}), run(t, stock, Job{JPEG: jpeg, Gray: gray})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// And of frames that nobody writes: any sampling factors, tables, codes and
// names. The larger half of the coefficients are out of any range.
func TestPlainOfAnyFrame(t *testing.T) {
	want, lanes := newReference(), allLanes(t)
	defer want.Close()
	r := rand.New(rand.NewPCG(63, 64))
	for i := range 1500 {
		d := drawJPEG(r, i%2 == 0)
		jpeg := d.bytes(r)
		if _, ok := readFrame(jpeg); !ok {
			t.Fatalf("%+v: not taken", d)
		}
		like(t, want.of(jpeg), lanes, fmt.Sprintf("%d: %+v", i, d), Job{JPEG: jpeg})
	}
}

// Of damage the C kernel and the twin think alike, wherever it is: what one
// refuses the other does, and what both decode is the same. Where Huffman tables
// are missing, libjpeg decodes in C, and lets more pass.
func TestPlainOnDamage(t *testing.T) {
	onDamage(t, 6000, rand.New(rand.NewPCG(67, 68)), func(r *rand.Rand, _ header) Job {
		return Job{Strict: r.IntN(2) == 0}
	})
}

// onDamage holds the C kernel to the twin over n damaged pictures, for each of which
// draw draws a job.
func onDamage(t *testing.T, n int, r *rand.Rand, draw func(r *rand.Rand, h header) Job) {
	t.Helper()
	twin := newLane("go")
	var lanes []*Lane
	for _, target := range tested()[1:] {
		lanes = append(lanes, newLane(target))
		defer lanes[len(lanes)-1].Close()
	}
	both, refused := 0, 0
	for i := range n {
		d := drawJPEG(r, i%4 < 2)
		jpeg := d.bytes(r)
		if i%2 == 0 {
			jpeg = encodeKind(t, r, plainKinds[r.IntN(len(plainKinds))], d.x, d.y, encodeOptions{quality: 1 + r.IntN(100), restart: d.ri})
		}
		bad := damage(r, jpeg)
		h, err := readHeader(bad)
		f, taken := readFrame(bad)
		if !taken || err != nil || h.W*h.H > 1<<16 {
			continue
		}
		a := draw(r, h)
		w, hh, c, err := ResultSize(a.Steps, h.W, h.H, 3)
		if err != nil {
			t.Fatal(err)
		}
		b := a
		a.JPEG, a.Dst = bad, make([]byte, w*hh*c)
		b.JPEG, b.Dst = bad, make([]byte, w*hh*c)
		l := lanes[r.IntN(len(lanes))]
		ea, eb := l.Run(&a), twin.Run(&b)
		switch {
		case (ea == nil) != (eb == nil) && !slices.ContainsFunc(f.comp, func(c component) bool { return f.dc[c.td] == nil || f.ac[c.ta] == nil }):
			t.Errorf("%d: %s: %v; the twin: %v", i, l.target, ea, eb)
		case ea != nil || eb != nil:
			refused++
		case unlikeX86 && a.Way == WayLibjpeg && loud(bad):
			// Its tables are missing: see unlikeX86.
		default:
			both++
			if d := diff(b.Dst, a.Dst); d != "" {
				t.Errorf("%d: %s: %s", i, l.target, d)
			}
		}
	}
	t.Logf("%d decoded, %d refused", both, refused)
}

// damage changes, drops and adds one or more bytes: half of the time in the
// markers, which are most of a small file, otherwise after them.
func damage(r *rand.Rand, jpeg []byte) []byte {
	h, err := readHeader(jpeg)
	if err != nil {
		panic(err)
	}
	bad := append([]byte{}, jpeg...)
	for n := r.IntN(3); n >= 0; n-- {
		at := 2 + r.IntN(h.scan-2)
		if r.IntN(2) == 0 && len(bad) > h.scan+2 {
			at = h.scan + r.IntN(len(bad)-h.scan-2)
		}
		switch r.IntN(5) {
		case 0, 1:
			bad[at] ^= 1 << r.IntN(8)
		case 2:
			bad[at] = byte(r.Uint32())
		case 3:
			bad = append(bad[:at], bad[at+1:]...)
		case 4:
			bad = append(bad[:at], append([]byte{byte(r.Uint32())}, bad[at:]...)...)
		}
	}
	return bad
}
