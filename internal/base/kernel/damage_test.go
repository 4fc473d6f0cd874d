package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// damaged runs a job over bytes that may be anything: it fails with one of the
// package's errors, or succeeds; it does not panic and does not write outside.
func damaged(t *testing.T, l *Lane, jpeg []byte, steps func(h Header) []Step) error {
	t.Helper()
	h, err := ReadHeader(jpeg)
	if err != nil {
		known(t, err)
		return err
	}
	if h.W*h.H > 1<<18 {
		return FormatError("larger than this test wants")
	}
	j := Job{JPEG: jpeg, Steps: steps(h)}
	w, hh, c, err := ResultSize(j.Steps, h.W, h.H, 3)
	if err != nil {
		t.Fatal(err)
	}
	const guard = 64
	buf := make([]byte, w*hh*c+2*guard)
	for i := range buf {
		buf[i] = 0xa5
	}
	j.Dst = buf[guard : len(buf)-guard : len(buf)-guard]
	err = l.Run(&j)
	for i := range guard {
		if buf[i] != 0xa5 || buf[len(buf)-1-i] != 0xa5 {
			t.Fatalf("%s wrote outside of its destination", l.target)
		}
	}
	if err != nil {
		known(t, err)
	}
	return err
}

func known(t *testing.T, err error) {
	t.Helper()
	var f FormatError
	var u UnsupportedError
	if !errors.As(err, &f) && !errors.As(err, &u) || err.Error() == "" {
		t.Fatalf("neither damaged nor unsupported: %T %v", err, err)
	}
}

func whole(Header) []Step { return nil }

func inner(h Header) []Step {
	return []Step{
		{Op: OpCrop, X: h.W / 5, Y: h.H / 5, W: (h.W + 1) / 2, H: (h.H + 1) / 2},
		{Op: OpResize, W: 20, H: 17},
		{Op: OpFlipH},
	}
}

// samples are small files of every kind, instead of those of testdata that the
// build cannot write.
func samples(t testing.TB) map[string][]byte {
	r := rand.New(rand.NewPCG(8, 9))
	m := map[string][]byte{}
	add := func(name string, c int, o encodeOptions) {
		b, err := encode(smooth(r, 75, 50, c), o)
		var u UnsupportedError
		if err != nil && !errors.As(err, &u) {
			t.Fatal(err)
		}
		if err != nil {
			if b, err = os.ReadFile("testdata/" + name + ".jpg"); err != nil {
				t.Fatal(err)
			}
		}
		m[name] = b
	}
	add("gray", 1, encodeOptions{quality: 80})
	add("420", 3, encodeOptions{quality: 80, subsampling: "4:2:0"})
	add("restart440", 3, encodeOptions{quality: 90, subsampling: "4:4:0", restart: 4})
	add("p422", 3, encodeOptions{quality: 70, subsampling: "4:2:2"})
	add("progressive411", 3, encodeOptions{quality: 80, subsampling: "4:1:1", progressive: true})
	add("cmyk", 4, encodeOptions{quality: 80, subsampling: "4:4:4"})
	return m
}

func TestTruncation(t *testing.T) {
	each(t, func(t *testing.T, l *Lane) {
		for name, jpeg := range samples(t) {
			_, taken := readFrame(jpeg)
			strict := taken || byLibjpeg(l)
			for i := range 200 {
				n := len(jpeg) * i / 200
				if err := damaged(t, l, jpeg[:n], whole); err == nil {
					t.Fatalf("%s: %d of %d bytes pass for a whole picture", name, n, len(jpeg))
				}
				// With an end marker it looks whole, and is not.
				cut := append(append([]byte{}, jpeg[:n]...), 0xff, 0xd9)
				err := damaged(t, l, cut, whole)
				if err == nil && n < len(jpeg)-8 && name != "progressive411" && strict {
					t.Fatalf("%s: %d of %d bytes and an end marker pass for a whole picture", name, n, len(jpeg))
				}
				_ = damaged(t, l, cut, inner)
			}
			if err := damaged(t, l, append(append([]byte{}, jpeg...), "trailing bytes"...), whole); err != nil {
				t.Errorf("%s: bytes after the end marker: %v", name, err)
			}
		}
	})
}

