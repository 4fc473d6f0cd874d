// Package kernel is every pixel and copy loop of stoker: one job per picture,
// run by C (a JPEG decoder of our own, hand-written SIMD) in a single call, or by its
// plain-Go twin, which is the reference and the whole engine where there is no
// C compiler. libjpeg-turbo and libwebp are built in by the tags stoker_libjpeg and
// stoker_libwebp; without them nothing but a C compiler is needed.
//
// A job goes: encoded JPEG or raw pixels -> steps (crop, resize, pad, flips,
// grey) -> output layout (uint8 or normalised float32; HWC or CHW), written to
// its final place. A leading crop of a JPEG decodes only that region.
//
// Where to look: chain.go says which steps commute and fuse, plan_cgo.go lays them out
// in passes, job.c runs those row by row. A JPEG's markers are read by frame.c, its entropy-coded data by huff.c,
// with segment.c finding restart markers for it; jpeg.c turns them into rows of
// pixels, by the transforms of dct.h and, to fewer samples, reduced.h, and the
// upsampling of chroma.h, compiled for each target in jpeg_base.c, jpeg_avx2.c and
// jpeg_avx512.c, and in jpeg_portable.c for processors that are not x86. What frame.c does not take, libjpeg.c decodes, or the twin where
// that is not built in. IndexJPEG, which puts restart markers into a picture, reads
// it as symbols (tokens.c, coefficients.c), makes codes for them (codes.c), and
// writes them (write.c), as index.c tells it to. axis.c and axis_avx2.c make
// resampling weights; base.c, avx2.c and avx512.c hold the loops of each target.
//
// Beside jobs there is what other pictures and formats are packed by: Inflater (inflate.c,
// inflate_loop.h; deflate, zlib, gzip), LZW (lzw.c), PNG's filters (unfilter.c), WebP (vp8_decode.h
// for lossy ones, libwebp for others).
//
// twin.go, resample.go, upsample.go, decode_go.go and the plain JPEG decoder
// (plain.go, plain_scan.go, plain_dct.go, plain_draft.go) are the twin. Results do
// not depend on the target, to the bit, except where a JPEG is left to the
// standard library, which rounds otherwise: pictures that are progressive, in several
// scans or CMYK differ by at most 3 or 4 a sample, 15 of subsampled CMYK; those
// of arithmetic coding it refuses. Of all of these it makes no drafts.
//
// The C under AddressSanitizer, damaged files included: go test -asan.
package kernel

import (
	"fmt"
	"time"
)

// Op is the kind of a step.
type Op uint8

// The steps. Coordinates are pixels of the picture before the step.
const (
	OpCrop   Op = iota + 1 // to the box X, Y, W, H, which must be inside the picture
	OpResize               // to W x H by Filter
	OpPad                  // to W x H, the picture at X, Y; the rest by Mode
	OpFlipH                // left to right
	OpFlipV                // top to bottom
	OpGray                 // to luma by Pillow's fixed point, (19595 R + 38470 G + 7471 B + 32768) >> 16, in C channels, 1 or 3
)

// Filter is a way of resampling.
type Filter uint8

// The filters.
const (
	Bilinear Filter = iota // triangle, widened when shrinking (antialias=True)
	Nearest                // floor(i * in / out), as torchvision's NEAREST
)

// PadMode is the contents of the padding.
type PadMode uint8

// The modes, by torchvision's names.
const (
	PadConstant PadMode = iota
	PadEdge
	PadReflect
	PadSymmetric
)

// Step is one geometric or colour stage.
type Step struct {
	Op         Op
	Filter     Filter
	Mode       PadMode
	X, Y, W, H int
	C          int      // OpGray: channels of the result
	Fill       [3]uint8 // OpPad with PadConstant

	// OpResize with Bilinear: where it is given a box of a JPEG of at least 2, 4 or 8
	// times its width and its height, the JPEG may be decoded at 1/2, 1/4 or 1/8 of its
	// size, as libjpeg-turbo's scaled decoding does it, and resampled from there. The
	// box is not rounded. Pixels are near to what they would be without it, and as firm.
	Draft bool
}

