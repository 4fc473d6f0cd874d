// Package kernel is every pixel and copy loop of stoker. A picture is one job, which C
// (our own JPEG decoder, hand-written SIMD) runs in a single call, or the plain-Go
// twin, which is the reference, and the whole engine in a build without a C compiler.
// The build tags stoker_libjpeg and stoker_libwebp add libjpeg-turbo and libwebp;
// without them, only a C compiler is needed.
//
// The stages of a job: encoded JPEG or raw pixels -> steps (crop, resize, pad, flips,
// grey, colours) -> output layout (uint8, normalised float32, or a table's numbers of 16
// bits; HWC or CHW), written to its final memory. A leading crop of a JPEG decodes only
// that region.
//
// Where to look: chain.go says which steps commute and fuse, plan_cgo.go arranges them
// in passes, and job.c runs those row by row. colour.c has the colours of a pass;
// sharpen.c, blur.c and erase.c the steps that need more of a picture than one pixel.
// frame.c reads a JPEG's markers and huff.c its entropy-coded data, for which segment.c
// finds restart markers. jpeg.c turns the data into rows of pixels, by the transforms
// of dct.h and, for fewer samples, reduced.h, and the upsampling of chroma.h; these are
// compiled for each target in jpeg_base.c, jpeg_avx2.c and jpeg_avx512.c, and in
// jpeg_portable.c for processors other than x86. What frame.c does not accept,
// libjpeg.c decodes, or the twin if libjpeg is not built in. IndexJPEG puts restart
// markers into a picture: it reads the picture as symbols (tokens.c, coefficients.c),
// makes codes for them (codes.c), and writes them (write.c); index.c directs this.
// axis.c and axis_avx2.c make resampling weights; base.c, avx2.c and avx512.c hold the
// loops of each target.
//
// Besides jobs, the package decompresses other pictures and formats: Inflater
// (inflate.c, inflate_loop.h; deflate, zlib, gzip), LZW (lzw.c), PNG's filters
// (unfilter.c), WebP (vp8_decode.h for lossy pictures, libwebp for lossless ones). MixUp and
// CutMix mix the pictures of a batch (mix.c, mix_avx2.c).
//
// twin.go, resample.go, upsample.go, decode_go.go and the plain JPEG decoder (plain.go,
// plain_scan.go, plain_dct.go, plain_draft.go) are the twin. Results do not depend on
// the target, to the bit, with one exception: the standard library, if it decodes a
// JPEG, rounds differently. Progressive and CMYK pictures and those in several scans
// then differ by at most 3 or 4 per sample (15 for subsampled CMYK); arithmetic coding
// is refused, and none of these is decoded as a draft.
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

	// Colours; see colour.go. N is the step's number.
	OpInvert       // every value v becomes 255 - v
	OpPosterize    // keeps the N highest bits of every value, 0 to 8
	OpSolarize     // inverts values of at least N
	OpBrightness   // multiplies every value by N >= 0
	OpContrast     // blends with the mean of the picture's luma: N of the picture, 1 - N of the mean
	OpSaturation   // blends with the luma of each pixel: N of the picture, 1 - N of the luma
	OpHue          // turns the hue by N turns, -1/2 to 1/2
	OpAutocontrast // stretches each channel so that its least value becomes 0 and its greatest 255
	OpEqualize     // makes the histogram of each channel flat
	OpPermute      // channel c of the result is channel Perm[c]

	// Steps that read a pixel's neighbours; see whole.go.
	OpSharpness // blends with the picture smoothed by 3 x 3: N of the picture, 1 - N of the other
	OpBlur      // smooths by a Gaussian over W x H pixels, odd numbers; N is the weight of the next pixel by that of the pixel itself, e^(-1/(2 sigma^2))

	OpErase // fills the box X, Y, W, H, which may be empty, with Fill; see erase.go

	// Warps by Map, to W x H by Bilinear or Nearest, with Fill if Filled; see warp.go.
	OpAffine
	OpPerspective

	// A sum of pictures; see blend.go. N is a picture's weight.
	OpKeep // keeps the picture for later, and begins a sum with it
	OpAdd  // adds the picture to the sum, and returns to the picture that was kept
	OpSum  // adds the picture to the sum, which is the result
)

// Filter is a way of resampling.
type Filter uint8

// The filters.
const (
	Bilinear     Filter = iota // triangle, widened when shrinking (antialias=True)
	Nearest                    // floor(i * in / out), as torchvision's NEAREST
	Bicubic                    // Keys's cubic with a = -1/2, widened when shrinking (antialias=True)
	NearestExact               // floor((i + 1/2) * in / out), as torchvision's NEAREST_EXACT
)

