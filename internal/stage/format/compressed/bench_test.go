package compressed

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	kgzip "github.com/klauspost/compress/gzip"
)

func BenchmarkGunzip(b *testing.B) {
	for _, what := range []string{"words", "mixed"} {
		want := texts(8 << 20)[what]
		data := packers(b)["gzip 6"](want)
		b.Run(what+"/index", func(b *testing.B) {
			b.SetBytes(int64(len(want)))
			for b.Loop() {
				_, _, err := unpacked(data)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		_, points, _ := unpacked(data)
		tab := table(b, int64(len(data)), points)
		b.Run(what+"/points", func(b *testing.B) {
			b.SetBytes(int64(len(want)))
			for b.Loop() {
				for i := range tab.out {
					if _, err := tab.unpack(0, int64(i), data[tab.in[i]:tab.end[i]]); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(what+"/klauspost", func(b *testing.B) {
			b.SetBytes(int64(len(want)))
			for b.Loop() {
				r, _ := kgzip.NewReader(bytes.NewReader(data))
				_, _ = io.Copy(io.Discard, r)
			}
		})
		b.Run(what+"/go", func(b *testing.B) {
			b.SetBytes(int64(len(want)))
			for b.Loop() {
				r, _ := gzip.NewReader(bytes.NewReader(data))
				_, _ = io.Copy(io.Discard, r)
			}
		})
	}
}
