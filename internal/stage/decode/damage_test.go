package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// try decodes b and fails unless it is whole pixels or one of the two errors.
func try(t *testing.T, d *Decoder, b []byte) (kernel.Pixels, error) {
	t.Helper()
	if h, err := ReadHeader(b); err != nil && !named(err) {
		t.Fatalf("ReadHeader: %v (%T) is neither malformed nor unsupported", err, err)
	} else if err == nil && int64(h.W)*int64(h.H) > 1<<18 {
		return kernel.Pixels{}, nil // allowed, but slow under the race detector
	}
	px, err := d.Pixels(b, len(b)%2 == 0)
	if err != nil {
		if !named(err) {
			t.Fatalf("Pixels: %v (%T) is neither malformed nor unsupported", err, err)
		}
		if strings.Contains(err.Error(), "gave up") {
			t.Fatalf("a panic: %v", err)
		}
		return px, err
	}
	if px.W <= 0 || px.H <= 0 || len(px.Pix) != px.W*px.H*px.C {
		t.Fatalf("%d bytes for %d x %d x %d", len(px.Pix), px.W, px.H, px.C)
	}
	return px, nil
}

// A file that is cut anywhere is an error, unless what is cut off was not part
// of its picture.
func TestTruncated(t *testing.T) {
	d := NewDecoder()
	for _, f := range fixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			for cut := range len(f.data) {
				if len(f.data) > 600 && cut > 200 && cut < len(f.data)-200 && cut%7 != 0 {
					continue
				}
				px, err := d.Pixels(f.data[:cut], false)
				if err != nil {
					if !named(err) {
						t.Fatalf("cut at %d: %v (%T)", cut, err, err)
					}
					continue
				}
				same(t, px, f.rgb)
			}
		})
	}
}

// Every byte of the first 120, every 11th of the rest, in two ways: pixels or
// a named error, never a panic.
func TestFlipped(t *testing.T) {
	d := NewDecoder()
	for _, f := range fixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			bad := bytes.Clone(f.data)
			for at := range bad {
				if at > 120 && at%11 != 0 {
					continue
				}
				for _, flip := range []byte{0x01, 0xff} {
					bad[at] ^= flip
					try(t, d, bad)
					bad[at] ^= flip
				}
			}
		})
	}
}

// After a bad file a Decoder gives the same pixels as a new one.
func TestDecoderAfterDamage(t *testing.T) {
	all := fixtures(t)
	rapid.Check(t, func(t *rapid.T) {
		d := NewDecoder()
		for range rapid.IntRange(1, 6).Draw(t, "files") {
			f := all[rapid.IntRange(0, len(all)-1).Draw(t, "file")]
			bad := bytes.Clone(f.data[:rapid.IntRange(0, len(f.data)).Draw(t, "cut")])
			_, _ = d.Pixels(bad, rapid.Bool().Draw(t, "gray"))
			got, err := d.Pixels(f.data, false)
			if err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
			if !bytes.Equal(got.Pix, f.rgb.Pix) {
				t.Fatalf("%s differs after damage", f.name)
			}
		}
	})
}

// Whatever image/png writes and reads back, is read the same here.
func TestPNGEqualsStandardLibrary(t *testing.T) {
	d := NewDecoder()
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 40).Draw(t, "w"), rapid.IntRange(1, 12).Draw(t, "h")
		r := image.Rect(0, 0, w, h)
		noise := rapid.SliceOfN(rapid.Byte(), 64, 64).Draw(t, "noise")
		// Not quite noise, so that the encoder chooses among the filters.
		fill := func(pix []byte) {
			for i := range pix {
				pix[i] = noise[i%64] / byte(1+i%3) * byte(i/64+1)
			}
		}
		var m image.Image
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			g := image.NewGray(r)
			fill(g.Pix)
			m = g
		case 1:
			g := image.NewNRGBA(r)
			fill(g.Pix)
			m = g
		case 2:
			g := image.NewNRGBA64(r)
			fill(g.Pix)
			m = g
		case 3:
			g := image.NewRGBA(r)
			fill(g.Pix)
			for i := 3; i < len(g.Pix); i += 4 {
				g.Pix[i] = 255
			}
			m = g
		default:
			n := rapid.IntRange(1, 256).Draw(t, "colours")
			var p color.Palette
			for i := range n {
				p = append(p, color.NRGBA{noise[i%64], noise[(i+7)%64], noise[(i+13)%64], 255})
			}
			g := image.NewPaletted(r, p)
			for i := range g.Pix {
				g.Pix[i] = byte(int(noise[i%64]) % n)
			}
			m = g
		}
		var file bytes.Buffer
		e := png.Encoder{CompressionLevel: png.CompressionLevel(-rapid.IntRange(0, 3).Draw(t, "level"))}
		if err := e.Encode(&file, m); err != nil {
			t.Fatal(err)
		}
		back, err := png.Decode(bytes.NewReader(file.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Pixels(file.Bytes(), false)
		if err != nil {
			t.Fatal(err)
		}
		for y := range h {
			for x := range w {
				c := color.NRGBA64Model.Convert(back.At(x, y)).(color.NRGBA64)
				if c.A == 0 {
					continue // image/color forgets what is under it
				}
				want := []byte{byte(c.R >> 8), byte(c.G >> 8), byte(c.B >> 8)}
				if p := got.Pix[(y*w+x)*3:][:3]; c.A == 0xffff && !bytes.Equal(p, want) {
					t.Fatalf("(%d, %d): got %v, want %v", x, y, p, want)
				}
			}
		}
	})
}

