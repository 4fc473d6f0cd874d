//go:build cgo && stoker_libjpeg

package kernel

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What it costs to send the part of a packed picture that a crop needs, instead of decoding
// the crop, and how many bytes that is:
//
//	STOKER_BENCH_PHOTOS=folder go test -bench Strip -benchtime 5x ./internal/base/kernel
//
// Each picture is packed as stoker pack does, and three boxes of RandomResizedCrop are sent and
// decoded in turn; a box's time is its fastest pass. For decoders that interpolate chroma
// (444), only pictures without subsampled chroma are divided.
func BenchmarkStrip(b *testing.B) {
	l := NewLane()
	defer l.Close()
	type box struct {
		jpeg         []byte
		crop         crop3
		sent, decode time.Duration
	}
	r := rand.New(rand.NewPCG(7, 8))
	var all []box
	files := 0
	for _, f := range everyNth(benchPhotos(b)) {
		jpeg, _, err := l.IndexJPEG(nil, f.jpeg, IndexOptions{})
		if err != nil {
			continue // of a kind that is not packed with an index
		}
		files++
		for range 3 {
			all = append(all, box{jpeg: jpeg, crop: drawCrop(r, f.head.W, f.head.H)})
		}
	}
	var out, dst []byte
	var bytes, sent, only int
	for b.Loop() {
		bytes, sent, only = 0, 0, 0
		for i := range all {
			p := &all[i]
			c := p.crop.box
			t := time.Now()
			var err error
			if out, _, err = l.Strip(out[:0], p.jpeg, c.X, c.Y, c.W, c.H, true); err != nil {
				b.Fatal(err)
			}
			if d := time.Since(t); p.sent == 0 || d < p.sent {
				p.sent = d
			}
			bytes, sent = bytes+len(p.jpeg), sent+len(out)
			dst = append(dst[:0], make([]byte, c.W*c.H*3)...)
			j := Job{JPEG: p.jpeg, Steps: []Step{c}, Dst: dst}
			t = time.Now()
			if err := l.Run(&j); err != nil {
				b.Fatal(err)
			}
			if d := time.Since(t); p.decode == 0 || d < p.decode {
				p.decode = d
			}
			if out, _, err = l.Strip(out[:0], p.jpeg, c.X, c.Y, c.W, c.H, false); err != nil {
				b.Fatal(err)
			}
			only += len(out)
		}
	}
	var sending, decoding time.Duration
	for i := range all {
		sending, decoding = sending+all[i].sent, decoding+all[i].decode
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(files), "pictures")
	b.ReportMetric(float64(sending)/float64(decoding), "time/decoding")
	b.ReportMetric(float64(sent)/float64(bytes), "bytes/file")
	b.ReportMetric(float64(only)/float64(bytes), "bytes-444/file")
	b.ReportMetric(float64(sending.Nanoseconds())/1e3/float64(len(all)), "us/strip")
}