func TestEveryHeaderByteFlipped(t *testing.T) {
	each(t, func(t *testing.T, l *Lane) {
		for _, jpeg := range samples(t) {
			h, err := readHeader(jpeg)
			if err != nil {
				t.Fatal(err)
			}
			bad := make([]byte, len(jpeg))
			flips, each := []byte{0xff, 1, 0x80, 0x10}, 1
			if l.target == "go" {
				flips, each = flips[:1], 2 // it is slow
			}
			for i := 0; i < min(h.scan+16, len(jpeg)); i += each {
				for _, x := range flips {
					copy(bad, jpeg)
					bad[i] ^= x
					_ = damaged(t, l, bad, inner)
					if l.target != "go" {
						_ = damaged(t, l, bad, whole)
					}
				}
			}
		}
	})
}

func TestRandomBytes(t *testing.T) {
	each(t, func(t *testing.T, l *Lane) {
		r := rand.New(rand.NewPCG(21, 22))
		for _, jpeg := range samples(t) {
			bad := make([]byte, len(jpeg))
			for range 200 {
				copy(bad, jpeg)
				for range 1 + r.IntN(6) {
					bad[r.IntN(len(bad))] = byte(r.Uint32())
				}
				_ = damaged(t, l, bad, whole)
				_ = damaged(t, l, bad, inner)
			}
		}
		for range 200 {
			noise := random(r, 1+r.IntN(400), 1, 1).Pix
			if err := damaged(t, l, noise, whole); err == nil {
				t.Fatal("noise passes for a picture")
			}
		}
	})
}

// What Run lets pass and Strict does not: bytes that belong to no block, more of them
// than libjpeg reads ahead.
func TestStrict(t *testing.T) {
	each(t, func(t *testing.T, l *Lane) {
		for name, jpeg := range samples(t) {
			if _, taken := readFrame(jpeg); !taken && !byLibjpeg(l) {
				continue // the standard library says nothing of them
			}
			h, err := readHeader(jpeg)
			if err != nil {
				t.Fatal(err)
			}
			end := len(jpeg) - 2
			with := func(extra ...byte) []byte { return slices.Concat(jpeg[:end], extra, jpeg[end:]) }
			narrow := slices.Clone(jpeg)
			binary.BigEndian.PutUint16(narrow[sof(jpeg)+7:], uint16(h.W-32))
			for _, c := range []struct {
				what string
				jpeg []byte
				ok   bool
			}{
				{"as it was", jpeg, true},
				{"bytes after its end", append(slices.Clone(jpeg), "photographer's notes"...), true},
				{"fill bytes before its end", with(0xff, 0xff, 0xff), true},
				{"bytes before its end", with(make([]byte, 20)...), false},
				{"a restart marker and bytes before its end", with(append([]byte{0xff, 0xd5}, make([]byte, 20)...)...), false},
				{"a wrong width", narrow, false},
			} {
				for _, steps := range [][]Step{nil, {{Op: OpCrop, W: 8, H: 8}}} {
					j := Job{JPEG: c.jpeg, Steps: steps, Strict: true}
					hh, err := ReadHeader(c.jpeg)
					if err != nil {
						t.Fatal(err)
					}
					ow, oh, oc, err := ResultSize(steps, hh.W, hh.H, 3)
					if err != nil {
						t.Fatal(err)
					}
					j.Dst = make([]byte, ow*oh*oc)
					var damaged FormatError
					strict := l.Run(&j)
					if c.ok != (strict == nil) || strict != nil && !errors.As(strict, &damaged) {
						t.Errorf("%s with %s, %d steps: %v", name, c.what, len(steps), strict)
					}
					j.Strict = false
					err = l.Run(&j)
					if err != nil && name != "progressive411" {
						t.Errorf("%s with %s, %d steps, not strict: %v", name, c.what, len(steps), err)
					}
					var trailing TrailingError
					if goesOn := errors.As(strict, &trailing); goesOn != (strict != nil && err == nil) {
						t.Errorf("%s with %s, %d steps: %v is told from damage: %v", name, c.what, len(steps), strict, goesOn)
					}
				}
			}
		}
	})
}

