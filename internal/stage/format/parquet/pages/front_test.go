package pages

import (
	"bytes"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

// The front of a page is the beginning of its contents, however few of the packed
// bytes are given; given all of them, it is the whole contents.
func TestFront(t *testing.T) {
	zip, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	pack := map[int]func(p []byte) []byte{
		CodecNone:   func(p []byte) []byte { return p },
		codecSnappy: func(p []byte) []byte { return snappy.Encode(nil, p) },
		codecZstd:   func(p []byte) []byte { return zip.EncodeAll(p, nil) },
		codecGzip: func(p []byte) []byte {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = w.Write(p)
			_ = w.Close()
			return b.Bytes()
		},
		codecBrotli: func(p []byte) []byte {
			var b bytes.Buffer
			w := brotli.NewWriterLevel(&b, 3)
			_, _ = w.Write(p)
			_ = w.Close()
			return b.Bytes()
		},
	}
	rapid.Check(t, func(t *rapid.T) {
		var p []byte
		for range rapid.IntRange(0, 12).Draw(t, "pieces") {
			piece := rapid.SliceOfN(rapid.Byte(), 1, 30).Draw(t, "piece")
			p = append(p, bytes.Repeat(piece, rapid.SampledFrom([]int{1, 1, 3, 50, 3000}).Draw(t, "times"))...)
		}
		codec := rapid.SampledFrom([]int{CodecNone, codecSnappy, codecZstd, codecGzip, codecBrotli}).Draw(t, "codec")
		packed := pack[codec](p)
		if got := Front(codec, packed, len(p)+10); !bytes.Equal(got, p) {
			t.Fatalf("codec %d: all of %d bytes is %d", codec, len(p), len(got))
		}
		cut := packed[:rapid.IntRange(0, len(packed)).Draw(t, "cut")]
		limit := rapid.IntRange(0, len(p)).Draw(t, "limit")
		got := Front(codec, cut, limit)
		if !bytes.HasPrefix(p, got) || codec != CodecNone && len(got) > limit {
			t.Fatalf("codec %d: %d bytes of %d are not the beginning of %d", codec, len(got), limit, len(p))
		}
		Front(codec, rapid.SliceOf(rapid.Byte()).Draw(t, "noise"), 1<<16)
	})
}

// Snappy's forms, byte by byte, as its description has them.
func TestSnappyFront(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"\x05\x10hello", "hello"},
		{"\x05\x10hel", "hel"},
		{"\x05\xf0\x04hello", "hello"},
		{"\x05\xfc\x04\x00\x00\x00hello", "hello"},
		{"\x09\x00a\x11\x01", "aaaaaaaaa"},
		{"\x09\x04ab\x0a\x02\x00", "ababa"},
		{"\x09\x04ab\x0b\x02\x00\x00\x00", "ababa"},
		{"\x09\x04ab\x0a\x03\x00", "ab"}, // from before the beginning
		{"\x09\x04ab\x0a\x00\x00", "ab"},
		{"\x09\x04ab\x0a", "ab"},
		{"\xff", ""},
		{"", ""},
	} {
		if got := snappyFront([]byte(c.src), 99); string(got) != c.want {
			t.Errorf("%q is %q", c.src, got)
		}
	}
}
