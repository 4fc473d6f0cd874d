package kernel

import "fmt"

// IndexOptions say how IndexJPEG rewrites. The zero value is what packing uses.
type IndexOptions struct {
	Segment     int  // MCUs between restart markers, about; 0: 6
	Progressive bool // progressive pictures become sequential; otherwise they are refused
	Growth      int  // hundredths of a percent by which a file may grow; 0: 200, which is 2 %
}

// Indexed describes what IndexJPEG did to a picture.
type Indexed struct {
	Interval  int  // restart interval of the result in MCUs; 0: none
	Kept      bool // nothing better fits the budget: the result is the file unchanged
	Converted bool // it was progressive
}

// The defaults of IndexOptions: docs/decisions/restart-interval.md has the figures.
const (
	indexSegment = 6
	indexGrowth  = 200
)

// IndexJPEG appends to dst the picture of jpeg with restart markers and Huffman
// tables of its own, and returns dst. Coefficients, and so pixels, are the same
// to the bit. Application segments and comments are kept; what follows the end
// marker is not. Run finds the segments that a region touches by their markers.
//
// The interval is o.Segment, a row of MCUs at most, or the next longer one with
// which the file does not grow by more than o.Growth. A progressive picture, or one of
// several scans, may grow by that much over what it takes as one scan.
//
// Damaged files are FormatErrors. UnsupportedErrors are progressive pictures,
// unless they are asked to be converted, those of arithmetic coding, of 12 bits
// and lossless ones, and everything where the kernel is without C.
func (l *Lane) IndexJPEG(dst, jpeg []byte, o IndexOptions) ([]byte, Indexed, error) {
	if o.Segment == 0 {
		o.Segment = indexSegment
	}
	if o.Growth == 0 {
		o.Growth = indexGrowth
	}
	if o.Segment < 0 || o.Segment > 65535 {
		return dst, Indexed{}, JobError(fmt.Sprintf("segments of %d MCUs: the range is 1 to 65535", o.Segment))
	}
	if o.Growth < 0 || o.Growth > 10000 {
		return dst, Indexed{}, JobError(fmt.Sprintf("a growth of %d hundredths of a percent: the range is 1 to 10000", o.Growth))
	}
	h, err := readHeader(jpeg)
	if err != nil {
		return dst, Indexed{}, err
	}
	if err := CheckSize(h.W, h.H); err != nil {
		return dst, Indexed{}, err
	}
	switch {
	case h.Arithmetic:
		return dst, Indexed{}, UnsupportedError("an arithmetic-coded JPEG, which is not rewritten with restart markers: pack it as it is")
	case h.Progressive && !o.Progressive:
		return dst, Indexed{}, UnsupportedError("a progressive JPEG: restart markers do not help to find a region in it; pack it as it is, or ask for its conversion to a sequential one")
	case l.target == "go":
		return dst, Indexed{}, UnsupportedError("the kernel without C does not rewrite JPEGs: build stoker with a C compiler, or pack without --jpeg index")
	}
	dst, done, err := l.engine.index(dst, jpeg, &h, o)
	done.Converted = err == nil && h.Progressive
	return dst, done, err
}