// A picture of several scans that ends after the first is none, though libjpeg shows it
// without a word.
func TestMissingScans(t *testing.T) {
	jpeg := samples(t)["progressive411"]
	h, err := readHeader(jpeg)
	if err != nil {
		t.Fatal(err)
	}
	sos := h.scan - 14
	if jpeg[sof(jpeg)+1] != 0xc2 || !bytes.Equal(jpeg[sos:sos+5], []byte{0xff, 0xda, 0, 12, 3}) {
		t.Fatal("not a progressive picture whose first scan has all components")
	}
	// Of one component, then.
	first := slices.Concat(jpeg[:sos], []byte{0xff, 0xda, 0, 8, 1, jpeg[sos+5], 0, 0, 0, 1}, jpeg[h.scan:h.scan+60], []byte{0xff, 0xd9})
	each(t, func(t *testing.T, l *Lane) {
		for name, bad := range map[string][]byte{"one scan": first, "no quantisation tables": withoutTables(jpeg)} {
			if err := damaged(t, l, bad, whole); err == nil {
				t.Errorf("%s: it decodes", name)
			}
		}
	})
}

// A header that promises more than its bytes can hold is refused before
// anything is allocated.
func TestBombs(t *testing.T) {
	each(t, func(t *testing.T, l *Lane) {
		for name, jpeg := range samples(t) {
			at := sof(jpeg)
			for _, side := range []uint16{60000, 13000, 4000} {
				bad := append([]byte{}, jpeg...)
				binary.BigEndian.PutUint16(bad[at+5:], side)
				binary.BigEndian.PutUint16(bad[at+7:], side)
				if _, err := ReadHeader(bad); err == nil {
					t.Errorf("%s: %d bytes pass for %d x %d pixels", name, len(bad), side, side)
				}
				if err := l.Run(&Job{JPEG: bad}); err == nil {
					t.Errorf("%s: %d x %d decoded", name, side, side)
				}
			}
		}
	})
}

// sof finds the frame header's marker.
func sof(jpeg []byte) int {
	at := 2
	for jpeg[at+1] < 0xc0 || jpeg[at+1] > 0xc2 {
		at += 2 + int(binary.BigEndian.Uint16(jpeg[at+2:]))
	}
	return at
}

// A progressive file may not walk over its picture without end: here 500 scans
// of a byte each.
func TestScanBomb(t *testing.T) {
	flat := newPixels(16, 8, 1) // two blocks
	jpeg, err := encode(flat, encodeOptions{quality: 50})
	if err != nil {
		t.Fatal(err)
	}
	h, err := readHeader(jpeg)
	if err != nil {
		t.Fatal(err)
	}
	jpeg[sof(jpeg)+1] = 0xc2
	bomb := append([]byte{}, jpeg[:h.scan-10]...)
	for range 500 {
		// The DC coefficients, each the same as the one before: code 00, twice.
		bomb = append(bomb, 0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0, 0x0f)
	}
	scans := len(bomb)
	bomb = append(bomb, 0xff, 0xd9)
	each(t, func(t *testing.T, l *Lane) {
		if err := damaged(t, l, bomb, whole); err == nil || !strings.Contains(err.Error(), "scans") {
			t.Errorf("%d bytes of scans: %v", scans, err)
		}
	})
}

// A lane that has failed is as good as new, and keeps nothing of the file before.
func TestLaneAfterFailure(t *testing.T) {
	each(t, func(t *testing.T, l *Lane) {
		good := samples(t)["420"]
		want := run(t, l, Job{JPEG: good})
		bare := withoutTables(good)
		first := l.Run(&Job{JPEG: bare, Dst: make([]byte, len(want))})
		for name, jpeg := range samples(t) {
			_, taken := readFrame(jpeg)
			if err := damaged(t, l, append(append([]byte{}, jpeg[:len(jpeg)/2]...), 0xff, 0xd9), whole); err == nil && (taken || byLibjpeg(l)) {
				t.Errorf("%s: half of it decoded", name)
			}
			if d := diff(run(t, l, Job{JPEG: good}), want); d != "" {
				t.Fatalf("after %s: %s", name, d)
			}
			again := l.Run(&Job{JPEG: bare, Dst: make([]byte, len(want))})
			if first == nil || again == nil || first.Error() != again.Error() {
				t.Fatalf("a file without quantisation tables: %v, then %v", first, again)
			}
		}
	})
}

