package decode

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// TIFF is decoded here: golang.org/x/image/tiff does not support separate planes,
// orientation or CMYK, and misinterprets pixels of some layouts. Only its fax
// decoder is used. The first picture of the file is read, in all variants that
// Pillow reads, except those that tiffInfo.check rejects.

// Tags.
const (
	tiffWidth       = 256
	tiffHeight      = 257
	tiffBits        = 258
	tiffCompression = 259
	tiffPhotometric = 262
	tiffFillOrder   = 266
	tiffStrips      = 273
	tiffOrientation = 274
	tiffSamples     = 277
	tiffStripRows   = 278
	tiffStripBytes  = 279
	tiffPlanar      = 284
	tiffT4Options   = 292
	tiffPredictor   = 317
	tiffColours     = 320
	tiffTileWidth   = 322
	tiffTileHeight  = 323
	tiffTiles       = 324
	tiffTileBytes   = 325
	tiffInkSet      = 332
	tiffExtra       = 338
	tiffFormat      = 339
)

var tiffWanted = [...]uint16{
	tiffWidth, tiffHeight, tiffBits, tiffCompression, tiffPhotometric, tiffFillOrder, tiffStrips, tiffOrientation,
	tiffSamples, tiffStripRows, tiffStripBytes, tiffPlanar, tiffT4Options, tiffPredictor, tiffColours,
	tiffTileWidth, tiffTileHeight, tiffTiles, tiffTileBytes, tiffInkSet, tiffExtra, tiffFormat,
}

// Photometric interpretations.
const (
	tiffWhiteIsZero = 0
	tiffBlackIsZero = 1
	tiffRGB         = 2
	tiffPalette     = 3
	tiffCMYK        = 5
)

var tiffPhotometricNames = map[uint64]string{
	4: "a transparency mask", 6: "YCbCr", 8: "L*a*b*", 9: "ICC L*a*b*", 10: "ITU L*a*b*",
	32803: "a camera's raw mosaic", 32844: "LogL", 32845: "LogLuv", 34892: "linear raw",
}

// Compressions.
const (
	tiffRaw     = 1
	tiffFaxRows = 2
	tiffFax3    = 3
	tiffFax4    = 4
	tiffLZW     = 5
	tiffZip     = 8
	tiffOldZip  = 32946
	tiffRuns    = 32773
)

var tiffCompressionNames = map[uint64]string{
	tiffFaxRows: "fax rows without marks (CCITT 1D)",
	6:           "JPEG, old style", 7: "JPEG", 9: "JBIG", 10: "JBIG", 32771: "16-bit padding", 32809: "ThunderScan",
	33003: "JPEG 2000", 33005: "JPEG 2000", 34712: "JPEG 2000", 34676: "SGI log", 34677: "SGI log",
	34887: "LERC", 34925: "LZMA", 50000: "Zstandard", 50001: "WebP", 50002: "JPEG XL",
}

// tiffValues are a tag's numbers as stored in the file.
type tiffValues struct {
	data  []byte
	size  int // bytes per number: 1, 2, 4 or 8
	order binary.ByteOrder
}

func (v tiffValues) len() int {
	if v.size == 0 {
		return 0
	}
	return len(v.data) / v.size
}

func (v tiffValues) at(i int) uint64 {
	p := v.data[i*v.size:]
	switch v.size {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(v.order.Uint16(p))
	case 4:
		return uint64(v.order.Uint32(p))
	}
	return v.order.Uint64(p)
}

// first is the tag's first number, or missing if the tag is missing.
func (v tiffValues) first(missing uint64) uint64 {
	if v.len() == 0 {
		return missing
	}
	return v.at(0)
}

// alike reports whether the first n numbers, or all if there are fewer, are equal.
func (v tiffValues) alike(n int) bool {
	for i := range min(n, v.len()) {
		if v.at(i) != v.at(0) {
			return false
		}
	}
	return true
}

// tiffInfo is the first picture's directory.
type tiffInfo struct {
	order       binary.ByteOrder
	w, h        int // as stored; orientations 5 to 8 swap them
	bits        int // bits per sample
	samples     int // samples per pixel, including extra ones
	photometric uint64
	compression uint64
	predictor   uint64
	fillOrder   uint64
	orientation uint64
	planes      int  // 1: samples are interleaved; otherwise as many as samples
	multiplied  bool // colours are multiplied by the alpha after them
	colours     tiffValues
	blockW      int // a strip is as wide as the picture
	blockH      int
	tiled       bool
	offsets     tiffValues // of blocks, by plane, row, column
	sizes       tiffValues
}

// turned reports whether the picture is shown with its rows as columns.
func (p *tiffInfo) turned() bool { return p.orientation >= 5 && p.orientation <= 8 }

