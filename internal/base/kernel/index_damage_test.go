//go:build cgo && stoker_libjpeg

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// segment gives the bounds of the first segment of a marker, and of what follows it.
func segment(t testing.TB, jpeg []byte, marker byte) (from, to int) {
	t.Helper()
	for at := 2; jpeg[at+1] != 0xd9; {
		n := 2 + int(binary.BigEndian.Uint16(jpeg[at+2:]))
		if jpeg[at+1] == marker {
			return at, at + n
		}
		at += n
	}
	t.Fatalf("no segment %#x", marker)
	return 0, 0
}

// splice replaces jpeg[from:to].
func splice(jpeg []byte, from, to int, by ...byte) []byte {
	return append(append(append([]byte{}, jpeg[:from]...), by...), jpeg[to:]...)
}

// restartAt finds restart marker number i of a scan, from 0.
func restartAt(t testing.TB, jpeg []byte, i int) int {
	t.Helper()
	h, err := readHeader(jpeg)
	if err != nil {
		t.Fatal(err)
	}
	for at := h.scan; at+1 < len(jpeg); at++ {
		if jpeg[at] == 0xff && jpeg[at+1]&0xf8 == 0xd0 {
			if i--; i < 0 {
				return at
			}
		}
	}
	t.Fatal("too few restart markers")
	return 0
}

// Every class of damage is told apart from what is only not built, and says what it is.
func TestIndexDamage(t *testing.T) {
	l := NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(51, 52))
	plain := encodeKind(t, r, "4:2:0", 150, 90, encodeOptions{quality: 80})
	restart := encodeKind(t, r, "4:4:4", 150, 90, encodeOptions{quality: 80, restart: 4})
	progressive := encodeKind(t, r, "4:2:0", 150, 90, encodeOptions{quality: 80, progressive: true})
	separate := encodeKind(t, r, "4:4:4", 150, 90, encodeOptions{quality: 80, separate: true})
	h, _ := readHeader(plain)
	sofAt := sof(plain)
	quant, quantEnd := segment(t, plain, 0xdb)
	huff, _ := segment(t, plain, 0xc4)
	sos, _ := segment(t, plain, 0xda)
	patched := func(b []byte, at int, by ...byte) []byte { return splice(b, at, at+len(by), by...) }
	ended := func(b []byte) []byte { return append(append([]byte{}, b...), 0xff, 0xd9) }
	mark := func(i int) int { return restartAt(t, restart, i) }
	secondScan := bytes.Index(separate[h.scan:], []byte{0xff, 0xda}) + h.scan
	wide := patched(separate, sof(separate)+11, 0x44) // 16 blocks of luma an MCU
	big := patched(progressive, sof(progressive)+5, 0x28, 0, 0x28, 0)
	big = append(append(big[:len(big)-2:len(big)-2], make([]byte, 1<<20)...), 0xff, 0xd9)

	for _, c := range []struct {
		name        string
		jpeg        []byte
		unsupported bool
		text        string
		strict      bool // progressive pictures are refused
	}{
		{"empty", nil, false, "empty", false},
		{"no start marker", plain[1:], false, "no start marker", false},
		{"cut in a table", plain[:quant+20], false, "ends", false},
		{"cut in the scan", plain[:len(plain)/2], false, "end marker", false},
		{"cut in the scan, with an end marker", ended(plain[:len(plain)/2]), false, "premature end", false},
		{"bytes after the scan", splice(plain, len(plain)-2, len(plain)-2, make([]byte, 20)...), false, "extraneous bytes", false},
		{"a Huffman table of too many codes", patched(plain, huff+5, 3), false, "Huffman", false},
		{"no quantisation table", splice(plain, quant, quantEnd), false, "uantization table", false},
		{"two frame headers", splice(plain, sos, sos, plain[sofAt:sofAt+19]...), false, "second frame", false},
		{"more pixels than bytes", patched(plain, sofAt+5, 0x60, 0, 0x60, 0), false, "declares", false},
		{"a few rows too many", patched(plain, sofAt+5, 0, 130), false, "premature end", false},
		{"a few rows too few", patched(plain, sofAt+5, 0, 60), false, "extraneous bytes", false},
		{"a restart marker missing", splice(restart, mark(3), mark(3)+2), false, "", false},
		{"a restart marker of another number", patched(restart, mark(3)+1, 0xd6), false, "restart marker is missing", false},
		{"a restart marker too many", splice(restart, mark(3), mark(3), 0xff, 0xd3), false, "", false},
		{"a segment missing", splice(restart, mark(3), mark(4)), false, "restart marker is missing", false},
		{"a marker within a segment", patched(restart, mark(3)-9, 0xff, 0x42), false, "premature end", false},
		{"an end marker within the scan", patched(plain, h.scan+500, 0xff, 0xd9), false, "premature end", false},
		{"an unfinished progressive picture", splice(progressive, bytes.LastIndex(progressive, []byte{0xff, 0xda}), len(progressive)-2), true, "unfinished", false},
		{"a progressive picture", progressive, true, "progressive", true},
		{"an arithmetic-coded picture", encodeKind(t, r, "gray", 150, 90, encodeOptions{quality: 80, arithmetic: true}), true, "arithmetic", false},
		{"12 bits", patched(plain, sofAt+4, 12), true, "12 bits", false},
		{"lossless", patched(plain, sofAt+1, 0xc3), true, "lossless", false},
		{"a picture without its last scans", append(bytes.Clone(separate[:secondScan]), 0xff, 0xd9), false, "has none", false},
		{"tables that change between scans", splice(separate, secondScan, secondScan, plain[quant:quantEnd]...), true, "between scans", false},
		{"an MCU of 18 blocks", wide, true, "one scan", false},
		{"100 Mpixel in several scans", big, true, "MiB", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, done, err := l.IndexJPEG([]byte("x"), c.jpeg, IndexOptions{Progressive: !c.strict})
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatalf("%+v", done)
			}
			known(t, err)
			var u UnsupportedError
			if errors.As(err, &u) != c.unsupported || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%T %v", err, err)
			}
			if string(out) != "x" {
				t.Errorf("dst became %d bytes", len(out))
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("%d bytes allocated", n)
			}
		})
	}
}

