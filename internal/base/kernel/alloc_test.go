//go:build cgo && stoker_libjpeg

package kernel

import (
	"math/rand/v2"
	"testing"
)

// Once warm, a job allocates nothing, whatever picture it is.
func TestNoAllocation(t *testing.T) {
	l := NewLane()
	defer l.Close()
	if l.target == "go" {
		t.Skip("the twin allocates")
	}
	dst := make([]byte, 4*3*64*64)
	jobs := []Job{}
	for _, jpeg := range photos(t) {
		out, _, err := l.IndexJPEG(nil, jpeg, IndexOptions{})
		if err != nil {
			t.Fatal(err)
		}
		j := Job{JPEG: jpeg, Dst: dst, Out: Output{Float: true, CHW: true}}
		j.Steps = []Step{{Op: OpCrop, X: 11, Y: 7, W: 200, H: 150}, {Op: OpResize, W: 64, H: 64}, {Op: OpFlipH}}
		jobs = append(jobs, j)
		j.JPEG = out
		jobs = append(jobs, j)
	}
	r := rand.New(rand.NewPCG(141, 142))
	for _, kind := range append(generatedKinds, "cmyk") {
		for _, restart := range []int{0, 3} {
			jpeg := generated{kind: kind, w: 90, h: 70, q: 80, restart: restart, optimize: true}.encode(t, r)
			jobs = append(jobs, Job{JPEG: jpeg, Dst: dst[:3*90*30], Steps: []Step{{Op: OpCrop, Y: 20, W: 90, H: 30}}})
		}
	}
	all := func() {
		for i := range jobs {
			if _, err := ReadHeader(jobs[i].JPEG); err != nil {
				t.Fatal(err)
			}
			if err := l.Run(&jobs[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	all()
	if n := testing.AllocsPerRun(5, all); n != 0 {
		t.Errorf("%v allocations for %d pictures", n, len(jobs))
	}
}
