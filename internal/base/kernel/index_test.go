//go:build cgo && stoker_libjpeg

package kernel

import (
	"bytes"
	"errors"
	"image/jpeg"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// kinds are the subsamplings and colour models that the encoder writes.
var kinds = []string{"4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1", "gray", "cmyk", "ycck", "rgb"}

// encodeKind encodes a picture of w x h that looks like a photograph.
func encodeKind(t failing, r *rand.Rand, kind string, w, h int, o encodeOptions) []byte {
	t.Helper()
	c := 3
	o.subsampling = "4:4:4"
	switch kind {
	case "gray":
		c = 1
	case "cmyk":
		c = 4
	case "ycck":
		c, o.ycck, o.subsampling = 4, true, "4:2:0"
	case "rgb":
		o.rgb = true
	default:
		o.subsampling = kind
	}
	b, err := encode(smooth(r, w, h, c), o)
	if err != nil {
		t.Fatalf("%s %dx%d: %v", kind, w, h, err)
	}
	return b
}

// index rewrites jpeg and makes sure that nothing of it is lost: the pixels by
// libjpeg's own decoder and by the standard library's, the segments by a walk
// over them.
func index(t failing, l *Lane, jpeg []byte, o IndexOptions) ([]byte, Indexed) {
	t.Helper()
	out, done, err := l.IndexJPEG([]byte("before"), jpeg, o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(out, []byte("before")) {
		t.Fatal("what dst held is gone")
	}
	out = out[len("before"):]
	h, err := ReadHeader(out)
	if err != nil {
		t.Fatal(err)
	}
	if was, _ := ReadHeader(jpeg); h.Restart != done.Interval || h.W != was.W || h.H != was.H || h.Components != was.Components {
		t.Fatalf("%+v became %+v, said to be %+v", was, h, done)
	}
	stock := stocked()
	defer stock.Close()
	if d := diff(run(t, stock, Job{JPEG: out}), run(t, stock, Job{JPEG: jpeg})); d != "" {
		t.Fatalf("other pixels: %s", d)
	}
	if a, b := kept(t, jpeg), kept(t, out); !slices.Equal(a, b) {
		t.Fatalf("other segments: %.200q, was %.200q", b, a)
	}
	return out, done
}

// kept lists the segments that a rewriting keeps: all but those of the coding.
func kept(t failing, jpeg []byte) (all []string) {
	t.Helper()
	for at := 2; at+2 <= len(jpeg); {
		m := jpeg[at+1]
		switch {
		case jpeg[at] != 0xff || m == 0xff:
			at++
			continue
		case m == 0, m >= 0xd0 && m <= 0xd8:
			at += 2
			continue
		case m == 0xd9:
			return all
		}
		n := 2 + (int(jpeg[at+2])<<8 | int(jpeg[at+3]))
		seg := string(jpeg[at : at+n])
		switch {
		case m == 0xc0, m == 0xc1, m == 0xc2:
			all = append(all, "frame"+seg[2:])
		case m != 0xc4 && m != 0xda && m != 0xdd:
			all = append(all, seg)
		}
		at += n
	}
	t.Fatal("no end marker")
	return nil
}

// withSegments adds segments after the start marker, and bytes after the end.
func withSegments(jpeg []byte) []byte {
	out := append([]byte{}, jpeg[:2]...)
	for i, text := range []string{"Exif\x00\x00MM\x00*", "ICC_PROFILE\x00\x01\x01profile", "Adobe not really", "Photoshop 3.0\x00"} {
		out = append(out, 0xff, []byte{0xe1, 0xe2, 0xeb, 0xed}[i], 0, byte(2+len(text)))
		out = append(out, text...)
	}
	out = append(out, 0xff, 0xfe, 0, 2+7, 'c', 'o', 'm', 0xff, 0xd9, 0xff, 0xda)
	out = append(out, jpeg[2:]...)
	return append(out, "after"...)
}

func TestIndexKeepsPicturesAndMetadata(t *testing.T) {
	l := NewLane()
	defer l.Close()
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		way := rapid.SampledFrom([]string{"sequential", "sequential", "progressive", "separate"}).Draw(t, "way")
		o := encodeOptions{quality: rapid.IntRange(1, 100).Draw(t, "quality"), restart: rapid.SampledFrom([]int{0, 0, 1, 5, 60}).Draw(t, "restart")}
		o.progressive, o.separate, o.optimize = way == "progressive", way == "separate", rapid.Bool().Draw(t, "optimize")
		w, h := rapid.IntRange(1, 260).Draw(t, "w"), rapid.IntRange(1, 90).Draw(t, "h")
		jpeg := withSegments(encodeKind(t, r, kind, w, h, o))
		opt := IndexOptions{Segment: rapid.SampledFrom([]int{0, 1, 4, 16}).Draw(t, "segment"), Growth: 10000, Progressive: true}
		out, done := index(t, l, jpeg, opt)
		if done.Converted != o.progressive || done.Kept {
			t.Fatalf("said to be %+v", done)
		}
		// Its own result it leaves as good as it is, unless what it may take, which grew with it,
		// now has room for more markers.
		again, then := index(t, l, out, opt)
		if then.Interval > done.Interval || then.Interval == done.Interval && done.Interval > 0 && !bytes.Equal(again, out) {
			t.Fatalf("not the same again: %+v, then %+v", done, then)
		}
	})
}

