package compressed

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"

	kflate "github.com/klauspost/compress/flate"
	kgzip "github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

var ctx = context.Background()

// memory is a source of one object under any name.
type memory struct{ data []byte }

func (m memory) Stat(_ context.Context, name string) (source.Info, error) {
	return source.Info{Name: name, Size: int64(len(m.data)), Version: "1"}, nil
}

func (m memory) ReadAt(ctx context.Context, _ source.Info, p []byte, off int64) error {
	copy(p, m.data[off:][:len(p)])
	return ctx.Err()
}

func (m memory) List(context.Context, string) iter.Seq2[source.Info, error] {
	return func(func(source.Info, error) bool) {}
}

type fataler interface {
	Helper()
	Fatalf(format string, a ...any)
}

func must[T any](t fataler) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%v", err)
		}
		return v
	}
}

func info(data []byte) source.Info {
	return source.Info{Name: "x", Size: int64(len(data)), Version: "1"}
}

// unpacked is all of a compressed file and its points.
func unpacked(data []byte) ([]byte, *Points, error) { return unpackedTo(data, 1<<40) }

var errLong = errors.New("more than was wanted")

// unpackedTo gives up at a number of bytes.
func unpackedTo(data []byte, limit int) ([]byte, *Points, error) {
	r := NewReader(ctx, memory{data}, info(data), Sniff(data))
	var all []byte
	for {
		p, err := r.Next()
		if err == io.EOF {
			return all, r.Points(), nil
		}
		if err != nil {
			return all, r.Points(), err
		}
		if all = append(all, p...); len(all) > limit {
			return nil, nil, errLong
		}
	}
}

// table is an index of compressed files.
func table(t fataler, size int64, files ...*Points) *Table {
	t.Helper()
	x, err := (index.Store{}).Load(ctx, index.Plan{Build: func(_ context.Context, _ *index.Index, b *index.Builder) error {
		var names index.Texts
		var sizes []int64
		for i := range files {
			names.AppendString(fmt.Sprint(i))
			sizes = append(sizes, size)
		}
		b.Meta.Root, b.Meta.Samples = "/x", 1
		b.Strings(index.FileName, &names, index.Identity)
		b.Int64s(index.FileSize, sizes, index.Identity)
		Write(b, files, sizes)
		return nil
	}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return Open(x)
}

// texts are contents that pack in different ways.
func texts(n int) map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, n)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	var words strings.Builder
	for words.Len() < n {
		fmt.Fprintf(&words, "%d %s ", r.IntN(100), []string{"dataset", "shard", "sample", "field"}[r.IntN(4)])
	}
	mixed := bytes.Clone(noise)
	for i := 0; i+8192 < n; i += 16384 {
		copy(mixed[i:], words.String()[i:i+8192])
	}
	return map[string][]byte{"noise": noise, "words": []byte(words.String()[:n]), "mixed": mixed, "zeros": make([]byte, n)}
}