// Whatever bytes change: what is rewritten has the pixels that the bytes had.
func TestIndexOfRandomDamage(t *testing.T) {
	l := NewLane()
	defer l.Close()
	want := newReference()
	defer want.Close()
	r := rand.New(rand.NewPCG(61, 62))
	rewritten, refused := 0, 0
	for name, jpeg := range samples(t) {
		for range 300 {
			bad := bytes.Clone(jpeg)
			for range 1 + r.IntN(3) {
				bad[r.IntN(len(bad))] = byte(r.Uint32())
			}
			if sameRewritten(t, l, want, name, bad) {
				rewritten++
			} else {
				refused++
			}
		}
	}
	t.Logf("%d rewritten, %d refused", rewritten, refused)
	if rewritten == 0 || refused == 0 {
		t.Error("one of both is missing")
	}
}

// sameRewritten rewrites what may be anything and, where that succeeds, compares.
func sameRewritten(t *testing.T, l *Lane, want reference, name string, jpeg []byte) bool {
	t.Helper()
	h, err := ReadHeader(jpeg)
	if err != nil || h.W*h.H > 1<<18 {
		return false
	}
	out, done, err := l.IndexJPEG(nil, jpeg, IndexOptions{Progressive: true, Growth: 10000})
	if err != nil {
		known(t, err)
		return false
	}
	was := Job{JPEG: jpeg, Dst: make([]byte, 3*h.W*h.H)}
	is := Job{JPEG: out, Dst: make([]byte, 3*h.W*h.H)}
	// Not by libjpeg's entropy decoder, which leaves coefficients of a first
	// attempt in blocks with fill bytes in their data.
	if err := l.Run(&was); err != nil {
		t.Fatalf("%s: %+v: what does not decode was rewritten: %v", name, done, err)
	}
	rewritten := want.stock
	if _, own := readFrame(jpeg); own {
		rewritten = want.of(out)
	}
	if err := rewritten.Run(&is); err != nil {
		t.Fatalf("%s: %+v: what was rewritten does not decode: %v", name, done, err)
	}
	if d := diff(is.Dst, was.Dst); d != "" {
		t.Fatalf("%s: %+v: %s", name, done, d)
	}
	return true
}

