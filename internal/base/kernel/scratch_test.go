package kernel

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// What Scratch says is at least what the twin allocates, whatever the job: all of it is
// Go's there. The figures of C are measured from outside (python/tests/test_memory.py).
func TestScratchIsABound(t *testing.T) {
	r := rand.New(rand.NewPCG(77, 78))
	l := newLane("go")
	defer l.Close()
	measure := func(j *Job, h *Header, what string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := l.Run(j); err != nil {
			return
		}
		runtime.ReadMemStats(&after)
		const fixed = 512 << 10 // tables, readers, and what other tests do meanwhile
		if took, said := int64(after.TotalAlloc-before.TotalAlloc), l.Scratch(j, h); took > said+fixed {
			t.Errorf("%s: %s: %d bytes where %d were said", what, describe(j), took, said)
		}
	}
	for range 60 {
		w, h, c := 200+r.IntN(900), 200+r.IntN(900), 1+2*r.IntN(2)
		src := random(r, w, h, c)
		steps := chain(r, w, h, c, r.IntN(5), 600)
		ow, oh, oc, err := ResultSize(steps, w, h, c)
		if err != nil {
			t.Fatal(err)
		}
		measure(&Job{Src: src, Steps: steps, Dst: make([]byte, ow*oh*oc)}, nil, "pixels")
	}
	for range 20 {
		for _, o := range []encodeOptions{
			{quality: 80, subsampling: "4:4:4"},
			{quality: 80, subsampling: "4:2:0", progressive: true},
			{quality: 80, subsampling: "4:2:0", restart: 4},
		} {
			w, h := 200+r.IntN(900), 200+r.IntN(900)
			jpeg, err := encode(smooth(r, w, h, 3), o)
			if err != nil {
				continue // not without libjpeg
			}
			head, err := ReadHeader(jpeg)
			if err != nil {
				t.Fatal(err)
			}
			if o.progressive != (head.Coefficients > 0) {
				t.Errorf("progressive %v: coefficients of %d bytes", o.progressive, head.Coefficients)
			}
			steps := chain(r, w, h, 3, r.IntN(4), 600)
			ow, oh, oc, err := ResultSize(steps, w, h, 3)
			if err != nil {
				t.Fatal(err)
			}
			measure(&Job{JPEG: jpeg, Steps: steps, Dst: make([]byte, ow*oh*oc)}, &head, "JPEG")
		}
	}
}
