//go:build cgo && stoker_libjpeg

package kernel

import (
	"testing"
	"time"
)

// What the steps of a training run cost without the decoder: pixels of the photographs,
// RandomResizedCrop to 224 x 224, every second one mirrored:
//
//	STOKER_BENCH_PHOTOS=folder go test -run - -bench Resample -benchtime 50x ./internal/base/kernel
//
// The pixels of a box are in the second-level cache when its clock starts, as they are when they come
// from the decoder; no box comes twice in a row. Each picture's fastest of all passes counts.
// "copy" writes the box as it is: what is not resampling.
func BenchmarkResample(b *testing.B) {
	files := benchPhotos(b)
	crops := drawCrops(files)
	base := newLane("base")
	defer base.Close()
	pixels := make([]Pixels, len(files))
	area := 0
	for i, f := range files {
		w, h := f.head.W, f.head.H
		pixels[i] = newPixels(w, h, 3)
		if err := base.Run(&Job{JPEG: f.jpeg, Dst: pixels[i].Pix}); err != nil {
			b.Fatal(err)
		}
		area += crops[i].box.W * crops[i].box.H
	}
	outputs := []struct {
		name string
		out  Output
	}{{"copy", Output{}}, {"uint8", Output{}}, {"planes", Output{CHW: true}}, {"float", normalised}, {"halves", Output{CHW: true, Halves: &Halves{}}}}
	for _, target := range targets()[1:] {
		l := newLane(target)
		defer l.Close()
		for _, o := range outputs {
			b.Run(target+"/"+o.name, func(b *testing.B) {
				jobs := make([]Job, len(files))
				for i := range files {
					jobs[i] = Job{Src: pixels[i], Steps: crops[i].steps(224), Out: o.out}
					if o.name == "copy" {
						jobs[i].Steps = []Step{crops[i].box}
					}
				}
				benchHot(b, l, jobs)
				b.ReportMetric(float64(area)/float64(len(files)), "pixels/image")
			})
		}
	}
}

func benchHot(b *testing.B, l *Lane, jobs []Job) {
	best := make([]time.Duration, len(jobs))
	var dst, warm []byte
	for b.Loop() {
		for i := range jobs {
			j := &jobs[i]
			first := Job{Src: j.Src, Steps: j.Steps[:1], Dst: sized(b, &warm, j.Src, j.Steps[:1], 1)}
			j.Dst = sized(b, &dst, j.Src, j.Steps, j.Out.size())
			if err := l.Run(&first); err != nil {
				b.Fatal(err)
			}
			t := time.Now()
			if err := l.Run(j); err != nil {
				b.Fatal(err)
			}
			if d := time.Since(t); best[i] == 0 || d < best[i] {
				best[i] = d
			}
		}
	}
	var sum time.Duration
	for _, d := range best {
		sum += d
	}
	b.ReportMetric(float64(sum.Nanoseconds())/float64(len(jobs))/1000, "best-us/image")
	b.ReportMetric(0, "ns/op")
}

// sized grows *buf to what the steps make of p, in numbers of each bytes.
func sized(b *testing.B, buf *[]byte, p Pixels, steps []Step, each int) []byte {
	w, h, c, err := ResultSize(steps, p.W, p.H, p.C)
	if err != nil {
		b.Fatal(err)
	}
	n := w * h * c * each
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	return (*buf)[:n]
}
