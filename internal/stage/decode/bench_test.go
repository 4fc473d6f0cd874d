package decode

import (
	"bytes"
	"image"
	plan9 "image/color/palette"
	"image/draw"
	"image/gif"
	_ "image/jpeg"
	"image/png"
	"os"
	"testing"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// photograph is one of the six pictures that ship.
func photograph(b *testing.B) *image.RGBA {
	b.Helper()
	f, err := os.Open("../../../testdata/photos/coffee.jpg")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	m, _, err := image.Decode(f)
	if err != nil {
		b.Fatal(err)
	}
	out := image.NewRGBA(m.Bounds())
	draw.Draw(out, out.Rect, m, m.Bounds().Min, draw.Src)
	return out
}

func benchmark(b *testing.B, file []byte) {
	b.Helper()
	d := NewDecoder()
	var px kernel.Pixels
	var err error
	for b.Loop() {
		if px, err = d.Pixels(file, false); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(px.Pix)))
	b.ReportAllocs()
}

func BenchmarkPNG(b *testing.B) {
	var file bytes.Buffer
	if err := png.Encode(&file, photograph(b)); err != nil {
		b.Fatal(err)
	}
	b.Run("stoker", func(b *testing.B) { benchmark(b, file.Bytes()) })
	b.Run("image/png", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := png.Decode(bytes.NewReader(file.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkGIF(b *testing.B) {
	m := photograph(b)
	p := image.NewPaletted(m.Rect, plan9.Plan9)
	draw.Draw(p, p.Rect, m, m.Rect.Min, draw.Src)
	var file bytes.Buffer
	if err := gif.Encode(&file, p, nil); err != nil {
		b.Fatal(err)
	}
	b.Run("stoker", func(b *testing.B) { benchmark(b, file.Bytes()) })
	b.Run("image/gif", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := gif.Decode(bytes.NewReader(file.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A PPM is copied: the bound of what passing pixels on costs.
func BenchmarkPPM(b *testing.B) {
	m := photograph(b)
	file := []byte("P6 600 400 255\n")
	for i := 0; i < len(m.Pix); i += 4 {
		file = append(file, m.Pix[i:i+3]...)
	}
	if m.Rect.Dx() != 600 || m.Rect.Dy() != 400 {
		b.Skip("another picture")
	}
	benchmark(b, file)
}
