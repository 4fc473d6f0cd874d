package kernel

import (
	"fmt"
	"math"
	"os"
	"unsafe"
)

// MixUp blends rows of a batch, in place: each with the row before it in rows, and the first
// with the last. Row r has size bytes of numbers of a type at data[r*size]; rows that are not
// listed stay as they are, and no row is listed twice. A number becomes before*(1-lambda) +
// own*lambda, each product rounded to the type before the sum. Factors are rounded to the type,
// or, where it has 16 bits, to float32, in which these are computed: torchvision's result, to
// the bit, except for the bits of NaN.
func MixUp(data []byte, size int, of Float, rows []int32, lambda float64) error {
	if n := of.Size(); n == 0 || size < 0 || size%n != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(data)))%uintptr(n) != 0 {
		return JobError(fmt.Sprintf("rows of %d bytes do not hold floats of %d", size, n))
	}
	if err := checkRows(data, size, rows); err != nil || len(rows) == 0 || size == 0 {
		return err
	}
	mixUpAt(data, size, of, rows, lambda, mixLevel(os.Getenv(kernelEnv)))
	return nil
}

func checkRows(data []byte, size int, rows []int32) error {
	for _, r := range rows {
		if r < 0 || (int64(r)+1)*int64(size) > int64(len(data)) {
			return JobError(fmt.Sprintf("row %d of %d bytes is not in %d bytes", r, size, len(data)))
		}
	}
	return nil
}

// mixRun is how many numbers of every row are mixed before the next ones, so that a row is
// still in the cache when the one after it needs it: the batch is read and written once.
const mixRun = 2048

// mixUpGo is the twin. Rows are mixed from the last to the first, so that the row before is
// still unmixed; only the last one's numbers have to be kept.
func mixUpGo(data []byte, size int, of Float, rows []int32, lambda float64) {
	var kept [mixRun]float64 // numbers of any type
	run := mixRun * of.Size()
	for from := 0; from < size; from += run {
		n := min(run, size-from)
		row := func(i int) []byte {
			at := int(rows[i])*size + from
			return data[at : at+n : at+n]
		}
		last := unsafe.Slice((*byte)(unsafe.Pointer(&kept)), n)
		copy(last, row(len(rows)-1))
		for i := len(rows) - 1; i > 0; i-- {
			blended(row(i), row(i-1), of, lambda)
		}
		blended(row(0), last, of, lambda)
	}
}

// blended mixes the numbers of a row with those of the row before.
func blended(own, before []byte, of Float, lambda float64) {
	k, r := float32(lambda), float32(1-lambda)
	switch of {
	case Float32:
		blendFloats(numbers[float32](own), numbers[float32](before), k, r)
	case Float64:
		blendFloats(numbers[float64](own), numbers[float64](before), lambda, 1-lambda)
	default:
		own, before := numbers[uint16](own), numbers[uint16](before)
		for i, x := range own {
			was, now := of.Bits(of.Of(before[i])*r), of.Bits(of.Of(x)*k)
			own[i] = of.Bits(of.Of(was) + of.Of(now))
		}
	}
}

func blendFloats[T float32 | float64](own, before []T, k, r T) {
	for i, x := range own {
		own[i] = T(before[i]*r) + T(x*k)
	}
}

func numbers[T float32 | float64 | uint16](data []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(*new(T))))
}

// Planes is the layout of a row: Planes planes of Height x Width pixels of Bytes bytes.
type Planes struct{ Planes, Height, Width, Bytes int }

// CutMix copies a region, [x1, x2) and [y1, y2) of every plane, of each row of a batch from
// the row before it in rows, and of the first from the last, in place. spare is memory that
// it may use and grow, for the region of one row.
func CutMix(data []byte, p Planes, rows []int32, x1, y1, x2, y2 int, spare []byte) ([]byte, error) {
	pixels := int64(p.Planes) * int64(p.Height) * int64(p.Width)
	if p.Planes < 0 || p.Height < 0 || p.Width < 0 || p.Bytes < 1 || pixels > math.MaxInt32 {
		return spare, JobError(fmt.Sprintf("rows of %d planes of %d x %d pixels", p.Planes, p.Width, p.Height))
	}
	if x1 < 0 || y1 < 0 || x2 > p.Width || y2 > p.Height {
		return spare, JobError(fmt.Sprintf("the region from (%d, %d) to (%d, %d) is not in %d x %d pixels", x1, y1, x2, y2, p.Width, p.Height))
	}
	size := int(pixels) * p.Bytes
	if err := checkRows(data, size, rows); err != nil || len(rows) < 2 || x1 >= x2 || y1 >= y2 {
		return spare, err
	}
	line := (x2 - x1) * p.Bytes
	if need := p.Planes * (y2 - y1) * line; cap(spare) < need {
		spare = make([]byte, need)
	}
	// lines calls do for every line of the region, with its place in a row.
	lines := func(do func(at int)) {
		for plane := range p.Planes {
			for y := y1; y < y2; y++ {
				do(((plane*p.Height+y)*p.Width + x1) * p.Bytes)
			}
		}
	}
	last, kept := data[int(rows[len(rows)-1])*size:], spare[:0]
	lines(func(at int) { kept = append(kept, last[at:at+line]...) })
	for i := len(rows) - 1; i > 0; i-- {
		own, before := data[int(rows[i])*size:], data[int(rows[i-1])*size:]
		lines(func(at int) { copy(own[at:at+line], before[at:at+line]) })
	}
	first := data[int(rows[0])*size:]
	lines(func(at int) { kept = kept[copy(first[at:at+line], kept):] })
	return spare, nil
}
