// Package decode turns the encoded bytes of one field into pixels or values.
//
// What an image is, its bytes say, not its name. JPEG is the kernel's business
// (kernel.Lane.Run reads only the region that a crop needs); every other kind
// is decoded here, whole, to uint8 HWC, and equals what Pillow's
// Image.open(f).convert("RGB") gives ("L" for grey), with one exception: 16-bit
// greys are taken by their high byte, where Pillow clips them.
//
// Errors are of two kinds, which callers tell apart with errors.As:
// kernel.FormatError (damaged: not what its format promises) and
// kernel.UnsupportedError (intact, of a kind that is not built). Place, code
// and advice are the caller's to add. A picture is whole or an error: a file
// that ends early never gives a partly empty one, and nothing is allocated by
// a size that kernel.CheckSize has not seen.
//
// This package knows nothing of samples or batches.
package decode

import (
	"bytes"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// Kind is an image format.
type Kind uint8

// The kinds.
const (
	KindUnknown Kind = iota
	KindJPEG
	KindPNG
	KindWebP
	KindGIF
	KindBMP
	KindTIFF
	KindPNM // PBM, PGM and PPM, plain and raw: P1 to P6
)

var kindNames = [...]string{"unknown", "JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF", "PNM"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Header is what the first bytes of an image say, as far as a plan needs it:
// the size of the picture that decoding gives, in pixels.
type Header struct {
	Kind       Kind
	W, H       int
	Components int // samples per pixel as stored: a palette counts 1, alpha counts
}

// Sniff tells the kind of an image by its first bytes.
func Sniff(b []byte) Kind {
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xd8\xff")):
		return KindJPEG
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return KindPNG
	case len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return KindWebP
	case bytes.HasPrefix(b, []byte("GIF87a")), bytes.HasPrefix(b, []byte("GIF89a")):
		return KindGIF
	case bytes.HasPrefix(b, []byte("BM")):
		return KindBMP
	case bytes.HasPrefix(b, []byte("II*\x00")), bytes.HasPrefix(b, []byte("MM\x00*")),
		bytes.HasPrefix(b, []byte("II+\x00")), bytes.HasPrefix(b, []byte("MM\x00+")):
		return KindTIFF
	case len(b) >= 3 && b[0] == 'P' && '1' <= b[1] && b[1] <= '6' && (isSpace(b[2]) || b[2] == '#'):
		return KindPNM
	}
	return KindUnknown
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// ReadHeader reads an image's size without decoding it. Sizes that must not be
// allocated are a FormatError.
func ReadHeader(b []byte) (Header, error) {
	return Header{}, kernel.UnsupportedError("decode: not built yet")
}

// Decoder decodes pictures for one lane. It owns the memory of its results:
// one goroutine at a time.
type Decoder struct {
	pix []byte // the last result's samples
}

// NewDecoder returns a Decoder without scratch memory; it grows with use.
func NewDecoder() *Decoder { return &Decoder{} }

// Pixels decodes a picture of any kind but JPEG to uint8 HWC with three
// channels, or one if gray. The result is valid until the next call.
func (d *Decoder) Pixels(b []byte, gray bool) (kernel.Pixels, error) {
	return kernel.Pixels{}, kernel.UnsupportedError("decode: not built yet")
}
