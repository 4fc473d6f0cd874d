package kernel

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// webpStreams are the bitstreams of the decode stage's simple WebP files,
// whose only chunk begins at byte 12.
func webpStreams(t testing.TB) map[string][]byte {
	t.Helper()
	names, _ := filepath.Glob("../../stage/decode/testdata/files/*.webp")
	streams := map[string][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if kind := string(b[12:16]); kind == "VP8 " || kind == "VP8L" {
			streams[filepath.Base(name)] = b[20:]
		}
	}
	if len(streams) < 8 {
		t.Fatalf("only %d plain WebP files in the decode stage's testdata", len(streams))
	}
	return streams
}

func TestWebPEqualsTwin(t *testing.T) {
	for name, stream := range webpStreams(t) {
		i, err := WebPHeader(stream)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, want := make([]byte, i.W*i.H*3), make([]byte, i.W*i.H*3)
		if err := WebP(got, stream); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := webpTwin(want, stream, i); err != nil {
			t.Fatalf("%s: twin: %v", name, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the engines differ", name)
		}
	}
}

func TestWebPDamage(t *testing.T) {
	for name, stream := range webpStreams(t) {
		i, err := WebPHeader(stream)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, i.W*i.H*3)
		for _, engine := range []func(dst, stream []byte, i WebPInfo) error{webp, webpTwin} {
			for cut := range min(len(stream)-1, 400) {
				// The last byte or two may be padding of the entropy coder.
				if err := engine(dst, stream[:cut], i); err == nil && cut < len(stream)-4 {
					t.Fatalf("%s: %d of %d bytes give a picture", name, cut, len(stream))
				} else if err != nil {
					wantBad(t, name, err)
				}
			}
			bad := bytes.Clone(stream)
			for at := range min(len(bad), 60) {
				bad[at] ^= 0xff
				if err := engine(dst, bad, i); err != nil {
					wantBad(t, name, err)
				}
				bad[at] ^= 0xff
			}
		}
	}
}

func wantBad(t *testing.T, name string, err error) {
	t.Helper()
	var f FormatError
	var u UnsupportedError
	if !errors.As(err, &f) && !errors.As(err, &u) {
		t.Fatalf("%s: %v (%T) is neither a FormatError nor an UnsupportedError", name, err, err)
	}
}

func TestWebPHeader(t *testing.T) {
	for _, c := range []struct {
		name   string
		stream string
		want   WebPInfo
	}{
		{"lossy", "\x10\x00\x00\x9d\x01\x2a\x12\x41\x34\x80", WebPInfo{W: 0x112, H: 0x34}},
		{"lossless", "\x2f\x01\x40\x00\x10", WebPInfo{W: 2, H: 2, Lossless: true, Alpha: true}},
	} {
		got, err := WebPHeader([]byte(c.stream))
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	for name, stream := range map[string]string{
		"empty":    "",
		"no key":   "\x11\x00\x00\x9d\x01\x2a\x12\x41\x34\x80",
		"no width": "\x10\x00\x00\x9d\x01\x2a\x00\x00\x34\x80",
	} {
		var f FormatError
		if _, err := WebPHeader([]byte(stream)); !errors.As(err, &f) {
			t.Errorf("%s: %v is not a FormatError", name, err)
		}
	}
	if err := WebP(make([]byte, 5), []byte("\x2f\x01\x40\x00\x10")); err == nil {
		t.Error("a short destination is taken")
	}
}
