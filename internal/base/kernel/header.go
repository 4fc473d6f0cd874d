package kernel

import (
	"bytes"
	"fmt"
)

// header describes a JPEG by its markers, and where its first scan begins.
type header struct {
	Header
	blocks int64 // 8x8 blocks of all components
	padded int64 // rounded up to whole MCUs, as decoders allocate them
	scan   int   // byte offset after the first SOS segment
}

// ReadHeader reads the markers of a JPEG up to its first scan, and makes sure that it
// has an end marker. It decodes nothing. It returns a FormatError if the bytes are
// damaged or the picture has more than MaxPixels, and an UnsupportedError if they are of
// a kind that is not decoded.
func ReadHeader(jpeg []byte) (Header, error) {
	h, err := readHeader(jpeg)
	if err == nil {
		err = CheckSize(h.W, h.H)
	}
	return h.Header, err
}

// ReadAnyHeader is ReadHeader for callers with their own limit: it refuses only pictures
// of more than MostPixels.
func ReadAnyHeader(jpeg []byte) (Header, error) {
	h, err := readHeader(jpeg)
	return h.Header, err
}

func readHeader(b []byte) (h header, err error) {
	if len(b) == 0 {
		return h, FormatError("the file is empty")
	}
	if len(b) < 2 || b[0] != 0xff || b[1] != 0xd8 {
		return h, FormatError("not a JPEG: no start marker")
	}
	at := 2
	for {
		var m byte
		if m, at, err = nextMarker(b, at); err != nil {
			return h, err
		}
		switch {
		case m == 0xd8 || m == 0x01 || m >= 0xd0 && m <= 0xd7:
			continue // no parameters
		case m == 0xd9:
			return h, FormatError("the JPEG ends before its picture begins")
		}
		if at+2 > len(b) {
			return h, FormatError("the JPEG ends inside a marker segment")
		}
		n := int(b[at])<<8 | int(b[at+1])
		if n < 2 || at+n > len(b) {
			return h, FormatError("the JPEG ends inside a marker segment")
		}
		seg := b[at+2 : at+n]
		at += n
		switch {
		case isSOF(m):
			if h.W != 0 || h.H != 0 {
				return h, FormatError("a second frame header")
			}
			if err := h.frame(m, seg); err != nil {
				return h, err
			}
		case m == 0xdd:
			if len(seg) != 2 {
				return h, FormatError("a restart interval of the wrong length")
			}
			h.Restart = int(seg[0])<<8 | int(seg[1])
		case m == 0xda:
			if h.Components == 0 {
				return h, FormatError("a scan before the frame header")
			}
			if !h.Progressive && !wholeScan(seg) {
				return h, FormatError("a scan of a sequential JPEG lacks coefficients, or some of their bits")
			}
			h.scan = at
			if h.Progressive || int(seg[0]) < h.Components { // as libjpeg's has_multiple_scans
				h.Coefficients = h.padded * blockSize * 2
			}
			return h, h.checkEnd(b)
		}
	}
}

// isSOF reports whether a marker begins a frame header: 0xc0 to 0xcf, except DHT, JPG
// and DAC (table B.1).
func isSOF(m byte) bool { return m >= mSOF0 && m <= 0xcf && m != mDHT && m != 0xc8 && m != 0xcc }

// nextMarker finds the marker at at, past fill bytes (B.1.1.2). Any other bytes there
// are damage, about which libjpeg warns.
func nextMarker(b []byte, at int) (m byte, next int, err error) {
	begin := at
	for at < len(b) && b[at] == 0xff {
		at++
	}
	switch {
	case at >= len(b):
		return 0, at, FormatError("the JPEG ends before its picture begins")
	case at == begin || b[at] == 0:
		return 0, at, FormatError(fmt.Sprintf("at byte %d of the JPEG: bytes between marker segments", begin))
	}
	return b[at], at + 1, nil
}

// wholeScan reports whether a scan header (B.2.3) has the values that sequential
// pictures require: coefficients Ss = 0 to Se = 63, with Ah = Al = 0.
func wholeScan(seg []byte) bool {
	return len(seg) >= 4 && bytes.Equal(seg[len(seg)-3:], []byte{0, blockSize - 1, 0})
}

func (h *header) frame(m byte, seg []byte) error {
	switch m {
	case 0xc0, 0xc1, 0xc2:
	case 0xc9, 0xca:
		h.Arithmetic = true
	default:
		return UnsupportedError(fmt.Sprintf("a lossless or hierarchical JPEG (frame type %#x)", m))
	}
	h.Progressive = m == 0xc2 || m == 0xca
	if len(seg) < 6 || len(seg) != 6+3*int(seg[5]) {
		return FormatError("a frame header of the wrong length")
	}
	if seg[0] != 8 {
		return UnsupportedError(fmt.Sprintf("a JPEG of %d bits per sample", seg[0]))
	}
	h.H = int(seg[1])<<8 | int(seg[2])
	h.W = int(seg[3])<<8 | int(seg[4])
	h.Components = int(seg[5])
	if h.H == 0 {
		return FormatError("the header gives no height: it is damaged, or the height is in a DNL marker after the scan, which neither libjpeg-turbo nor this decoder reads")
	}
	if err := CheckLimit(h.W, h.H, MostPixels); err != nil {
		return err
	}
	switch h.Components {
	case 1, 3, 4:
	default:
		return UnsupportedError(fmt.Sprintf("a JPEG of %d components", h.Components))
	}
	return h.countBlocks(seg[6:])
}

func (h *header) countBlocks(comp []byte) error {
	mh, mv := 1, 1
	for i := 0; i < len(comp); i += 3 {
		sh, sv := int(comp[i+1]>>4), int(comp[i+1]&15)
		if sh < 1 || sh > 4 || sv < 1 || sv > 4 {
			return FormatError("a sampling factor outside 1 to 4")
		}
		mh, mv = max(mh, sh), max(mv, sv)
	}
	for i := 0; i < len(comp); i += 3 {
		sh, sv := int(comp[i+1]>>4), int(comp[i+1]&15)
		bw := (h.W*sh + 8*mh - 1) / (8 * mh)
		bh := (h.H*sv + 8*mv - 1) / (8 * mv)
		h.blocks += int64(bw) * int64(bh)
		h.padded += int64(bw+sh) * int64(bh+sv)
	}
	return nil
}

// checkEnd looks for the end marker from the end of the file: what follows it does
// not matter, and it cannot occur in entropy-coded data. A block takes at least two
// bits (one in a progressive file, one or less with arithmetic coding), so a header
// that declares more than the bytes can contain is rejected before anything is
// allocated for it.
func (h *header) checkEnd(b []byte) error {
	end := len(b) - 2
	for ; end >= h.scan; end-- {
		if b[end] == 0xff && b[end+1] == 0xd9 {
			break
		}
	}
	if end < h.scan {
		return FormatError("the JPEG is truncated: it has no end marker")
	}
	bits := int64(2)
	if h.Progressive {
		bits = 1
	}
	if !h.Arithmetic && int64(end-h.scan)*8 < h.blocks*bits {
		return FormatError(fmt.Sprintf("the header declares %d x %d pixels, more than the %d bytes after it can hold", h.W, h.H, end-h.scan))
	}
	return nil
}
