//go:build cgo && stoker_libjpeg

package kernel

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What the chain of a training run costs, and how much of it is not libjpeg's:
//
//	STOKER_BENCH_PHOTOS=folder go test -bench Chain -benchtime 20x ./internal/base/kernel
//
// An operation is one pass over the folder. "decode" is the region decode
// alone, written out as it comes; the difference to it is what resampling,
// flip and layout cost. "libjpeg" is the same with libjpeg's entropy decoder.
// Those called indexed read the files as IndexJPEG writes them.
// best-us/image is the fastest pass: other work on the machine only ever adds.
func BenchmarkChain(b *testing.B) {
	files := benchPhotos(b)
	crops := drawCrops(files)
	chains := []struct {
		name  string
		steps func(c crop3) []Step
		out   Output
	}{
		{"libjpeg", func(c crop3) []Step { return []Step{c.box} }, Output{}},
		{"decode-indexed", func(c crop3) []Step { return []Step{c.box} }, Output{}},
		{"planes-indexed", func(c crop3) []Step { return c.steps(224) }, Output{CHW: true}},
		{"decode", func(c crop3) []Step { return []Step{c.box} }, Output{}},
		{"uint8", func(c crop3) []Step { return c.steps(224) }, Output{}},
		{"planes", func(c crop3) []Step { return c.steps(224) }, Output{CHW: true}},
		{"float", func(c crop3) []Step { return c.steps(224) }, normalised},
		{"whole", func(crop3) []Step { return nil }, Output{}},
	}
	for _, target := range targets()[1:] {
		l := newLane(target)
		defer l.Close()
		for _, ch := range chains {
			b.Run(target+"/"+ch.name, func(b *testing.B) {
				jobs := make([]Job, len(files))
				files := files
				if strings.HasSuffix(ch.name, "-indexed") {
					files = indexed(b, l, files)
				}
				for i, f := range files {
					jobs[i] = Job{JPEG: f.jpeg, Steps: ch.steps(crops[i]), Out: ch.out}
				}
				l.engine.stock = ch.name == "libjpeg"
				benchJobs(b, l, files, jobs)
			})
		}
	}
}

var normalised = Output{
	Float: true, CHW: true,
	Scale: [3]float32{0.0171, 0.0175, 0.0174}, Bias: [3]float32{-2.118, -2.036, -1.804},
}

// indexed rewrites the files; those that cannot be rewritten stay unchanged.
func indexed(b *testing.B, l *Lane, files []photo) []photo {
	all := make([]photo, len(files))
	for i, f := range files {
		all[i] = f
		if out, _, err := l.IndexJPEG(nil, f.jpeg, IndexOptions{}); err == nil {
			all[i].jpeg = out
		}
	}
	return all
}