// Smooth reports whether pixels are weighted sums, and not copies of pixels.
func (f Filter) Smooth() bool { return f == Bilinear || f == Bicubic }

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
	Fill       [3]uint8 // OpPad with PadConstant, OpErase, warps
	N          float64  // of colours, OpSharpness, OpBlur, and weights
	Filled     bool     // warps: outside the picture is Fill; otherwise it is zero
	Perm       [3]uint8 // OpPermute
	Owner      uint8    // below Owners: what Spent.Own counts the step for, if it is a colour or reads the whole picture
	Map        Map      // warps

	// OpResize with Bilinear: if its input is a box of a JPEG of at least 2, 4 or 8
	// times the result's width and height, the JPEG may be decoded at 1/2, 1/4 or 1/8
	// of its size, by libjpeg-turbo's scaled decoding, and resampled from there. The
	// box is not rounded. Pixels are close to those without Draft, and as reproducible.
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
	Erased      []Erased   // of Float and Halves
	Halves      *Halves    // 16 bits: Halves[c][x]; nil: as Float says
	Half        Float      // the type of Halves; needed only if Erased is not empty
}

// Halves are numbers of 16 bits, as their bits: what every byte becomes, in each channel.
type Halves [3][256]uint16

// size is the bytes of one number of the result.
func (o *Output) size() int {
	switch {
	case o.Halves != nil:
		return 2
	case o.Float:
		return 4
	}
	return 1
}

// Job is the complete processing of one picture. The kernel keeps no reference to it.
type Job struct {
	JPEG  []byte // the encoded picture; nil: Src
	Src   Pixels
	Gray  bool // JPEG only: decode to one channel, as Pillow's convert("L") of the decoded RGB
	Steps []Step
	Out   Output
	Dst   []byte // exactly the result's bytes

	// Strict refuses, with a TrailingError, a JPEG whose scan continues after its last
	// block: because its header understates the size, or because there are bytes between
	// it and the end marker. It also reads what is stored after the region. A search for
	// damage sets it; training does not, because such bytes change no pixel and occur in
	// sound photographs.
	Strict bool

	// Entries is what is known about the scan of the JPEG; nil: nothing is, nor recorded. A
	// strict job ignores it.
	Entries *Entries

	Way Way // set by Run: which decoder took the JPEG

	Timed bool  // Spent is wanted
	Spent Spent // set by Run, unless it fails
}

// Way is the decoder that took a JPEG.
type Way uint8

// The ways.
const (
	WayOwn     Way = iota // this package's own decoder, for nearly all photographs
	WayLibjpeg            // libjpeg-turbo: progressive, four components, odd sampling, several scans
	WayGo                 // the same pictures by the standard library, where libjpeg-turbo is not built in
)

func (w Way) String() string { return [...]string{"own", "libjpeg", "go"}[w] }

// Owners is the number of owners that the steps of a job may have.
const Owners = 32

// Spent is the time of a job: in the decoder of a JPEG; in writing rows of the result,
// including the vertical half of a resampling if one loop does both; in colours and steps
// that read the whole picture, by their owners; and in total. The rest is the other steps.
type Spent struct {
	Decode, Write, All time.Duration
	Own                [Owners]time.Duration
}

// Header describes a JPEG by its markers.
type Header struct {
	W, H        int
	Components  int  // 1 grey, 3 colour, 4 CMYK or YCCK
	Progressive bool // SOF2, SOF10
	Arithmetic  bool // SOF9, SOF10
	Restart     int  // restart interval in MCUs; 0: none

	// Coefficients is the size in bytes of all coefficients, 2 bytes each, if they must
	// be kept until the last scan (progressive pictures and those of several scans);
	// otherwise 0.
	Coefficients int64
}

// FormatError means that bytes are damaged: they do not match their format.
type FormatError string

func (e FormatError) Error() string { return string(e) }

// TrailingError means that a strict job's JPEG is complete, but its scan continues after
// its last block: with bytes that belong to nothing, or with blocks of a picture whose
// header understates its size. The two cannot be told apart. It unwraps to a
// FormatError.
type TrailingError string

func (e TrailingError) Error() string { return string(e) }

// Unwrap is a FormatError with the same text, for callers that treat it as damage.
func (e TrailingError) Unwrap() error { return FormatError(e) }

// UnsupportedError means that bytes are valid, but of a kind that is not supported.
type UnsupportedError string

func (e UnsupportedError) Error() string { return string(e) }

// MaxPixels is the default limit of a picture's pixels: what Pillow refuses as a
// decompression bomb (twice its MAX_IMAGE_PIXELS).
const MaxPixels = 178956970

// MostPixels is the largest limit that can be set: the bytes of a picture still fit into
// 31 bits.
const MostPixels = 1 << 29

// CheckSize refuses sizes above the default limit, before anything is allocated.
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
