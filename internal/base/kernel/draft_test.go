//go:build cgo && stoker_libjpeg

package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// halved is a box of whole pixels of the picture at 1/2^shift of its size, to be
// made of as many pixels: the resampling has nothing to do, and the result is the
// scaled picture's own pixels.
func halved(r *rand.Rand, w, h, shift int) []Step {
	s := Step{Op: OpCrop}
	s.X, s.Y, s.W, s.H = box(r, w>>shift, h>>shift)
	to := Step{Op: OpResize, W: s.W, H: s.H, Draft: true}
	s.X, s.Y, s.W, s.H = s.X<<shift, s.Y<<shift, s.W<<shift, s.H<<shift
	return []Step{s, to}
}

// like holds lanes to what one of them, or libjpeg, makes of a job.
func like(t *testing.T, reference *Lane, lanes []*Lane, name any, j Job) {
	t.Helper()
	want := run(t, reference, j)
	for _, l := range lanes {
		if d := diff(run(t, l, j), want); d != "" {
			t.Errorf("%s: %+v: %+v: %s", l.target, name, j.Steps, d)
		}
	}
}

func allLanes(t *testing.T) (lanes []*Lane) {
	for _, name := range tested() {
		l := newLane(name)
		t.Cleanup(l.Close)
		lanes = append(lanes, l)
	}
	return lanes
}

// Pixels of a picture made smaller while it is decoded are libjpeg's of its scaled
// decoding: on every target, of every subsampling, size and scale.
func TestDraftIsLibjpegs(t *testing.T) {
	stock, lanes := stocked(), allLanes(t)
	defer stock.Close()
	r := rand.New(rand.NewPCG(71, 72))
	for i, m := range pairs() {
		m.w, m.h = m.w<<(i%4)+r.IntN(8)+8, m.h+r.IntN(8)+8
		jpeg := m.encode(t, r)
		for shift := 1; shift <= 3; shift++ {
			like(t, stock, lanes, m, Job{JPEG: jpeg, Steps: halved(r, m.w, m.h, shift)})
		}
	}
}

// So they are of frames that nobody writes: any sampling factors and tables, and
// coefficients out of any range.
func TestDraftOfAnyFrame(t *testing.T) {
	want, lanes := newReference(), allLanes(t)
	defer want.Close()
	r := rand.New(rand.NewPCG(73, 74))
	for i := range 1500 {
		d := drawJPEG(r, i%2 == 0)
		shift := 1 + i%3
		if d.x>>shift > 0 && d.y>>shift > 0 {
			jpeg := d.bytes(r)
			like(t, want.of(jpeg), lanes, d, Job{JPEG: jpeg, Steps: halved(r, d.x, d.y, shift)})
		}
	}
}

// before draws what may come before a draft, and the size that it leaves.
func before(r *rand.Rand, w, h int) ([]Step, int, int) {
	var steps []Step
	for range r.IntN(5) {
		s := Step{Op: []Op{OpCrop, OpFlipH, OpFlipV, OpGray}[r.IntN(4)], C: 1 + 2*r.IntN(2)}
		if s.Op == OpCrop {
			s.X, s.Y, s.W, s.H = box(r, w, h)
			if r.IntN(2) == 0 {
				s.W, s.H = max(s.W, w/2), max(s.H, h/2)
				s.X, s.Y = r.IntN(w-s.W+1), r.IntN(h-s.H+1)
			}
			w, h = s.W, s.H
		}
		steps = append(steps, s)
	}
	return steps, w, h
}

// draftJob draws a chain that begins with a draft, of a box that mostly begins and
// ends between the smaller picture's pixels.
func draftJob(r *rand.Rand, jpeg []byte, w, h int) Job {
	j := Job{JPEG: jpeg, Gray: r.IntN(4) == 0, Out: anyOutput(r)}
	j.Steps, w, h = before(r, w, h)
	n := 1 << r.IntN(4)
	to := Step{Op: OpResize, W: 1 + r.IntN(1+w/n), H: 1 + r.IntN(1+h/n), Draft: true}
	j.Steps = append(j.Steps, to)
	j.Steps = append(j.Steps, chain(r, to.W, to.H, 3, r.IntN(4), 40)...)
	return j
}