// tiffDirectory reads the wanted tags of the first directory.
func tiffDirectory(b []byte) (order binary.ByteOrder, tags map[uint16]tiffValues, err error) {
	order = binary.LittleEndian
	if b[0] == 'M' {
		order = binary.BigEndian
	}
	// Classic files count in 4 bytes, BigTIFF in 8.
	word, countSize, at := 4, 2, uint64(0)
	if order.Uint16(b[2:]) == 43 {
		word, countSize = 8, 8
		if len(b) < 16 || order.Uint16(b[4:]) != 8 {
			return nil, nil, malformed(KindTIFF, "the header of a BigTIFF is damaged")
		}
		at = order.Uint64(b[8:])
	} else if len(b) >= 8 {
		at = uint64(order.Uint32(b[4:]))
	}
	size := uint64(len(b))
	if at < 8 || at > size || size-at < uint64(countSize) {
		return nil, nil, malformed(KindTIFF, "the directory would begin at byte %d of %d", at, size)
	}
	count := uint64(order.Uint16(b[at:]))
	if word == 8 {
		count = order.Uint64(b[at:])
	}
	at += uint64(countSize)
	entry := uint64(4 + 2*word)
	if count > (size-at)/entry || count > math.MaxUint16 {
		return nil, nil, malformed(KindTIFF, "the file ends inside its directory of %d tags", count)
	}
	tags = make(map[uint16]tiffValues, len(tiffWanted))
	for range count {
		e := b[at : at+entry]
		at += entry
		tag := order.Uint16(e)
		if !slices.Contains(tiffWanted[:], tag) {
			continue
		}
		if _, twice := tags[tag]; twice {
			return nil, nil, malformed(KindTIFF, "duplicate tag %d", tag)
		}
		if tags[tag], err = tiffEntry(b, e, word, order); err != nil {
			return nil, nil, err
		}
	}
	return order, tags, nil
}

// tiffEntry finds the values of one entry of the directory: in its own last bytes
// if they fit, or where those point to.
func tiffEntry(b, e []byte, word int, order binary.ByteOrder) (v tiffValues, err error) {
	v.order = order
	switch order.Uint16(e[2:]) {
	case 1, 6, 7: // BYTE, SBYTE, UNDEFINED
		v.size = 1
	case 3: // SHORT
		v.size = 2
	case 4, 13: // LONG, IFD
		v.size = 4
	case 16, 18: // LONG8, IFD8
		v.size = 8
	default: // texts, fractions, floats
		return v, malformed(KindTIFF, "tag %d has values of type %d", order.Uint16(e), order.Uint16(e[2:]))
	}
	n, value, size := uint64(order.Uint32(e[4:])), e[4+word:], uint64(len(b))
	if word == 8 {
		n = order.Uint64(e[4:])
	}
	if n <= uint64(word/v.size) {
		v.data = value[:n*uint64(v.size)]
		return v, nil
	}
	from := uint64(order.Uint32(value))
	if word == 8 {
		from = order.Uint64(value)
	}
	if from > size || n > (size-from)/uint64(v.size) {
		return v, malformed(KindTIFF, "the %d values of tag %d are outside the file", n, order.Uint16(e))
	}
	v.data = b[from : from+n*uint64(v.size)]
	return v, nil
}

func tiffHeader(b []byte) (p tiffInfo, err error) {
	order, tags, err := tiffDirectory(b)
	if err != nil {
		return p, err
	}
	w, h := tags[tiffWidth].first(0), tags[tiffHeight].first(0)
	if err := checkSize(KindTIFF, int64(min(w, math.MaxInt32)), int64(min(h, math.MaxInt32))); err != nil {
		return p, err
	}
	p = tiffInfo{
		order: order, w: int(w), h: int(h),
		photometric: tags[tiffPhotometric].first(tiffWhiteIsZero),
		compression: tags[tiffCompression].first(tiffRaw),
		predictor:   tags[tiffPredictor].first(1),
		fillOrder:   tags[tiffFillOrder].first(1),
		orientation: tags[tiffOrientation].first(1),
		planes:      1,
		colours:     tags[tiffColours],
	}
	if err := p.pixel(tags); err != nil {
		return p, err
	}
	if err := p.check(tags); err != nil {
		return p, err
	}
	if err := p.blocks(tags); err != nil {
		return p, err
	}
	return p, p.inside(b)
}

// pixel reads how many samples of how many bits a pixel has.
func (p *tiffInfo) pixel(tags map[uint16]tiffValues) error {
	depth := tags[tiffBits]
	p.samples = int(min(tags[tiffSamples].first(1), math.MaxInt16))
	p.bits = int(min(depth.first(1), math.MaxInt16))
	if !depth.alike(p.samples) {
		return unsupported(KindTIFF, "samples of different depths")
	}
	if p.samples < 1 || p.samples > 8 {
		return unsupported(KindTIFF, "%d samples per pixel", p.samples)
	}
	base := p.colourSamples()
	if p.samples < base {
		return malformed(KindTIFF, "%d samples per pixel, but its colours need %d", p.samples, base)
	}
	if tags[tiffPlanar].first(1) == 2 {
		p.planes = p.samples
	}
	p.multiplied = p.samples > base && tags[tiffExtra].first(0) == 1
	return nil
}

