//go:build cgo && stoker_libjpeg

package kernel

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// What entry points save, and what they cost, beside the same pictures packed:
//
//	STOKER_BENCH_PHOTOS=folder go test -bench Entries -benchtime 10x ./internal/base/kernel
//
// Three boxes of each picture are decoded in each way; a way's time is the sum of the fastest
// passes. STOKER_BENCH_EVERY=n takes one picture in n.
func BenchmarkEntries(b *testing.B) {
	files := everyNth(benchPhotos(b))
	l := NewLane()
	defer l.Close()
	type way struct {
		name    string
		spacing int // of known points, or of those that are recorded
		records bool
		packed  bool
	}
	ways := []way{{name: "untouched"}, {name: "packed", packed: true}, {name: "recording", spacing: 600, records: true}}
	for _, spacing := range []int{300, 400, 500, 600, 650, 700, 800, 1000} {
		ways = append(ways, way{name: fmt.Sprintf("known, %d bytes", spacing), spacing: spacing})
	}
	for _, kind := range []struct {
		name string
		box  func(r *rand.Rand, w, h int) Step
	}{
		{"RandomResizedCrop", func(r *rand.Rand, w, h int) Step { return drawCrop(r, w, h).box }},
		{"scale 0.05 to 0.4", smallBox},
	} {
		b.Run(kind.name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(7, 8))
			boxes := make([][3]Step, len(files))
			jpegs := make([][]byte, len(files)*len(ways))
			known := make([][]Point, len(files)*len(ways))
			best := make([]time.Duration, len(files)*len(ways)*3)
			points, extra, jumps := make([]int, len(ways)), make([]int, len(ways)), make([]int, len(ways))
			for i, f := range files {
				for k := range boxes[i] {
					boxes[i][k] = kind.box(r, f.head.W, f.head.H)
				}
				for w, way := range ways {
					at := i*len(ways) + w
					jpegs[at] = f.jpeg
					switch {
					case way.packed:
						out, _, err := l.IndexJPEG(nil, f.jpeg, IndexOptions{Segment: 6, Growth: 200})
						if err == nil {
							jpegs[at] = out
						}
					case way.spacing > 0 && !way.records:
						known[at] = pointsOf(b, l, f.jpeg, way.spacing)
						points[w] += len(known[at])
					}
				}
			}
			var dst []byte
			for b.Loop() {
				// All pictures in one way, then in the next: a decode of a picture that was just
				// decoded is faster, because the processor remembers its branches.
				for w, way := range ways {
					for i := range files {
						at := i*len(ways) + w
						for k, box := range boxes[i] {
							dst = append(dst[:0], make([]byte, box.W*box.H*3)...)
							e := Entries{Known: known[at]}
							if way.records {
								e.Spacing = way.spacing
							}
							j := Job{JPEG: jpegs[at], Steps: []Step{box}, Dst: dst, Entries: &e}
							t := time.Now()
							if err := l.Run(&j); err != nil {
								b.Fatal(err)
							}
							d := time.Since(t)
							if p := &best[at*3+k]; *p == 0 {
								*p, extra[w], jumps[w] = d, extra[w]+e.Extra, jumps[w]+e.Jumps
							} else {
								*p = min(*p, d)
							}
						}
					}
				}
			}
			var text strings.Builder
			size := 0
			for _, f := range files {
				size += len(f.jpeg)
			}
			var was float64
			for w, way := range ways {
				var is time.Duration
				for i := range files {
					for k := range 3 {
						is += best[(i*len(ways)+w)*3+k]
					}
				}
				n := float64(3 * len(files))
				us := float64(is.Nanoseconds()) / 1000 / n
				if w == 0 {
					was = us
				}
				fmt.Fprintf(&text, "%-18s %7.1f us  %.3f times", way.name, us, was/us)
				if points[w] > 0 {
					fmt.Fprintf(&text, "  points: one in %.0f bytes, jumps %.1f, MCUs read to compare %.1f", float64(size)/float64(points[w]), float64(jumps[w])/n, float64(extra[w])/n)
				}
				text.WriteString("\n")
			}
			fmt.Print(text.String())
			b.ReportMetric(0, "ns/op")
		})
	}
}

// smallBox is a box of RandomResizedCrop with scale 0.05 to 0.4.
func smallBox(r *rand.Rand, w, h int) Step {
	for {
		if box := drawCrop(r, w, h).box; box.W*box.H*20 >= w*h && box.W*box.H*5 <= 2*w*h {
			return box
		}
	}
}
