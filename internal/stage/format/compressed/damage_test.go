package compressed

import (
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// A few hundred bytes that unpack to a gigabyte and more are detected before they do,
// and take no more memory than a file of good bytes.
func TestBombs(t *testing.T) {
	zeros := make([]byte, 4<<20)
	var zs, l4 bytes.Buffer
	zw := must[*zstd.Encoder](t)(zstd.NewWriter(&zs))
	lw := lz4.NewWriter(&l4)
	for range 24 {
		must[int](t)(zw.Write(zeros))
		if l4.Len() < 1<<20 {
			must[int](t)(lw.Write(zeros))
		}
	}
	if err := errors.Join(zw.Close(), lw.Close()); err != nil {
		t.Fatal(err)
	}
	var frames bytes.Buffer
	one := packers(t)["zstd"](zeros)
	for range 24 {
		frames.Write(one)
	}
	for name, data := range map[string][]byte{"zstd": zs.Bytes(), "zstd of frames": frames.Bytes()} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := NewReader(ctx, memory{data}, info(data), Sniff(data))
		var err error
		n := 0
		for err == nil {
			var p []byte
			p, err = r.Next()
			n += len(p)
		}
		runtime.ReadMemStats(&after)
		e := errs.From(err)
		if e.Code != errs.Damaged || e.Where.Shard != "x" || e.Where.Offset.Or(-1) < 0 || !strings.Contains(e.What, "memory") || n > bombLeast+len(data)*bombTimes {
			t.Errorf("%s: after %d bytes of %d: %v", name, n, len(data), err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
			t.Errorf("%s: %d bytes were allocated", name, grown)
		}
	}
}

// What comes from the index may have been forged: it is an error, and no panic.
func TestForgedPoints(t *testing.T) {
	want := texts(700_000)["mixed"]
	for _, name := range []string{"gzip 6", "zstd", "lz4 64 KiB"} {
		data := packers(t)[name](want)
		_, points, err := unpacked(data)
		if err != nil {
			t.Fatal(err)
		}
		last := points.list[len(points.list)-1]
		for i, forge := range []func(p *point){
			func(p *point) { p.lead ^= 1 },
			func(p *point) { p.lead ^= 2 },
			func(p *point) { p.lead ^= 8 },
			func(p *point) { p.lead ^= 16 },
			func(p *point) { p.lead = 1<<62 | 1 },
			func(p *point) { p.in++ },
			func(p *point) { p.in = p.end },
			func(p *point) { p.end = p.in },
			func(p *point) { p.sum++ },
			func(p *point) { p.note = nil },
			func(p *point) { p.note = []byte("\x01") },
			func(p *point) { p.note = bytes.Repeat([]byte("\xff"), 400) },
		} {
			f := *points
			f.list = append([]point(nil), points.list...)
			p := &f.list[len(f.list)-1]
			forge(p)
			if p.in != last.in || p.end != last.end { // out of step with the others
				continue
			}
			tab := table(t, int64(len(data)), &f)
			if !tab.Valid() {
				continue
			}
			off := last.out
			e := tab.Extent(0, off, 10)
			got, err := tab.Unpack(0, off, 10, data[e.Off:e.Off+e.Len])
			if err == nil && !bytes.Equal(got, want[off:off+10]) {
				t.Errorf("%s: forgery %d gives wrong bytes", name, i)
			}
			if len(tab.paths) != 1 {
				t.Fatal()
			}
		}
	}
}

func TestWindow(t *testing.T) {
	want := texts(3 << 20)["words"]
	for name, data := range map[string][]byte{"plain": want, "gzip": packers(t)["gzip 1"](want)} {
		w, err := NewWindow(ctx, memory{data}, info(data))
		if err != nil {
			t.Fatal(err)
		}
		off := int64(0)
		for i := 0; off < int64(len(want)); i++ {
			n := []int{12, 5000, 1, 200_000}[i%4]
			got, err := w.Bytes(off, n)
			if end := min(off+int64(n), int64(len(want))); err != nil || !bytes.Equal(got, want[off:end]) {
				t.Fatalf("%s: %d bytes at %d: %d, %v", name, n, off, len(got), err)
			}
			step := []int64{3, 60_000, 700_000}[i%3]
			if left, err := w.Left(off, step); err != nil || left != min(step, int64(len(want))-off) {
				t.Fatalf("%s: %d of %d left at %d: %v", name, left, step, off, err)
			}
			off += step
		}
		if p, err := w.Bytes(off, 10); len(p) != 0 || err != nil {
			t.Errorf("%s: %d bytes after the end, %v", name, len(p), err)
		}
		if points, err := w.Finish(); err != nil || (points == nil) != (name == "plain") || w.Compressed() != (name == "gzip") {
			t.Errorf("%s: %v, %v", name, points, err)
		}
	}
}

// Any bits as a deflate stream: as Go's reader takes them, or not at all.
func FuzzInflate(f *testing.F) {
	for _, what := range []string{"words", "mixed"} {
		p := texts(20_000)[what]
		for _, level := range []int{0, 1, 9, flate.HuffmanOnly} {
			var b bytes.Buffer
			w, _ := flate.NewWriter(&b, level)
			_, _ = w.Write(p)
			_ = w.Close()
			f.Add(b.Bytes())
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(in), 8<<20))
		if len(want) == 8<<20 {
			return
		}
		whole := data
		if wantErr == nil {
			whole = data[:len(data)-in.Len()]
		}
		compressed := append([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"), whole...)
		if wantErr == nil {
			compressed = append(compressed, make([]byte, 8)...)
		}
		g := newGunzip(feed{ctx: ctx, src: memory{compressed}, obj: info(compressed)})
		g.check = false
		var got []byte
		var err error
		for err == nil && len(got) <= 8<<20 {
			var p piece
			p, err = g.next()
			got = append(got, p.data...)
		}
		if (wantErr == nil) != (err == io.EOF) {
			t.Fatalf("Go says %v after %d bytes, and here %v after %d", wantErr, len(want), err, len(got))
		}
		if wantErr == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes that differ from Go's %d", len(got), len(want))
		}
	})
}

// Any bytes as a compressed file: no panic, and what is read in any order is what is
// read from front to back.
func FuzzReader(f *testing.F) {
	p := texts(20_000)["mixed"]
	all := packers(f)
	for _, name := range []string{"gzip 6", "bgzf", "zstd", "zstd of frames", "lz4", "lz4 64 KiB"} {
		f.Add(all[name](p))
	}
	linked, err := os.ReadFile("../tar/testdata/large.tar.lz4")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(linked)
	f.Fuzz(func(t *testing.T, data []byte) {
		if Sniff(data) == Plain {
			return
		}
		want, points, err := unpackedTo(data, 4<<20)
		if err != nil {
			if errs.CodeOf(err) == errs.Bug && !errors.Is(err, errLong) {
				t.Fatal(err)
			}
			return
		}
		tab := table(t, int64(len(data)), points)
		if !tab.Valid() {
			t.Fatal("points that are not valid")
		}
		for off := int64(0); off < int64(len(want)); off += 1 + int64(len(want))/7 {
			check(t, tab, data, want, off, min(int64(len(want))-off, 1<<20))
		}
	})
}