// The same pixels come out of the twin and of the standard library, whose decoders
// are others.
func TestIndexedByOthers(t *testing.T) {
	l := NewLane()
	defer l.Close()
	twin := newLane("go")
	r := rand.New(rand.NewPCG(91, 92))
	for _, kind := range kinds {
		jpeg := encodeKind(t, r, kind, 203, 77, encodeOptions{quality: 85})
		out, done := index(t, l, jpeg, IndexOptions{Growth: 1000})
		if done.Interval == 0 {
			t.Errorf("%s: no markers", kind)
		}
		if d := diff(run(t, twin, Job{JPEG: out}), run(t, twin, Job{JPEG: jpeg})); d != "" {
			t.Errorf("%s: %s", kind, d)
		}
	}
	for name, b := range photos(t) {
		out, _ := index(t, l, b, IndexOptions{})
		if _, err := jpeg.Decode(bytes.NewReader(out)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Photographs stay within the budget and get their markers, with which two rows are
// the longest interval, and the result does not depend on the processor.
func TestIndexPhotographs(t *testing.T) {
	l := NewLane()
	defer l.Close()
	base := newLane("base")
	defer base.Close()
	was, is := 0, 0
	intervals := map[int]int{}
	for name, jpeg := range testPhotos(t) {
		out, done := index(t, l, jpeg, IndexOptions{Progressive: true})
		if other, _ := index(t, base, jpeg, IndexOptions{Progressive: true}); !bytes.Equal(out, other) {
			t.Errorf("%s: other bytes on another target", name)
		}
		if len(out) > len(jpeg)+len(jpeg)/50 && !done.Converted {
			t.Errorf("%s: %d bytes became %d", name, len(jpeg), len(out))
		}
		h, err := readHeader(out)
		if err != nil {
			t.Fatal(err)
		}
		if cols := mcusPerRow(&h, out); done.Interval >= 2*cols || done.Interval > 0 && done.Interval < min(indexSegment, cols) || done.Interval == 0 && len(out) > 8<<10 {
			t.Errorf("%s: an interval of %d for rows of %d", name, done.Interval, cols)
		}
		intervals[done.Interval]++
		was, is = was+len(jpeg), is+len(out)
	}
	t.Logf("%d bytes became %d (%+.2f %%); intervals %v", was, is, 100*float64(is-was)/float64(was), intervals)
}

func mcusPerRow(h *header, jpeg []byte) int {
	at := sof(jpeg)
	wide := 8
	for i := range h.Components {
		if h.Components > 1 {
			wide = max(wide, 8*int(jpeg[at+11+3*i]>>4))
		}
	}
	return (h.W + wide - 1) / wide
}

// 3,000 boxes of 270 indexed pictures, of every kind and of odd sizes, are what
// libjpeg alone makes of the whole picture before it was rewritten.
func TestRegionsOfIndexed(t *testing.T) {
	l := NewLane()
	defer l.Close()
	stock := stocked()
	defer stock.Close()
	r := rand.New(rand.NewPCG(71, 72))
	originals := photos(t)
	from := slices.Sorted(maps.Keys(originals))
	pixels := map[string]Pixels{}
	for _, name := range from {
		b := originals[name]
		h, _ := ReadHeader(b)
		pixels[name] = Pixels{Pix: run(t, stock, Job{JPEG: b}), W: h.W, H: h.H, C: 3}
	}
	boxes := 0
	for i := range 270 {
		p := pixels[from[r.IntN(len(from))]]
		w, h := 30+r.IntN(min(p.W-30, 400)), 30+r.IntN(min(p.H-30, 250))
		p = crop(p, r.IntN(p.W-w+1), r.IntN(p.H-h+1), w, h)
		kind := []string{"4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1", "gray"}[i%6]
		o := encodeOptions{quality: 60 + r.IntN(36), subsampling: kind, progressive: i%9 == 0, separate: i%10 == 5}
		if kind == "gray" {
			p = toGray(p)
		}
		jpeg, err := encode(p, o)
		if err != nil {
			t.Fatal(err)
		}
		out, done, err := l.IndexJPEG(nil, jpeg, IndexOptions{Progressive: true, Growth: 1000, Segment: 2 + r.IntN(12)})
		if err != nil || done.Interval == 0 {
			t.Fatalf("%s %dx%d: %+v, %v", kind, w, h, done, err)
		}
		whole := Pixels{Pix: run(t, stock, Job{JPEG: jpeg}), W: w, H: h, C: 3}
		for range 12 {
			x, y, bw, bh := box(r, w, h)
			got := run(t, l, Job{JPEG: out, Steps: []Step{{Op: OpCrop, X: x, Y: y, W: bw, H: bh}}})
			if d := diff(got, crop(whole, x, y, bw, bh).Pix); d != "" {
				t.Fatalf("%s %dx%d every %d: box %d,%d %dx%d: %s", kind, w, h, done.Interval, x, y, bw, bh, d)
			}
			boxes++
		}
	}
	t.Logf("%d boxes", boxes)
	if boxes < 3000 {
		t.Error("fewer than 3000")
	}
}

func toGray(p Pixels) Pixels {
	g := newPixels(p.W, p.H, 1)
	for i := range g.Pix {
		g.Pix[i] = p.Pix[3*i+1]
	}
	return g
}

// A file that cannot compensate for markers stays unchanged.
func TestIndexKeepsWhatDoesNotFit(t *testing.T) {
	l := NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(5, 5))
	jpeg := encodeKind(t, r, "4:2:0", 400, 300, encodeOptions{quality: 80, optimize: true})
	for _, growth := range []int{1, 10, 30, 100, 1000} {
		out, done := index(t, l, jpeg, IndexOptions{Growth: growth, Segment: 1})
		most := len(jpeg) + len(jpeg)*growth/10000
		if len(out) > most || done.Kept != bytes.Equal(out, jpeg) {
			t.Errorf("growth %d: %d bytes became %d, the limit is %d: %+v", growth, len(jpeg), len(out), most, done)
		}
		t.Logf("growth %d: %d to %d bytes, %+v", growth, len(jpeg), len(out), done)
	}
}

func TestIndexRefuses(t *testing.T) {
	l := NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(6, 6))
	// A number of lines after the scan, which some cameras write, adds nothing.
	lines := encodeKind(t, rand.New(rand.NewPCG(3, 4)), "gray", 40, 30, encodeOptions{quality: 80})
	lines = slices.Concat(lines[:len(lines)-2], []byte{0xff, 0xdc, 0, 4, 0, 30, 0xff, 0xd9})
	if _, _, err := l.IndexJPEG(nil, lines, IndexOptions{}); err != nil {
		t.Errorf("lines: %v", err)
	}
	for name, o := range map[string]encodeOptions{"progressive": {quality: 80, progressive: true}, "arithmetic": {quality: 80, arithmetic: true}} {
		_, _, err := l.IndexJPEG(nil, encodeKind(t, r, "4:2:0", 60, 50, o), IndexOptions{})
		var u UnsupportedError
		if !errors.As(err, &u) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