// packers are real programs' ways of packing.
func packers(t fataler) map[string]func(p []byte) []byte {
	through := func(make func(w io.Writer) (io.WriteCloser, error)) func(p []byte) []byte {
		return func(p []byte) []byte {
			var b bytes.Buffer
			w := must[io.WriteCloser](t)(make(&b))
			must[int](t)(w.Write(p))
			if err := w.Close(); err != nil {
				t.Fatalf("%v", err)
			}
			return b.Bytes()
		}
	}
	parts := func(n int, one func(p []byte) []byte) func(p []byte) []byte {
		return func(p []byte) (out []byte) {
			for len(p) > 0 {
				k := min(n, len(p))
				out = append(out, one(p[:k])...)
				p = p[k:]
			}
			return out
		}
	}
	gz := func(level int) func(p []byte) []byte {
		return through(func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, level) })
	}
	l4 := func(opt ...lz4.Option) func(p []byte) []byte {
		return through(func(w io.Writer) (io.WriteCloser, error) {
			z := lz4.NewWriter(w)
			return z, z.Apply(opt...)
		})
	}
	zs := func(opt ...zstd.EOption) func(p []byte) []byte {
		return through(func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w, opt...) })
	}
	return map[string]func(p []byte) []byte{
		"gzip 1":      gz(1),
		"gzip 6":      gz(6),
		"gzip 9":      through(func(w io.Writer) (io.WriteCloser, error) { return kgzip.NewWriterLevel(w, 9) }),
		"gzip stored": gz(0),
		"gzip fixed":  gz(gzip.HuffmanOnly),
		"gzip klauspost": through(func(w io.Writer) (io.WriteCloser, error) {
			return kgzip.NewWriterLevel(w, kflate.BestSpeed)
		}),
		"bgzf":            parts(65280, gz(6)),
		"gzip of members": parts(700_000, gz(6)),
		"zstd":            zs(),
		"zstd best":       zs(zstd.WithEncoderLevel(zstd.SpeedBestCompression)),
		"zstd of frames":  parts(300_000, zs()),
		"lz4":             l4(),
		"lz4 64 KiB":      l4(lz4.BlockSizeOption(lz4.Block64Kb), lz4.BlockChecksumOption(true)),
		"lz4 of frames":   parts(300_000, l4(lz4.ChecksumOption(true))),
	}
}

func TestRandomAccess(t *testing.T) {
	for name, pack := range packers(t) {
		if raceEnabled && name != "gzip 6" && name != "bgzf" && name != "zstd of frames" && name != "lz4 64 KiB" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			n := int64(1<<20 + 70_000)
			if name == "zstd" {
				n = wholeBytes + 70_000 // more than one piece
			}
			for what, want := range texts(int(n)) {
				if raceEnabled && what != "mixed" {
					continue
				}
				data := pack(want)
				got, points, err := unpacked(data)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s: %d bytes, %v", what, len(got), err)
				}
				tab := table(t, int64(len(data)), points)
				if !tab.Valid() || tab.Size(0) != n || !tab.Compressed(0) {
					t.Fatalf("%s: a table that is not valid, of %d bytes", what, tab.Size(0))
				}
				kept := 0
				for i := range points.list {
					kept += len(points.list[i].note)
				}
				t.Logf("%s: %d packed, %d points, notes of %d", what, len(data), len(points.list), kept)
				r := rand.New(rand.NewPCG(3, 4))
				for i := range 40 {
					off := r.Int64N(n)
					k := min(n-off, r.Int64N(1<<(4+i%20)))
					check(t, tab, data, want, off, k)
				}
				check(t, tab, data, want, 0, n)
				check(t, tab, data, want, n, 0)
			}
		})
	}
}

func check(t fataler, tab *Table, data, want []byte, off, n int64) {
	t.Helper()
	e := tab.Extent(0, off, n)
	got, err := tab.Unpack(0, off, n, data[e.Off:e.Off+e.Len])
	if err != nil || !bytes.Equal(got, want[off:off+n]) {
		t.Fatalf("%d bytes at %d, from %d at %d: %v", n, off, e.Len, e.Off, err)
	}
}

// Anything, compressed by Go's own writer: the same as Go's own reader.
func TestLikeGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []byte
		for range rapid.IntRange(0, 20).Draw(t, "runs") {
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				want = append(want, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")...)
			case 1:
				b, n := rapid.Byte().Draw(t, "byte"), rapid.IntRange(0, 2000).Draw(t, "times")
				want = append(want, bytes.Repeat([]byte{b}, n)...)
			case 2:
				if len(want) > 0 {
					from := rapid.IntRange(0, len(want)-1).Draw(t, "from")
					want = append(want, want[from:min(len(want), from+rapid.IntRange(0, 40_000).Draw(t, "length"))]...)
				}
			}
		}
		for _, name := range []string{"gzip 1", "gzip 9", "gzip stored", "gzip fixed", "gzip klauspost", "lz4 64 KiB"} {
			data := packers(t)[name](want)
			got, _, err := unpacked(data)
			if len(data) > 0 && (err != nil || !bytes.Equal(got, want)) {
				t.Fatalf("%s: %d bytes of %d: %v", name, len(got), len(want), err)
			}
		}
	})
}
