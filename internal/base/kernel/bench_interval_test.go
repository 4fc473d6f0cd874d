//go:build cgo && stoker_libjpeg

package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Which restart interval is best, and what it costs:
//
//	STOKER_BENCH_PHOTOS=folder go test -bench Interval -benchtime 10x ./internal/base/kernel
//
// Each picture is rewritten at each interval that a wish and a budget lead to, and three
// boxes of RandomResizedCrop are decoded of each of these files, one after the other; a
// file's time is the sum of its boxes' fastest passes. So all combinations are seen by
// one run. STOKER_BENCH_EVERY=n takes one picture in n.
func BenchmarkInterval(b *testing.B) {
	files := everyNth(benchPhotos(b))
	l := NewLane()
	defer l.Close()
	wishes := []int{1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 65535}
	budgets := []int{100, 150, 200, 300, 10000} // hundredths of a percent
	type variant struct {
		jpeg []byte
		best [3]time.Duration
	}
	type picture struct {
		boxes    [3]crop3
		variants map[int]*variant // by interval; -1: as it was
		chosen   [][]int          // by wish and budget
	}
	r := rand.New(rand.NewPCG(7, 8))
	var all []picture
	for _, f := range files {
		p := picture{variants: map[int]*variant{-1: {jpeg: f.jpeg}}}
		for i := range p.boxes {
			p.boxes[i] = drawCrop(r, f.head.W, f.head.H)
		}
		whole := true
		for _, w := range wishes {
			var row []int
			for _, g := range budgets {
				out, done, err := l.IndexJPEG(nil, f.jpeg, IndexOptions{Segment: w, Growth: g})
				whole = whole && err == nil
				at := done.Interval
				if done.Kept {
					at = -1
				}
				if p.variants[at] == nil {
					p.variants[at] = &variant{jpeg: out}
				}
				row = append(row, at)
			}
			p.chosen = append(p.chosen, row)
		}
		if whole {
			all = append(all, p)
		}
	}
	var dst []byte
	for b.Loop() {
		for i := range all {
			p := &all[i]
			for k := range p.boxes {
				box := p.boxes[k].box
				dst = append(dst[:0], make([]byte, box.W*box.H*3)...)
				for _, v := range p.variants {
					j := Job{JPEG: v.jpeg, Steps: []Step{box}, Dst: dst}
					t := time.Now()
					if err := l.Run(&j); err != nil {
						b.Fatal(err)
					}
					if d := time.Since(t); v.best[k] == 0 || d < v.best[k] {
						v.best[k] = d
					}
				}
			}
		}
	}
	us := func(v *variant) float64 { return float64((v.best[0] + v.best[1] + v.best[2]).Nanoseconds()) / 3000 }
	var was float64
	var size int
	for i := range all {
		was, size = was+us(all[i].variants[-1]), size+len(all[i].variants[-1].jpeg)
	}
	n := float64(len(all))
	var text strings.Builder
	fmt.Fprintf(&text, "%d pictures, %.0f bytes and %.1f us each untouched\n", len(all), float64(size)/n, was/n)
	for w, wish := range wishes {
		for g, budget := range budgets {
			var is float64
			became, indexed, mcus := 0, 0, 0
			for i := range all {
				at := all[i].chosen[w][g]
				v := all[i].variants[at]
				is, became = is+us(v), became+len(v.jpeg)
				if at > 0 {
					indexed, mcus = indexed+1, mcus+at
				}
			}
			fmt.Fprintf(&text, "wish %5d  budget %5.2f %%  growth %+.2f %%  indexed %5.1f %%  interval %5.1f  %6.1f us  %.3f times\n",
				wish, float64(budget)/100, 100*float64(became-size)/float64(size), 100*float64(indexed)/n, float64(mcus)/float64(max(indexed, 1)), is/n, was/is)
		}
	}
	fmt.Print(text.String())
	b.ReportMetric(0, "ns/op")
}

// BenchmarkUnread measures what a table of segments could save a reader: which
// share of the bytes of indexed files is between the first and the last segment of
// a box, and which is in segments of the box.
func BenchmarkUnread(b *testing.B) {
	l := NewLane()
	defer l.Close()
	files := benchPhotos(b)
	var all, between, within, segments int
	for b.Loop() {
		r := rand.New(rand.NewPCG(7, 8))
		all, between, within, segments = 0, 0, 0, 0
		for _, f := range indexed(b, l, files) {
			h, err := readHeader(f.jpeg)
			if err != nil || h.Restart == 0 {
				continue
			}
			at := segmentsOf(f.jpeg)
			cols, tall := mcusPerRow(&h, f.jpeg), 8
			for i := range h.Components {
				if h.Components > 1 {
					tall = max(tall, 8*int(f.jpeg[sof(f.jpeg)+11+3*i]&15))
				}
			}
			wide := (h.W + cols - 1) / cols
			wide = (wide + 7) / 8 * 8
			for range 3 {
				box := drawCrop(r, f.head.W, f.head.H).box
				need := map[int]bool{}
				first, last := len(at), 0
				for y := box.Y / tall; y <= (box.Y+box.H-1)/tall; y++ {
					for x := box.X / wide; x <= min((box.X+box.W-1)/wide, cols-1); x++ {
						s := (y*cols + x) / h.Restart
						need[s], first, last = true, min(first, s), max(last, s)
					}
				}
				all += len(f.jpeg)
				between += at[last+1] - at[first]
				segments += len(need)
				for s := range need {
					within += at[s+1] - at[s]
				}
			}
		}
	}
	b.ReportMetric(100*float64(between)/float64(all), "%between")
	b.ReportMetric(100*float64(within)/float64(all), "%within")
	b.ReportMetric(float64(segments)/float64(3*len(files)), "segments/box")
	b.ReportMetric(0, "ns/op")
}

// segmentsOf is where the segments of a scan begin, and where the last one ends.
func segmentsOf(jpeg []byte) (at []int) {
	i := bytes.LastIndex(jpeg, []byte{0xff, 0xda})
	at = append(at, i+2+int(jpeg[i+2])<<8+int(jpeg[i+3]))
	for i = at[0]; i+1 < len(jpeg); i++ {
		if jpeg[i] == 0xff && jpeg[i+1]&0xf8 == 0xd0 {
			at = append(at, i+2)
		}
	}
	return append(at, len(jpeg))
}

// everyNth is one picture in STOKER_BENCH_EVERY.
func everyNth(files []photo) (some []photo) {
	n, err := strconv.Atoi(os.Getenv("STOKER_BENCH_EVERY"))
	if err != nil || n < 1 {
		n = 1
	}
	for i := 0; i < len(files); i += n {
		some = append(some, files[i])
	}
	return some
}