// Pixels is an uncompressed picture: uint8, HWC, rows without padding.
type Pixels struct {
	Pix  []byte
	W, H int
	C    int // 1 or 3
}

// Output is how the result is written.
type Output struct {
	Float       bool       // float32: x*Scale[c] + Bias[c], product and sum rounded apart; else uint8
	CHW         bool       // planes; else interleaved
	Scale, Bias [3]float32 // Float only
}

// Job is one picture's whole chain. The kernel keeps nothing of it.
type Job struct {
	JPEG  []byte // the encoded picture; nil: Src
	Src   Pixels
	Gray  bool // JPEG only: decode to one channel, as Pillow's convert("L") of the decoded RGB
	Steps []Step
	Out   Output
	Dst   []byte // exactly the result's bytes

	// Strict refuses a JPEG whose scan goes on after its last block, by a TrailingError:
	// that of a size which its header understates, or bytes between it and the end
	// marker. What is stored after the region is then read too. Whoever looks for damage
	// asks for it; training does not, for such bytes change no pixel and are met in sound
	// photographs.
	Strict bool

	Way Way // set by Run: which decoder took the JPEG

	Timed bool  // Spent is wanted
	Spent Spent // set by Run, unless it fails
}

// Way is the decoder that took a JPEG.
type Way uint8

// The ways.
const (
	WayOwn     Way = iota // this package's: what nearly all photographs are
	WayLibjpeg            // libjpeg-turbo: progressive, four components, odd sampling, several scans
	WayGo                 // the same pictures by the standard library, where libjpeg-turbo is not built in
)

func (w Way) String() string { return [...]string{"own", "libjpeg", "go"}[w] }

// Spent is where the time of a job went: in the decoder of a JPEG; in writing rows
// of the result as they were asked for, with the vertical half of a resampling where
// one loop does both; in all of it. The rest are the steps.
type Spent struct{ Decode, Write, All time.Duration }

// Header is what a JPEG's markers say.
type Header struct {
	W, H        int
	Components  int  // 1 grey, 3 colour, 4 CMYK or YCCK
	Progressive bool // SOF2, SOF10
	Arithmetic  bool // SOF9, SOF10
	Restart     int  // restart interval in MCUs; 0: none

	// Coefficients is the bytes that all coefficients take, at 2 each, where they must
	// be kept until the last scan: of progressive pictures and of several scans; else 0.
	Coefficients int64
}

// FormatError says that bytes are damaged: not what their format promises.
type FormatError string

func (e FormatError) Error() string { return string(e) }

// TrailingError says that a strict job's JPEG is whole, and that its scan goes on after
// its last block: with bytes that belong to nothing, or with blocks of a picture that its
// header says to be smaller. Nobody can tell which. It unwraps to a FormatError.
type TrailingError string

func (e TrailingError) Error() string { return string(e) }

// Unwrap is the same text as what it is for those who do not tell it from damage.
func (e TrailingError) Unwrap() error { return FormatError(e) }

// UnsupportedError says that bytes are valid, of a kind that is not built.
type UnsupportedError string

func (e UnsupportedError) Error() string { return string(e) }

// MaxPixels is the largest picture that is decoded, unless somebody asks for another
// limit: what Pillow refuses as a decompression bomb (twice its MAX_IMAGE_PIXELS).
const MaxPixels = 178956970

// MostPixels is the largest limit that anybody can ask for: the bytes of a picture
// still fit into 31 bits.
const MostPixels = 1 << 29

// CheckSize refuses sizes that must not be allocated, where nobody asked for another limit.
func CheckSize(w, h int) error { return CheckLimit(w, h, MaxPixels) }

// CheckLimit is CheckSize with a limit in pixels.
func CheckLimit(w, h int, limit int64) error {
	if w <= 0 || h <= 0 {
		return FormatError(fmt.Sprintf("the header declares %d x %d pixels", w, h))
	}
	if int64(w)*int64(h) > limit {
		return FormatError(fmt.Sprintf("the header declares %d x %d pixels, more than the limit of %d", w, h, limit))
	}
	return nil
}