// withoutTables drops the quantisation tables.
func withoutTables(jpeg []byte) []byte {
	out := append([]byte{}, jpeg[:2]...)
	at := 2
	for jpeg[at+1] != 0xda {
		n := 2 + int(binary.BigEndian.Uint16(jpeg[at+2:]))
		if jpeg[at+1] != 0xdb {
			out = append(out, jpeg[at:at+n]...)
		}
		at += n
	}
	return append(out, jpeg[at:]...)
}

func TestJobErrors(t *testing.T) {
	src := newPixels(10, 8, 3)
	jobs := map[string]Job{
		"box outside":     {Src: src, Steps: []Step{{Op: OpCrop, X: 5, W: 6, H: 8}}},
		"empty box":       {Src: src, Steps: []Step{{Op: OpCrop}}},
		"overflowing box": {Src: src, Steps: []Step{{Op: OpCrop, X: 1 << 62, W: 1 << 62, H: 1}}},
		"no size":         {Src: src, Steps: []Step{{Op: OpResize, W: 0, H: 3}}},
		"giant":           {Src: src, Steps: []Step{{Op: OpResize, W: 1 << 19, H: 1 << 19}}},
		"small pad":       {Src: src, Steps: []Step{{Op: OpPad, W: 9, H: 9}}},
		"pad mode":        {Src: src, Steps: []Step{{Op: OpPad, W: 19, H: 19, Mode: 9}}},
		"grey of two":     {Src: src, Steps: []Step{{Op: OpGray, C: 2}}},
		"no operation":    {Src: src, Steps: []Step{{}}},
		"short":           {Src: src, Dst: make([]byte, 10)},
		"long":            {Src: src, Dst: make([]byte, 1000)},
		"short source":    {Src: Pixels{Pix: make([]byte, 5), W: 2, H: 2, C: 3}, Dst: make([]byte, 12)},
		"two channels":    {Src: Pixels{Pix: make([]byte, 8), W: 2, H: 2, C: 2}, Dst: make([]byte, 8)},
	}
	each(t, func(t *testing.T, l *Lane) {
		for name, j := range jobs {
			var want JobError
			if err := l.Run(&j); !errors.As(err, &want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func FuzzRun(f *testing.F) {
	for _, jpeg := range samples(f) {
		f.Add(jpeg, uint64(1))
	}
	lanes := []*Lane{}
	for _, name := range tested() {
		lanes = append(lanes, newLane(name))
	}
	f.Fuzz(func(t *testing.T, jpeg []byte, seed uint64) {
		h, err := ReadHeader(jpeg)
		if err != nil || h.W*h.H > 1<<20 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		steps := chain(r, h.W, h.H, 3, r.IntN(5), 60)
		var first error
		var want, plain []byte
		_, taken := readFrame(jpeg)
		for i, l := range lanes {
			w, hh, c, err := ResultSize(steps, h.W, h.H, 3)
			if err != nil {
				t.Fatal(err)
			}
			j := Job{JPEG: jpeg, Steps: steps, Dst: make([]byte, w*hh*c)}
			err = l.Run(&j)
			switch {
			case i == 0:
				if err == nil && taken {
					plain = j.Dst
				}
			case i == 1:
				first, want = err, j.Dst
				if err == nil && plain != nil {
					if d := diff(plain, want); d != "" {
						t.Fatalf("the twin: %s", d)
					}
				}
			case (err == nil) != (first == nil):
				t.Fatalf("%s: %v; %s: %v", lanes[1].target, first, l.target, err)
			case err == nil:
				if d := diff(j.Dst, want); d != "" {
					t.Fatalf("%s: %s", l.target, d)
				}
			}
		}
	})
}

// A progressive picture with restart markers, as Pillow writes it, is intact: who cannot
// decode it says so, and does not call it damaged.
func TestScansWithRestartMarkers(t *testing.T) {
	jpeg, err := os.ReadFile("testdata/restarts420.jpg")
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, l *Lane) {
		err := l.Run(&Job{JPEG: jpeg, Dst: make([]byte, 60*40*3)})
		var unsupported UnsupportedError
		switch {
		case byLibjpeg(l):
			if err != nil {
				t.Error(err)
			}
		case !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "libjpeg-dev"):
			t.Errorf("%v is not an UnsupportedError that says what to install", err)
		}
	})
}
