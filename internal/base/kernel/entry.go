package kernel

import (
	"cmp"
	"hash/crc32"
	"slices"
	"unsafe"
)

// Point is a place in a JPEG's scan where decoding can begin: before an MCU, at a bit,
// counted from the highest, of a byte of the scan as it is stored, counted from its first.
// Pred is the DC predictors of the components there, of which only 16 bits matter. It has
// the layout of stk_point.
type Point struct {
	MCU, Byte uint32
	Pred      [3]int16
	Bit       uint16
}

// Entries is what a job knows about the scan of its JPEG from earlier jobs, and what it
// learns. It changes no pixel and no error: points that turn out to be of another scan are
// not used, and the picture is decoded again from its beginning.
//
// Only this package's own decoder in C begins at points and records them; the twin decodes
// every picture from the beginning, compares the points that it is given, and records
// what the C code would.
type Entries struct {
	// Known is points of the scan, in its order.
	Known []Point
	// Spacing is the distance of points that are recorded, in bytes of the scan; 0: none are.
	Spacing int

	// Found is set by Run: the points that the job passed and that are not known, in their
	// order, also if it fails. If Wrong is set, Known is of another scan, and Found has all.
	// The memory is the lane's, until its next job.
	Found []Point
	Wrong bool
	// Jumps is how often decoding began at a known point, Compared how many of them it
	// passed, and Extra how many MCUs it read only to pass one.
	Jumps, Compared, Extra int
	// Leapt is how many MCUs the decoder leapt over to known points, and Reached how many
	// there are up to the last one that it needed.
	Leapt, Reached int
}

// settle decides whether Known was wrong, after a decode that used it was given up and Found
// has the points of one from the beginning: it is if that was good, or if a point differs.
func (e *Entries) settle(good bool) {
	known := func(p Point) (at int, ok bool) {
		return slices.BinarySearchFunc(e.Known, p, func(k, p Point) int { return cmp.Compare(k.MCU, p.MCU) })
	}
	e.Wrong = good || slices.ContainsFunc(e.Found, func(p Point) bool {
		at, ok := known(p)
		return ok && e.Known[at] != p
	})
	if !e.Wrong {
		e.Found = slices.DeleteFunc(e.Found, func(p Point) bool { _, ok := known(p); return ok })
	}
}

const _ = -uint(unsafe.Sizeof(Point{})-16) - uint(16-unsafe.Sizeof(Point{})) // 16 bytes

// entries is what the job knows, without results; nil: it uses none.
func (j *Job) entries() *Entries {
	e := j.Entries
	if e == nil || j.Strict || j.JPEG == nil {
		return nil
	}
	*e = Entries{Known: e.Known, Spacing: e.Spacing}
	return e
}

// Points is the entry points of a JPEG, about spacing bytes of its scan from each other; it
// makes no pixels. An error is about the bytes; points that come before the damage are
// there. ErrElsewhere: it has none, because another decoder takes it. The memory is the lane's,
// until its next job.
func (l *Lane) Points(jpeg []byte, spacing int) ([]Point, error) {
	if l.target == "go" {
		return pointsGo(jpeg, spacing)
	}
	return l.engine.points(jpeg, spacing)
}

func pointsGo(jpeg []byte, spacing int) ([]Point, error) {
	f, taken := readFrame(jpeg)
	if !taken {
		return nil, ErrElsewhere
	}
	f.entries = &Entries{Spacing: spacing}
	_, err := f.decode(0)
	return f.entries.Found, err
}

// headBytes is how much of a scan a fingerprint covers.
const headBytes = 64

// Fingerprint tells a JPEG from others whose entry points would be different: it covers its
// length, everything in its header that a decoder of its scan uses (frame, tables, restart
// interval, scan, Adobe's marker), and the first bytes of the scan. It is 0 if the JPEG is
// not of a kind that has entry points.
//
// It is two CRCs: Castagnoli's and IEEE's polynomials, which processors compute.
func Fingerprint(jpeg []byte) uint64 {
	if len(jpeg) < 4 || jpeg[0] != 0xff || jpeg[1] != mSOI {
		return 0
	}
	a, b := uint32(len(jpeg)), ^uint32(len(jpeg))
	add := func(p []byte) { a, b = crc32.Update(a, castagnoli, p), crc32.Update(b, crc32.IEEETable, p) }
	for at := 2; at+4 <= len(jpeg) && jpeg[at] == 0xff; {
		if jpeg[at+1] == 0xff { // a fill byte
			at++
			continue
		}
		m, end := jpeg[at+1], at+2+word(jpeg[at+2:])
		if end > len(jpeg) || end < at+4 {
			return 0
		}
		switch m {
		case mSOF0, mSOF1, mDHT, mDQT, mDRI, mAPP14:
			add(jpeg[at:end])
		case mSOS:
			add(jpeg[at:min(end+headBytes, len(jpeg))])
			return max(uint64(a)<<32|uint64(b), 1)
		case mCOM:
		default:
			if m < mAPP0 || m > mAPP15 {
				return 0
			}
		}
		at = end
	}
	return 0
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