// Every target makes the twin's bytes of any chain that begins with a draft, and of
// libjpeg's pixels the same.
func TestTargetsEqualTwinOfDrafts(t *testing.T) {
	stock, twin := stocked(), newLane("go")
	defer stock.Close()
	each(t, func(t *testing.T, l *Lane) {
		if l.target == "go" {
			return
		}
		r := rand.New(rand.NewPCG(75, 76))
		for i := range 1000 {
			d := drawJPEG(r, true)
			j := draftJob(r, d.bytes(r), d.x, d.y)
			got := run(t, l, j)
			if diff := diff(got, run(t, twin, j)); diff != "" {
				t.Fatalf("%d: %+v: %s: %s", i, d, describe(&j), diff)
			}
			if diff := diff(got, run(t, stock, j)); diff != "" {
				t.Fatalf("%d: libjpeg's: %+v: %s: %s", i, d, describe(&j), diff)
			}
		}
	})
}

// A draft is near to its exact result, wherever its box is.
func TestDraftIsNear(t *testing.T) {
	l := NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(77, 78))
	for _, kind := range []string{"4:4:4", "4:2:0", "4:2:2", "gray"} {
		for shift := 1; shift <= 3; shift++ {
			const w, h = 601, 413
			p := waves(r, w, h)
			o := encodeOptions{quality: 95, subsampling: "4:4:4"}
			if kind != "gray" {
				o.subsampling = kind
			}
			jpeg, err := encode(p, o)
			if err != nil {
				t.Fatal(err)
			}
			for range 12 {
				bw, bh := w/2+r.IntN(w/2), h/2+r.IntN(h/2)
				crop := Step{Op: OpCrop, X: r.IntN(w - bw + 1), Y: r.IntN(h - bh + 1), W: bw, H: bh}
				to := Step{Op: OpResize, W: bw>>shift - r.IntN(bw>>shift/3), H: bh>>shift - r.IntN(bh>>shift/3), Draft: true}
				flip := Step{Op: []Op{OpFlipH, OpFlipV}[r.IntN(2)]}
				j := Job{JPEG: jpeg, Gray: kind == "gray", Steps: []Step{crop, flip, to}}
				draft := run(t, l, j)
				j.Steps[2].Draft = false
				exact := run(t, l, j)
				sum := 0
				for i := range draft {
					sum += max(int(draft[i])-int(exact[i]), int(exact[i])-int(draft[i]))
				}
				most := 1.5
				if kind == "4:2:2" && shift == 3 {
					most = 5 // libjpeg repeats chroma there: twice 8 pixels have one sample
				}
				if mean := float64(sum) / float64(len(draft)); mean > most || mean == 0 {
					t.Errorf("%s, 1/%d, %+v: the mean difference is %.3f", kind, 1<<shift, j.Steps, mean)
				}
			}
		}
	}
}

// waves is a picture without detail that a shrinking would have to take away.
func waves(r *rand.Rand, w, h int) Pixels {
	p := newPixels(w, h, 3)
	fx, fy := 0.05+0.02*r.Float64(), 0.05+0.02*r.Float64()
	for i := range p.Pix {
		x, y, c := float64(i/3%w), float64(i/3/w), float64(i%3)
		p.Pix[i] = byte(128 + 60*math.Sin(fx*x+c) + 60*math.Cos(fy*y-c))
	}
	return p
}

// What a draft may not do: enlarge, replace nearest, come after a padding, or be
// used where nobody asked for it. All of these are exact.
func TestDraftNotWanted(t *testing.T) {
	l := NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(79, 80))
	jpeg := encodeKind(t, r, "4:2:0", 300, 200, encodeOptions{quality: 90})
	for name, steps := range map[string][]Step{
		"less than half": {{Op: OpResize, W: 151, H: 50, Draft: true}},
		"nearest":        {{Op: OpResize, W: 50, H: 50, Filter: Nearest, Draft: true}},
		"after a pad":    {{Op: OpPad, X: 1, Y: 1, W: 302, H: 202}, {Op: OpResize, W: 50, H: 50, Draft: true}},
		"after a resize": {{Op: OpResize, W: 200, H: 180}, {Op: OpResize, W: 50, H: 50, Draft: true}},
	} {
		j := Job{JPEG: jpeg, Steps: steps}
		draft := run(t, l, j)
		for i := range steps {
			steps[i].Draft = false
		}
		if d := diff(draft, run(t, l, j)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// Of damage the C kernel and the twin think alike in drafts too.
func TestDraftOnDamage(t *testing.T) {
	onDamage(t, 4000, rand.New(rand.NewPCG(81, 82)), func(r *rand.Rand, h header) Job {
		n := 1 << r.IntN(4)
		return Job{Steps: []Step{{Op: OpResize, W: max(1, h.W/n), H: max(1, h.H/n), Draft: true}}}
	})
}