func TestPNGChecksum(t *testing.T) {
	d := NewDecoder()
	for _, f := range fixtures(t) {
		if Sniff(f.data) != KindPNG {
			continue
		}
		for at := 8; at < len(f.data); at++ {
			bad := bytes.Clone(f.data)
			bad[at] ^= 0x10
			var format kernel.FormatError
			if _, err := d.Pixels(bad, false); !errors.As(err, &format) {
				t.Fatalf("%s: byte %d flipped: %v, want a FormatError", f.name, at, err)
			}
		}
	}
}

// Sizes come from a header that says more than memory should be taken for.
func TestHugeSizes(t *testing.T) {
	huge := map[string]string{
		"bmp":  "BM\x00\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00\x60\xea\x00\x00\x60\xea\x00\x00\x01\x00\x18\x00" + strings.Repeat("\x00", 24),
		"gif":  "GIF89a\xff\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\xff\xff\xff\xff\x00\x08\x00;",
		"pnm":  "P6 60000 60000 255\n",
		"webp": "RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\xff\xff\x00",
		"tiff": "II*\x00\x08\x00\x00\x00\x02\x00\x00\x01\x04\x00\x01\x00\x00\x00\x60\xea\x00\x00\x01\x01\x04\x00\x01\x00\x00\x00\x60\xea\x00\x00\x00\x00\x00\x00",
		"png":  "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\xea\x60\x00\x00\xea\x60\x08\x02\x00\x00\x00\x0f\xb0\xe2\x15",
		"jpeg": "\xff\xd8\xff\xc0\x00\x0b\x08\xea\x60\xea\x60\x01\x01\x11\x00\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\x00\xff\xd9",
	}
	d := NewDecoder()
	for name, file := range huge {
		_, err := ReadHeader([]byte(file))
		var format kernel.FormatError
		if !errors.As(err, &format) || !strings.Contains(err.Error(), "more than the limit") {
			t.Errorf("%s: ReadHeader: %v", name, err)
		}
		if name == "jpeg" {
			continue
		}
		if _, err := d.Pixels([]byte(file), false); !errors.As(err, &format) {
			t.Errorf("%s: Pixels: %v", name, err)
		}
		if cap(d.pix)+cap(d.idx)+cap(d.row)+cap(d.joined) > 1<<16 {
			t.Fatalf("%s: memory was taken", name)
		}
	}
	// Below the limit, but far more than the bytes can hold.
	for name, file := range map[string]string{
		"bmp": "BM\x00\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00\x60\x2a\x00\x00\x60\x2a\x00\x00\x01\x00\x18\x00" + strings.Repeat("\x00", 24),
		"pnm": "P6 10000 10000 255\nabc",
		"gif": "GIF89a\x00\x20\x00\x20\x00\x00\x00,\x00\x00\x00\x00\x00\x20\x00\x20\x00\x08\x01\x00\x00;",
	} {
		if _, err := d.Pixels([]byte(file), false); err == nil || cap(d.pix)+cap(d.idx) > 1<<16 {
			t.Errorf("%s: %v, %d bytes taken", name, err, cap(d.pix)+cap(d.idx))
		}
	}
}