func FuzzIndexJPEG(f *testing.F) {
	for _, jpeg := range samples(f) {
		f.Add(jpeg)
	}
	l, want := NewLane(), newReference()
	f.Fuzz(func(t *testing.T, jpeg []byte) {
		sameRewritten(t, l, want, "fuzzed", jpeg)
	})
}

// Damage in segments that a region does not show is not seen; in those that it
// shows, and of the markers before them, it is.
func TestRegionAmidDamage(t *testing.T) {
	l := NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(81, 82))
	jpeg := encodeKind(t, r, "4:4:4", 320, 240, encodeOptions{quality: 80, restart: 8}) // 5 segments a row, 150
	inside := Step{Op: OpCrop, X: 130, Y: 82, W: 60, H: 30}                             // of segments 2, rows 10 to 13
	want := run(t, l, Job{JPEG: jpeg, Steps: []Step{inside}})
	decode := func(jpeg []byte) ([]byte, error) {
		j := Job{JPEG: jpeg, Steps: []Step{inside}, Dst: make([]byte, len(want))}
		return j.Dst, l.Run(&j)
	}
	shown := map[int]bool{}
	for row := 10; row <= 13; row++ {
		shown[5*row+2] = true
	}
	for seg := 1; seg < 149; seg++ {
		from, to := restartAt(t, jpeg, seg-1)+2, restartAt(t, jpeg, seg)
		bad := bytes.Clone(jpeg)
		for i := from + 2; i < to; i++ { // one code of 16 ones is none
			bad[i] = 0xff
			if i++; i < to {
				bad[i] = 0
			}
		}
		if bad[to-1] == 0xff {
			bad[to-1] = 0
		}
		got, err := decode(bad)
		switch {
		case shown[seg]:
			if err == nil {
				t.Errorf("segment %d is shown and damaged, and passes", seg)
			} else {
				known(t, err)
			}
		case err != nil:
			t.Errorf("segment %d is not shown: %v", seg, err)
		case !bytes.Equal(got, want):
			t.Errorf("segment %d is not shown: other pixels", seg)
		}
		// A marker that is missing, or of another number, is damage as soon as it
		// is passed on the way to the region; it never shifts the picture.
		for _, bad := range [][]byte{splice(jpeg, to, to+2), splice(jpeg, to, to+2, 0xff, 0xd0+(jpeg[to+1]-0xd0+3)&7)} {
			switch got, err := decode(bad); {
			case err == nil && !bytes.Equal(got, want):
				t.Errorf("the marker after segment %d: other pixels", seg)
			case err == nil && seg < 5*13:
				t.Errorf("the marker after segment %d is wrong, and that passes", seg)
			}
		}
	}
	// A round of segments is missing, and the numbers agree: the data then is what
	// libjpeg reads in order.
	bad := splice(jpeg, restartAt(t, jpeg, 10), restartAt(t, jpeg, 18))
	stock := stocked()
	defer stock.Close()
	if got, err := decode(bad); err == nil && !bytes.Equal(got, run(t, stock, Job{JPEG: bad, Steps: []Step{inside}})) {
		t.Error("8 segments are missing: other pixels than libjpeg's")
	}
}

// A picture of more symbols than are kept at a time is read again to be written.
func TestIndexInBands(t *testing.T) {
	l := NewLane()
	defer l.Close()
	r := rand.New(rand.NewPCG(101, 102))
	for _, o := range []encodeOptions{{quality: 100, subsampling: "4:4:4"}, {quality: 100, subsampling: "4:2:0", progressive: true}} {
		jpeg, err := encode(random(r, 1601, 1603, 3), o)
		if err != nil {
			t.Fatal(err)
		}
		if _, done := index(t, l, jpeg, IndexOptions{Progressive: true}); done.Kept || done.Interval == 0 {
			t.Errorf("%+v: %+v", o, done)
		}
	}
}
