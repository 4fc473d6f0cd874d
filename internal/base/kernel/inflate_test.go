package kernel

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"errors"
	"hash/adler32"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// inflaters are the twin and every level of this processor.
func inflaters() map[string]*Inflater {
	all := map[string]*Inflater{"go": {level: inflateTwinLevel}}
	for _, target := range []string{"base", "avx2"} {
		if level := inflateLevel(target); level != inflateTwinLevel {
			all[target] = &Inflater{level: level}
		}
	}
	return all
}

// drawnBytes are bytes of which some come again, near and far, of few or many values.
func drawnBytes(t *rapid.T) []byte {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	values := rapid.SampledFrom([]int{1, 2, 5, 60, 256}).Draw(t, "values")
	var data []byte
	for range rapid.IntRange(0, 12).Draw(t, "runs") {
		run := rapid.IntRange(0, 9000).Draw(t, "run")
		if from := rapid.IntRange(0, 40000).Draw(t, "from"); from > 0 && from <= len(data) && run%2 == 0 {
			for range run { // a copy that may repeat itself
				data = append(data, data[len(data)-from])
			}
			continue
		}
		for range run { // small values are likelier, so that codes have unequal lengths
			data = append(data, byte(r.IntN(r.IntN(values)+1)))
		}
	}
	return data
}

func deflated(data []byte, level int) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, level)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

func zlibbed(data []byte, level int) []byte {
	var b bytes.Buffer
	w, _ := zlib.NewWriterLevel(&b, level)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

// What Go's writer made comes out again, whole or piece by piece through a window that
// moves, and nothing is written beside the room; in less room it is InflateFull.
func TestInflate(t *testing.T) {
	all := inflaters()
	rapid.Check(t, func(t *rapid.T) {
		data := drawnBytes(t)
		raw := deflated(data, rapid.IntRange(-2, 9).Draw(t, "level"))
		raw = append(raw, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "after")...)
		slack := rapid.SampledFrom([]int{0, 1, 100, InflateSlack, 1000}).Draw(t, "slack")
		step := rapid.IntRange(1, 50000).Draw(t, "step")
		less := rapid.IntRange(0, len(data)).Draw(t, "less")
		for name, z := range all {
			room := bytes.Repeat([]byte{0xEE}, len(data)+slack+64)
			z.Open(raw)
			n, end, err := z.Run(room[:len(data)+slack], 0, len(data)+1)
			if err != nil || !end || n != len(data) || !bytes.Equal(room[:n], data) {
				t.Fatalf("%s: %d bytes of %d, end %v, %v", name, n, len(data), end, err)
			}
			if !bytes.Equal(room[len(data)+slack:], bytes.Repeat([]byte{0xEE}, 64)) {
				t.Fatalf("%s: bytes beside the room were written", name)
			}
			if got := pieces(t, z, raw, step); !bytes.Equal(got, data) {
				t.Fatalf("%s: other bytes in steps of %d", name, step)
			}
			z.Open(raw)
			n, end, err = z.Run(room[:less], 0, less+1)
			if less < len(data) && (err != InflateFull || n != less || !bytes.Equal(room[:n], data[:n])) || less == len(data) && !end {
				t.Fatalf("%s: %d bytes of %d into %d: end %v, %v", name, n, len(data), less, end, err)
			}
		}
	})
}

// pieces unpacks through a window that is moved down after each step.
func pieces(t *rapid.T, z *Inflater, raw []byte, step int) (all []byte) {
	buf := make([]byte, inflateWindow+step+InflateSlack)
	z.Open(raw)
	for at := 0; ; {
		n, end, err := z.Run(buf, at, at+step)
		if err != nil || !end && n < at+step {
			t.Fatalf("%d bytes from %d on: %v", n, at, err)
		}
		if all = append(all, buf[at:n]...); end {
			return all
		}
		keep := min(n, inflateWindow)
		copy(buf, buf[n-keep:n])
		at = keep
	}
}