func TestOtherKinds(t *testing.T) {
	d := NewDecoder()
	for file, want := range map[string]string{
		"":                                  "it is empty",
		"hello, world, this is text":        `begins with "hello, world"`,
		"\x00\x00\x00\x1cftypavif\x00":      "AVIF",
		"\x00\x00\x00\x0cjP  \r\n\x87\n":    "JPEG 2000",
		"\xff\xd8\xff\xe0\x00\x10JFIF":      "by the kernel",
		"P7\nWIDTH 1":                       "PAM",
		"RIFF\x04\x00\x00\x00WAVE":          "not an image",
		"GIF89a":                            "ends inside its header",
		"BM":                                "ends inside its header",
		"II*\x00":                           "directory",
		"P5 3 ":                             "height: the file ends",
		"P6 3 x":                            `found "x"`,
		"RIFF\x04\x00\x00\x00WEBP":          "ends before its first picture",
		"\x89PNG\r\n\x1a\n":                 "ends before the end",
		"\x89PNG\r\n\x1a\n\x00\x00\x00\x04": "ends before the end",
	} {
		_, err := d.Pixels([]byte(file), false)
		if err == nil || !strings.Contains(err.Error(), want) || !named(err) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
}

func TestUnsupported(t *testing.T) {
	d := NewDecoder()
	pick := func(name string) []byte {
		all := fixtures(t)
		i := slices.IndexFunc(all, func(f fixture) bool { return f.name == name })
		if i < 0 {
			t.Fatalf("no fixture %s", name)
		}
		return bytes.Clone(all[i].data)
	}
	// A little-endian TIFF with one tag's first number changed.
	tag := func(name string, id uint16, value byte) []byte {
		b := pick(name)
		at := bytes.LastIndex(b, []byte{byte(id), byte(id >> 8), 4, 0, 1, 0, 0, 0})
		if at < 0 {
			at = bytes.LastIndex(b, []byte{byte(id), byte(id >> 8), 3, 0, 1, 0, 0, 0})
		}
		b[at+8] = value
		return b
	}
	bmp := func(at int, value byte) []byte {
		b := pick("rgb24.bmp")
		b[at] = value
		return b
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"tiff jpeg":      {tag("rgb8-tiles.tif", tiffCompression, 7), "JPEG"},
		"tiff fax rows":  {tag("black1-lsb.tif", tiffCompression, 2), "CCITT 1D"},
		"tiff YCbCr":     {tag("rgb8-tiles.tif", tiffPhotometric, 6), "YCbCr"},
		"tiff predictor": {tag("predictor-tiff_lzw.tif", tiffPredictor, 3), "predictor 3"},
		"bmp depth":      {bmp(28, 2), "2 bits per pixel"},
		"bmp packing":    {bmp(30, 5), "JPEG or PNG"},
		"bmp header":     {bmp(14, 41), "41 bytes"},
	} {
		var u kernel.UnsupportedError
		if _, err := d.Pixels(c.file, false); !errors.As(err, &u) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q not supported", name, err, c.want)
		}
	}
}

// A warm Decoder reads without garbage what is decoded by hand.
func TestGarbage(t *testing.T) {
	limits := map[Kind]float64{KindPNG: 12, KindGIF: 0, KindBMP: 1, KindPNM: 0, KindWebP: 40} // WebP: none by libwebp
	d := NewDecoder()
	for _, f := range fixtures(t) {
		limit, ok := limits[Sniff(f.data)]
		if !ok {
			continue
		}
		if n := testing.AllocsPerRun(5, func() { _, _ = d.Pixels(f.data, false) }); n > limit {
			t.Errorf("%s: %v allocations, want at most %v", f.name, n, limit)
		}
	}
}

// What a header says that decoding takes is at least what it takes.
func TestScratchIsABound(t *testing.T) {
	for _, f := range fixtures(t) {
		if Sniff(f.data) == KindJPEG {
			continue
		}
		h, err := ReadHeader(f.data)
		if err != nil {
			t.Fatal(err)
		}
		for _, gray := range []bool{false, true} {
			d := NewDecoder()
			if _, err := d.Pixels(f.data, gray); err != nil {
				continue // not built
			}
			took := 0
			for _, buf := range d.buffers() {
				took += cap(*buf)
			}
			if said := h.Scratch(gray) + 64; int64(took) > said {
				t.Errorf("%s: %d bytes where %d were said", f.name, took, said)
			}
		}
	}
}