func (p *tiffInfo) colourSamples() int {
	switch p.photometric {
	case tiffRGB:
		return 3
	case tiffCMYK:
		return 4
	}
	return 1
}

// check rejects what is not supported.
func (p *tiffInfo) check(tags map[uint16]tiffValues) error {
	format := tags[tiffFormat]
	if f := format.first(1); !format.alike(p.samples) || f != 1 && (f != 2 || p.bits != 8 || p.photometric != tiffBlackIsZero) {
		return unsupported(KindTIFF, "samples that are signed or floating (sample format %d, %d bits)", f, p.bits)
	}
	fits := false
	switch p.photometric {
	case tiffWhiteIsZero, tiffBlackIsZero, tiffPalette:
		fits = p.bits == 8 || p.samples == 1 && (p.bits == 1 || p.bits == 2 || p.bits == 4) || p.bits == 16 && p.photometric == tiffBlackIsZero
	case tiffRGB, tiffCMYK:
		fits = p.bits == 8 || p.bits == 16
	default:
		name := tiffPhotometricNames[p.photometric]
		return unsupported(KindTIFF, "colours as %s (photometric interpretation %d)", orUnknown(name), p.photometric)
	}
	switch {
	case !fits:
		return unsupported(KindTIFF, "%d samples of %d bits with photometric interpretation %d", p.samples, p.bits, p.photometric)
	case p.multiplied && p.photometric != tiffRGB:
		return unsupported(KindTIFF, "greys, palettes or inks multiplied by alpha")
	case p.photometric == tiffCMYK && tags[tiffInkSet].first(1) != 1:
		return unsupported(KindTIFF, "inks other than CMYK")
	case p.photometric == tiffPalette && p.colours.len() != 3<<p.bits:
		return malformed(KindTIFF, "a palette of %d values, but %d bits need %d", p.colours.len(), p.bits, 3<<p.bits)
	case p.fillOrder != 1 && p.fillOrder != 2:
		return malformed(KindTIFF, "fill order %d is not defined", p.fillOrder)
	}
	return p.checkCompression(tags)
}

func (p *tiffInfo) checkCompression(tags map[uint16]tiffValues) error {
	switch p.compression {
	case tiffRaw, tiffRuns:
		return nil
	case tiffFax3, tiffFax4:
		if p.bits != 1 || p.samples != 1 || p.photometric > tiffBlackIsZero {
			return malformed(KindTIFF, "fax compression of %d samples of %d bits", p.samples, p.bits)
		}
		if p.compression == tiffFax3 && tags[tiffT4Options].first(0)&1 != 0 {
			return unsupported(KindTIFF, "two-dimensional Group 3 fax")
		}
		return nil
	case tiffLZW, tiffZip, tiffOldZip:
		if p.predictor == 2 && p.bits >= 8 || p.predictor <= 1 {
			return nil
		}
		return unsupported(KindTIFF, "predictor %d with %d bits per sample", p.predictor, p.bits)
	}
	return unsupported(KindTIFF, "compression by %s (%d)", orUnknown(tiffCompressionNames[p.compression]), p.compression)
}

func orUnknown(name string) string {
	if name == "" {
		return "something unknown"
	}
	return name
}

// blocks reads where the strips or tiles are stored.
func (p *tiffInfo) blocks(tags map[uint16]tiffValues) error {
	p.blockW, p.blockH = p.w, p.h
	if p.offsets = tags[tiffTiles]; p.offsets.len() > 0 {
		p.tiled, p.sizes = true, tags[tiffTileBytes]
		w, h := tags[tiffTileWidth].first(0), tags[tiffTileHeight].first(0)
		if err := checkSize(KindTIFF, int64(min(w, math.MaxInt32)), int64(min(h, math.MaxInt32))); err != nil {
			return malformed(KindTIFF, "tiles of %d x %d pixels", w, h)
		}
		p.blockW, p.blockH = int(w), int(h)
	} else {
		p.offsets, p.sizes = tags[tiffStrips], tags[tiffStripBytes]
		rows := tags[tiffStripRows].first(uint64(p.h))
		if rows == 0 {
			return malformed(KindTIFF, "strips of no rows")
		}
		p.blockH = int(min(rows, uint64(p.h)))
	}
	if _, size := p.blockBytes(0); size*p.planes > 4*kernel.MaxPixels || p.tiled && p.blockW*p.blockH > max(1<<22, 2*p.w*p.h) {
		return unsupported(KindTIFF, "strips or tiles of %d x %d pixels", p.blockW, p.blockH)
	}
	need := ((p.w-1)/p.blockW + 1) * ((p.h-1)/p.blockH + 1) * p.planes
	if p.offsets.len() != need {
		return malformed(KindTIFF, "%d strips or tiles, but %d x %d pixels need %d", p.offsets.len(), p.w, p.h, need)
	}
	if p.compression != tiffRaw && p.sizes.len() < need && need > 1 {
		return malformed(KindTIFF, "the sizes of %d strips or tiles are missing", need-p.sizes.len())
	}
	return nil
}