// Harmed streams are errors, or the same bytes, as the twin says.
func TestInflateHarmed(t *testing.T) {
	all := inflaters()
	rapid.Check(t, func(t *rapid.T) {
		data := drawnBytes(t)
		raw := deflated(data, rapid.IntRange(-2, 9).Draw(t, "level"))
		for range rapid.IntRange(0, 3).Draw(t, "times") {
			raw[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		}
		raw = raw[:rapid.IntRange(len(raw)/2, len(raw)).Draw(t, "cut")]
		likeTwin(t, all, raw, len(data))
	})
}

// likeTwin holds all levels against the twin: the same bytes, or errors of the same class.
func likeTwin(t rapid.TB, all map[string]*Inflater, raw []byte, n int) {
	want := make([]byte, n)
	twin := all["go"]
	twin.Open(raw)
	wantN, wantEnd, wantErr := twin.Run(want, 0, n+1)
	for name, z := range all {
		for _, slack := range []int{0, InflateSlack} {
			got := make([]byte, n+slack)
			z.Open(raw)
			gotN, end, err := z.Run(got, 0, n+1)
			more := gotN > n || err == InflateFull //nolint:errorlint // as it is
			if more && wantErr == InflateFull {    //nolint:errorlint // as it is
				gotN, end, err = min(gotN, n), false, InflateFull
			}
			// The twin looks one byte beyond what is wanted, the C as far as its loop goes.
			if (err == nil) != (wantErr == nil) && !(more || wantErr == InflateFull) { //nolint:errorlint // as it is
				t.Fatalf("%s: %v, and the twin says %v", name, err, wantErr)
			}
			if err == nil && wantErr == nil && (end != wantEnd || gotN != wantN || !bytes.Equal(got[:gotN], want[:wantN])) {
				t.Fatalf("%s: %d bytes, end %v, and the twin has %d, %v", name, gotN, end, wantN, wantEnd)
			}
			if end && z.Used() != twin.Used() {
				t.Fatalf("%s: %d bytes are taken, and by the twin %d", name, z.Used(), twin.Used())
			}
		}
	}
}

// Wherever a stream ends early, it is cut off, and every bit of zlib's is held by its sum.
func TestInflateSaysWhatIsWrong(t *testing.T) {
	data := bytes.Repeat([]byte("what is told is told "), 400)
	raw := zlibbed(data, 6)
	for name, z := range inflaters() {
		dst := make([]byte, len(data)+InflateSlack)
		for cut := range raw {
			if _, _, err := z.Zlib(dst, len(data), raw[:cut]); err != InflateCut { //nolint:errorlint // as it is
				t.Fatalf("%s: cut at %d of %d: %v", name, cut, len(raw), err)
			}
		}
		for at := range raw {
			for bit := range 8 {
				bad := bytes.Clone(raw)
				bad[at] ^= 1 << bit
				var why InflateError
				n, _, err := z.Zlib(dst, len(data), bad)
				if at == 1 && err == nil || at == len(raw) {
					continue // zlib's level, which says nothing
				}
				if err == nil && n == len(data) && bytes.Equal(dst[:n], data) {
					continue // bits that pad a byte
				}
				if !errors.As(err, &why) && n == len(data) {
					t.Fatalf("%s: bit %d of byte %d: %v", name, bit, at, err)
				}
			}
		}
		if _, _, err := z.Zlib(dst, len(data)-1, raw); err != InflateFull { //nolint:errorlint // as it is
			t.Errorf("%s: less: %v", name, err)
		}
		if n, _, err := z.Zlib(dst, len(data)+1, raw); err != nil || n != len(data) {
			t.Errorf("%s: more: %d, %v", name, n, err)
		}
		sum := bytes.Clone(raw)
		sum[len(sum)-1]++
		if _, _, err := z.Zlib(dst, len(data), sum); err != InflateSum { //nolint:errorlint // as it is
			t.Errorf("%s: sum: %v", name, err)
		}
		if _, _, err := z.Zlib(dst, len(data), []byte{0x1f, 0x8b, 8, 0}); err != InflateHead { //nolint:errorlint // as it is
			t.Errorf("%s: gzip: %v", name, err)
		}
	}
}

// Codes of 15 bits, in tables linked from tables, and literals whose codes have one
// bit.
func TestInflateLongCodes(t *testing.T) {
	var data []byte
	for v, n := 0, 1; v < 24; v, n = v+1, n+max(1, n/2) { // a Fibonacci-like tail makes codes long
		data = append(data, bytes.Repeat([]byte{byte(v * 11)}, min(n, 40000))...)
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(data), func(i, k int) { data[i], data[k] = data[k], data[i] })
	raw := deflated(data, flate.HuffmanOnly)
	for name, z := range inflaters() {
		dst := make([]byte, len(data))
		z.Open(raw)
		if n, end, err := z.Run(dst, 0, len(dst)+1); err != nil || !end || n != len(data) || !bytes.Equal(dst, data) {
			t.Errorf("%s: %d bytes of %d, %v", name, n, len(data), err)
		}
	}
}

func TestAdler32(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := bytes.Repeat([]byte{byte(rapid.SampledFrom([]int{0, 1, 255}).Draw(t, "value"))}, rapid.IntRange(0, 20000).Draw(t, "n"))
		copy(p, rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "begin"))
		at := rapid.IntRange(0, len(p)).Draw(t, "at")
		for name, z := range inflaters() {
			if got := z.adler32(z.adler32(1, p[:at]), p[at:]); got != adler32.Checksum(p) {
				t.Fatalf("%s: %08x, want %08x", name, got, adler32.Checksum(p))
			}
		}
	})
}

func TestInflateAllocatesNothing(t *testing.T) {
	raw := zlibbed(bytes.Repeat([]byte("some words and some more words "), 3000), 6)
	for name, z := range inflaters() {
		if name == "go" {
			continue
		}
		dst := make([]byte, 31*3000+InflateSlack)
		if n := testing.AllocsPerRun(5, func() {
			if _, _, err := z.Zlib(dst, 31*3000, raw); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzInflate(f *testing.F) {
	f.Add(deflated([]byte("hello hello hello"), 9), uint16(17))
	f.Add(deflated(make([]byte, 70000), 0), uint16(4000))
	f.Add(deflated(bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyz"), 40), 6), uint16(1040))
	all := inflaters()
	f.Fuzz(func(t *testing.T, raw []byte, n uint16) { likeTwin(t, all, raw, int(n)) })
}