// How much faster regions are once the files are rewritten. Each picture's
// fastest of all passes counts, of both files, one after the other: what else
// the machine does falls on both.
func BenchmarkRegion(b *testing.B) {
	files := benchPhotos(b)
	crops := drawCrops(files)
	for _, kind := range []string{"decode", "RandomResizedCrop"} {
		b.Run(kind, func(b *testing.B) {
			l := NewLane()
			defer l.Close()
			both := [2][]photo{files, indexed(b, l, files)}
			best := make([][2]time.Duration, len(files))
			var dst []byte
			for b.Loop() {
				for i := range files {
					j := Job{Steps: []Step{crops[i].box}}
					if kind != "decode" {
						j.Steps, j.Out = crops[i].steps(224), Output{CHW: true}
					}
					w, h, c, err := ResultSize(j.Steps, files[i].head.W, files[i].head.H, 3)
					if err != nil {
						b.Fatal(err)
					}
					dst = append(dst[:0], make([]byte, w*h*c)...)
					for k := range both {
						j.JPEG, j.Dst = both[k][i].jpeg, dst
						t := time.Now()
						if err := l.Run(&j); err != nil {
							b.Fatal(err)
						}
						if d := time.Since(t); best[i][k] == 0 || d < best[i][k] {
							best[i][k] = d
						}
					}
				}
			}
			var sum [2]time.Duration
			for i := range best {
				sum[0], sum[1] = sum[0]+best[i][0], sum[1]+best[i][1]
			}
			n := time.Duration(len(files))
			b.ReportMetric(float64((sum[0]/n).Nanoseconds())/1000, "us/image-untouched")
			b.ReportMetric(float64((sum[1]/n).Nanoseconds())/1000, "us/image-indexed")
			b.ReportMetric(float64(sum[0])/float64(sum[1]), "times-faster")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// What rewriting costs. Compare with the same core's
//
//	jpegtran -copy all -optimize -restart 8B
func BenchmarkIndex(b *testing.B) {
	files := benchPhotos(b)
	l := NewLane()
	defer l.Close()
	var dst []byte
	best := time.Duration(math.MaxInt64)
	was, is := 0, 0
	for b.Loop() {
		t := time.Now()
		was, is = 0, 0
		for _, f := range files {
			var err error
			if dst, _, err = l.IndexJPEG(dst[:0], f.jpeg, IndexOptions{Progressive: true}); err != nil {
				b.Fatal(err)
			}
			was, is = was+len(f.jpeg), is+len(dst)
		}
		best = min(best, time.Since(t))
	}
	b.ReportMetric(float64(was)/best.Seconds()/1e6, "MB/s")
	b.ReportMetric(float64(len(files))/best.Seconds(), "images/s")
	b.ReportMetric(100*float64(is-was)/float64(was), "%growth")
	b.ReportMetric(0, "ns/op")
}

type photo struct {
	jpeg []byte
	head Header
}

// benchPhotos reads the pictures of STOKER_BENCH_PHOTOS, or testdata's.
func benchPhotos(b *testing.B) (all []photo) {
	folder := os.Getenv("STOKER_BENCH_PHOTOS")
	if folder == "" {
		folder = "../../../testdata/photos"
	}
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(strings.ToLower(filepath.Ext(path)), ".jp") {
			return err
		}
		jpeg, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		h, err := ReadHeader(jpeg)
		all = append(all, photo{jpeg, h})
		return err
	})
	if err != nil || len(all) == 0 {
		b.Fatalf("no photographs in %s: %v", folder, err)
	}
	return all
}

type crop3 struct {
	box  Step
	flip bool
}

func (c crop3) steps(side int) []Step {
	s := []Step{c.box, {Op: OpResize, W: side, H: side}}
	if c.flip {
		s = append(s, Step{Op: OpFlipH})
	}
	return s
}

// drawCrops draws a box for each picture as torchvision's RandomResizedCrop
// does: area 8 % to 100 %, aspect 3/4 to 4/3, ten tries.
func drawCrops(files []photo) []crop3 {
	r := rand.New(rand.NewPCG(5, 6))
	crops := make([]crop3, len(files))
	for i, f := range files {
		crops[i] = drawCrop(r, f.head.W, f.head.H)
	}
	return crops
}

func drawCrop(r *rand.Rand, width, height int) crop3 {
	flip := r.IntN(2) == 0
	for range 10 {
		area := float64(width*height) * (0.08 + 0.92*r.Float64())
		aspect := math.Exp(math.Log(3.0/4) + r.Float64()*(math.Log(4.0/3)-math.Log(3.0/4)))
		w, h := int(math.Round(math.Sqrt(area*aspect))), int(math.Round(math.Sqrt(area/aspect)))
		if w > 0 && h > 0 && w <= width && h <= height {
			return crop3{Step{Op: OpCrop, X: r.IntN(width - w + 1), Y: r.IntN(height - h + 1), W: w, H: h}, flip}
		}
	}
	w, h := width, height
	if in := float64(w) / float64(h); in < 3.0/4 {
		h = int(math.Round(float64(w) / (3.0 / 4)))
	} else if in > 4.0/3 {
		w = int(math.Round(float64(h) * (4.0 / 3)))
	}
	return crop3{Step{Op: OpCrop, X: (width - w) / 2, Y: (height - h) / 2, W: w, H: h}, flip}
}

func benchJobs(b *testing.B, l *Lane, files []photo, jobs []Job) {
	most := 0
	sizes := make([]int, len(jobs))
	for i := range jobs {
		w, h, c, err := ResultSize(jobs[i].Steps, files[i].head.W, files[i].head.H, 3)
		if err != nil {
			b.Fatal(err)
		}
		sizes[i] = w * h * c * jobs[i].Out.size()
		most = max(most, sizes[i])
	}
	dst := make([]byte, most)
	best := time.Duration(math.MaxInt64)
	start := time.Now()
	for b.Loop() {
		t := time.Now()
		for i := range jobs {
			jobs[i].Dst = dst[:sizes[i]]
			if err := l.Run(&jobs[i]); err != nil {
				b.Fatal(err)
			}
		}
		best = min(best, time.Since(t))
	}
	n := time.Duration(len(jobs))
	b.ReportMetric(float64((best/n).Nanoseconds())/1000, "best-us/image")
	b.ReportMetric(float64(time.Since(start).Microseconds())/float64(b.N)/float64(n), "us/image")
	b.ReportMetric(float64(n)*float64(time.Second)/float64(best), "images/s")
	b.ReportMetric(0, "ns/op")
}
