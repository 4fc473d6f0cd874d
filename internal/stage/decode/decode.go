// Package decode turns the encoded bytes of one field into pixels or values.
//
// The kind of an image is decided by its bytes, not its name. JPEG is decoded by
// the kernel (kernel.Lane.Run reads only the region that a crop needs). Every other
// kind is decoded here, completely, to uint8 HWC, and equals the result of Pillow's
// Image.open(f).convert("RGB") ("L" for grey), with one exception: 16-bit greys
// keep their high byte, where Pillow clips them.
//
// Errors are of two kinds, which callers tell apart with errors.As:
// kernel.FormatError (damaged: not what its format requires) and
// kernel.UnsupportedError (undamaged, of a kind that is not supported). The caller
// adds place, code and advice. A picture is complete or an error: a truncated file
// never gives a partly empty one.
//
// Nothing is allocated by a size that was not checked: against a limit, and against
// the size of the file. ReadHeader does both, so a caller that allocates memory by
// the header is safe, and Header.Scratch says how much memory decoding will take.
//
// This package does not know samples or batches.
package decode

import (
	"bytes"
	"fmt"
	"math"
	"strings"

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

// Header is the part of an image's header that a plan needs: the size of the
// decoded picture, in pixels.
type Header struct {
	Kind       Kind
	W, H       int
	Components int // samples per pixel as stored: 1 for a palette, alpha included

	beside int64 // most bytes that decoding needs besides the pixels
}

// Scratch is the most memory in bytes that Pixels uses at once for the picture. It
// does not count what is independent of the picture's size, or the bytes of the
// file.
func (h Header) Scratch(gray bool) int64 {
	c := int64(3)
	if gray {
		c = 1
	}
	return int64(h.W)*int64(h.H)*c + h.beside
}

// Sniff detects the kind of an image by its first bytes.
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

// ReadHeader reads an image's size without decoding it. Sizes of more than
// kernel.MaxPixels, or too large for the bytes of the file, are a FormatError.
func ReadHeader(b []byte) (Header, error) {
	h, err := ReadAnyHeader(b)
	if err == nil {
		if err = kernel.CheckSize(h.W, h.H); err != nil {
			err = malformed(h.Kind, "%v", err)
		}
	}
	if err != nil {
		return Header{}, err
	}
	return h, nil
}

// ReadAnyHeader is ReadHeader for callers with a limit of their own: it only
// rejects pictures of more than kernel.MostPixels.
func ReadAnyHeader(b []byte) (h Header, err error) {
	switch h.Kind = Sniff(b); h.Kind {
	case KindJPEG:
		var p kernel.Header
		p, err = kernel.ReadAnyHeader(b)
		h.W, h.H, h.Components = p.W, p.H, p.Components
	case KindPNG:
		var p pngInfo
		p, _, err = pngHeader(b)
		h.W, h.H, h.Components = p.w, p.h, p.samples()
		h.beside = p.scratch(len(b))
	case KindGIF:
		var p gifInfo
		p, err = gifHeader(b)
		h.W, h.H, h.Components = p.w, p.h, 1
		h.beside = int64(p.fw)*int64(p.fh) + int64(p.w+len(b))
	case KindBMP:
		var p bmpInfo
		p, err = bmpHeader(b)
		h.W, h.H, h.Components = p.w, p.h, 3
		h.beside = p.scratch()
		if p.bits <= 8 {
			h.Components = 1
		}
	case KindWebP:
		var p webpImage
		p, err = webpHeader(b)
		h.W, h.H, h.Components = p.w, p.h, 3
		h.beside = p.scratch()
		if p.alpha {
			h.Components = 4
		}
	case KindTIFF:
		var p tiffInfo
		p, err = tiffHeader(b)
		h.W, h.H, h.Components = p.w, p.h, p.samples
		if err == nil {
			h.beside = p.scratch(len(b))
		}
		if p.turned() {
			h.W, h.H = p.h, p.w
		}
	case KindPNM:
		var p pnmInfo
		p, err = pnmHeader(b)
		h.W, h.H, h.Components = p.w, p.h, p.samples()
		h.beside = int64(p.w * p.samples())
	default:
		err = notAnImage(b)
	}
	if err != nil {
		return Header{}, err
	}
	return h, nil
}

// Decoder decodes pictures for one lane. It owns the memory of its results. Only
// one goroutine may use it at a time. After a large picture, Free frees its memory.
type Decoder struct {
	pix      []byte  // the last result's samples
	row      []byte  // one row being decoded
	idx      []byte  // a whole picture being decoded, if it does not come by rows
	plane    []byte  // one plane of a strip or tile
	joined   []byte  // compressed pixels, if the file has them in pieces
	pal      palette // of the current picture
	pngr     pngReader
	pnmScale pnmScale
	inflate  kernel.Inflater
	lzw      kernel.LZW
}

// NewDecoder returns a Decoder without scratch memory; it grows with use.
func NewDecoder() *Decoder { return &Decoder{} }

// Pixels decodes a picture of any kind except JPEG to uint8 HWC with three
// channels, or one if gray. The result is valid until the next call.
func (d *Decoder) Pixels(b []byte, gray bool) (px kernel.Pixels, err error) {
	kind := Sniff(b)
	// The parsers here are written not to panic. The libraries that they use have
	// panicked on hostile files, and a lane must survive its input.
	defer func() {
		if cause := recover(); cause != nil {
			px, err = kernel.Pixels{}, malformed(kind, "the decoder gave up: %v", cause)
		}
	}()
	var c canvas
	switch kind {
	case KindPNG:
		c, err = d.png(b, gray)
	case KindGIF:
		c, err = d.gif(b, gray)
	case KindBMP:
		c, err = d.bmp(b, gray)
	case KindWebP:
		c, err = d.webp(b, gray)
	case KindTIFF:
		c, err = d.tiff(b, gray)
	case KindPNM:
		c, err = d.pnm(b, gray)
	case KindJPEG:
		err = unsupported(kind, "decoded by the kernel, not here")
	default:
		err = notAnImage(b)
	}
	if err != nil {
		return kernel.Pixels{}, err
	}
	return c.pixels(), nil
}

// otherKinds are images that are recognized but not supported.
var otherKinds = [...]struct {
	at   int
	sign string
	name string
}{
	{4, "ftypavif", "AVIF"},
	{4, "ftypavis", "AVIF"},
	{4, "ftypheic", "HEIC"},
	{4, "ftypheix", "HEIC"},
	{4, "ftypmif1", "HEIF"},
	{4, "jP  \r\n\x87\n", "JPEG 2000"},
	{0, "\xff\x4f\xff\x51", "JPEG 2000"},
	{4, "JXL \r\n\x87\n", "JPEG XL"},
	{0, "\xff\x0a", "JPEG XL"},
	{0, "\x00\x00\x01\x00", "ICO"},
	{0, "8BPS", "Photoshop"},
	{0, "qoif", "QOI"},
	{0, "DDS ", "DDS"},
	{0, "%!PS", "PostScript"},
	{0, "%PDF", "PDF"},
	{0, "v/1\x01", "OpenEXR"},
	{0, "#?RADIANCE", "Radiance HDR"},
	{0, "<svg", "SVG"},
	{0, "PF\n", "PFM"},
	{0, "Pf\n", "PFM"},
	{0, "P7\n", "PAM"},
}

// foreignKinds are files that are not pictures.
var foreignKinds = [...]struct {
	at   int
	sign string
	name string
}{
	{8, "WAVE", "a WAV sound"},
	{8, "AVI ", "an AVI video"},
	{0, "fLaC", "a FLAC sound"},
	{0, "OggS", "an Ogg sound or video"},
	{0, "ID3", "an MP3 sound"},
	{0, "\xff\xfb", "an MP3 sound"},
	{0, "\xff\xf3", "an MP3 sound"},
	{0, "\x1aE\xdf\xa3", "a Matroska or WebM video"},
	{4, "ftypisom", "an MP4 video"},
	{4, "ftypmp4", "an MP4 video"},
	{4, "ftypqt", "a QuickTime video"},
	{4, "ftypM4A", "an MPEG-4 sound"},
	{0, "\x93NUMPY", "a NumPy array"},
	{0, "PK\x03\x04", "a zip archive"},
	{0, "\x1f\x8b\x08", "gzip data"},
}

// Foreign says what bytes are that are not a picture, such as "a WAV sound"; "" if
// they are a picture, or may be a damaged one.
func Foreign(b []byte) string {
	for _, other := range foreignKinds {
		if len(b) >= other.at && bytes.HasPrefix(b[other.at:], []byte(other.sign)) && (other.at != 8 || bytes.HasPrefix(b, []byte("RIFF"))) {
			return other.name
		}
	}
	return ""
}

// notAnImage returns an error that says what bytes of an unknown kind are, as far
// as possible.
func notAnImage(b []byte) error {
	if len(b) == 0 {
		return kernel.FormatError("not an image: it is empty")
	}
	if other := Foreign(b); other != "" {
		return kernel.UnsupportedError("not an image: it is " + other)
	}
	for _, other := range otherKinds {
		if len(b) >= other.at && strings.HasPrefix(string(b[other.at:min(len(b), other.at+16)]), other.sign) {
			return kernel.UnsupportedError(other.name + " images are not supported; convert them to PNG, JPEG or WebP")
		}
	}
	return kernel.FormatError("not an image of a known kind: it begins with " + shown(b[:min(len(b), 12)]))
}

func malformed(k Kind, format string, a ...any) error {
	return kernel.FormatError(k.String() + ": " + fmt.Sprintf(format, a...))
}

func unsupported(k Kind, format string, a ...any) error {
	return kernel.UnsupportedError(k.String() + ": not supported: " + fmt.Sprintf(format, a...))
}

// checkSize rejects impossible sizes of a stored picture.
func checkSize(k Kind, w, h int64) error {
	if w > math.MaxInt32 || h > math.MaxInt32 {
		w, h = min(w, math.MaxInt32), min(h, math.MaxInt32)
	}
	if err := kernel.CheckLimit(int(w), int(h), kernel.MostPixels); err != nil {
		return kernel.FormatError(k.String() + ": " + err.Error())
	}
	return nil
}