// A size that the bytes of the file cannot hold is refused with the header, before
// whoever asked for it takes memory for the picture.
func TestLiesAreRefusedByTheHeader(t *testing.T) {
	for name, file := range map[string]string{
		"bmp":  "BM\x00\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00\x60\x2a\x00\x00\x60\x2a\x00\x00\x01\x00\x18\x00" + strings.Repeat("\x00", 24),
		"P6":   "P6 10000 10000 255\nabc",
		"P5":   "P5 10000 10000 65535\n" + strings.Repeat("a", 1<<16),
		"P3":   "P3 10000 10000 255\n1 2 3 ",
		"P4":   "P4 10000 10000\nabc",
		"P1":   "P1 10000 10000\n101 ",
		"gif":  "GIF89a\x00\x20\x00\x20\x00\x00\x00,\x00\x00\x00\x00\x00\x20\x00\x20\x00\x08\x01\x00\x00;",
		"png":  pngOf(13000, 13000, 100),
		"tiff": "II*\x00\x08\x00\x00\x00\x03\x00\x00\x01\x03\x00\x01\x00\x00\x00\xc8\x32\x00\x00\x01\x01\x03\x00\x01\x00\x00\x00\xc8\x32\x00\x00\x11\x01\x04\x00\x01\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00",
	} {
		var format kernel.FormatError
		if _, err := ReadHeader([]byte(file)); !errors.As(err, &format) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// pngOf is a PNG that says it is so large, with so many bytes of pixels.
func pngOf(w, h uint32, n int) string {
	b := []byte("\x89PNG\r\n\x1a\n")
	chunk := func(kind string, data []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
		at := len(b)
		b = append(append(b, kind...), data...)
		b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[at:]))
	}
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)
	chunk("IHDR", append(head, 8, 2, 0, 0, 0))
	chunk("IDAT", make([]byte, n))
	chunk("IEND", nil)
	return string(b)
}

// A large picture's memory is not held for ever.
func TestScratchShrinks(t *testing.T) {
	if b := sized(make([]byte, keepBytes+1), 100); cap(b) > keepBytes {
		t.Errorf("%d bytes are held for 100", cap(b))
	}
	if b := sized(make([]byte, keepBytes), 100); cap(b) != keepBytes {
		t.Error("a small buffer is given up")
	}
}

// fuzz starts from the fixtures of one kind. mend repairs what a mutation would
// always break, so that it reaches the parser.
func fuzz(f *testing.F, kind Kind, mend func([]byte) []byte) {
	for _, x := range fixtures(f) {
		if Sniff(x.data) == kind {
			f.Add(x.data)
		}
	}
	d := NewDecoder()
	f.Fuzz(func(t *testing.T, b []byte) {
		try(t, d, b)
		if mend != nil {
			try(t, d, mend(b))
		}
	})
}

func FuzzPNG(f *testing.F) {
	fuzz(f, KindPNG, func(b []byte) []byte {
		b = bytes.Clone(b)
		for at := 8; at+12 <= len(b); {
			n := int(binary.BigEndian.Uint32(b[at:]))
			if n > len(b)-at-12 {
				break
			}
			binary.BigEndian.PutUint32(b[at+8+n:], crc32.ChecksumIEEE(b[at+4:at+8+n]))
			at += 12 + n
		}
		return b
	})
}

func FuzzGIF(f *testing.F)  { fuzz(f, KindGIF, nil) }
func FuzzBMP(f *testing.F)  { fuzz(f, KindBMP, nil) }
func FuzzTIFF(f *testing.F) { fuzz(f, KindTIFF, nil) }
func FuzzPNM(f *testing.F)  { fuzz(f, KindPNM, nil) }

func FuzzWebP(f *testing.F) {
	fuzz(f, KindWebP, func(b []byte) []byte {
		if len(b) < 12 {
			return b
		}
		b = bytes.Clone(b)
		binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
		return b
	})
}

// Files that are not pictures are told apart from damaged pictures.
func TestForeignBytesAreNamed(t *testing.T) {
	for head, want := range map[string]string{
		"RIFF\x24\x00\x00\x00WAVEfmt ": "a WAV sound",
		"RIFF\x24\x00\x00\x00AVI LIST": "an AVI video",
		"\x00\x00\x00\x20ftypisom":     "an MP4 video",
		"\x93NUMPY\x01\x00":            "a NumPy array",
		"RIFF\x24\x00\x00\x00WEBPVP8 ": "",
		"\xff\xd8\xff\xe0":             "",
		"RIFF":                         "",
		"":                             "",
	} {
		if got := Foreign([]byte(head)); got != want {
			t.Errorf("%q is %q, want %q", head, got, want)
		}
		var unsupported kernel.UnsupportedError
		if _, err := ReadHeader([]byte(head)); want != "" && (!errors.As(err, &unsupported) || !strings.Contains(err.Error(), want)) {
			t.Errorf("the header of %q: %v", head, err)
		}
	}
}
