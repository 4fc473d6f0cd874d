package loader

import (
	"bytes"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
)

// npyHeader is what every .npy value of a field must say of itself: what the
// first one does.
type npyHeader struct {
	raw    []byte // of the first one: an equal header need not be read again
	dtype  mem.DType
	shape  mem.Shape
	ragged bool // samples may differ in their first axis
	swap   bool // its elements are big-endian
}

func readHeader(value []byte) (*npyHeader, error) {
	h, err := npy.ParseHeader(value)
	if err != nil {
		return nil, err
	}
	if h.Bytes != int64(len(value))-h.Off {
		return nil, wrongLength(h, value)
	}
	out := &npyHeader{raw: bytes.Clone(value[:h.Off]), dtype: h.DType, swap: h.Swapped, shape: mem.Shape{}}
	for _, n := range h.Shape {
		out.shape = append(out.shape, int(n))
	}
	return out, nil
}

func wrongLength(h npy.Header, value []byte) error {
	return errs.New(errs.Damaged, "the .npy array can not be read").
		Because(kernel.FormatError(fmt.Sprintf("its header promises %d bytes of elements, and there are %d", h.Bytes, int64(len(value))-h.Off))).
		Try("write it again, or go past such samples with on_bad=\"skip\"")
}

// elements is what a .npy value holds behind its header, which must say what the
// first one said; only the order of its bytes may be another.
func (n *npyHeader) elements(value []byte) ([]byte, error) {
	if !n.ragged && bytes.HasPrefix(value, n.raw) {
		return native(value[len(n.raw):], n.swap, n.dtype), nil // its length is held against the shape
	}
	h, err := npy.ParseHeader(value)
	if err != nil {
		return nil, err
	}
	same := h.DType == n.dtype && len(h.Shape) == len(n.shape)
	for i := 0; same && i < len(n.shape); i++ {
		same = int(h.Shape[i]) == n.shape[i] || i == 0 && n.ragged
	}
	if !same {
		hint := "make all samples alike, or go past others with on_bad=\"skip\""
		if !n.ragged && h.DType == n.dtype && len(h.Shape) == len(n.shape) && len(n.shape) > 0 {
			hint = "batch=\"padded\" or \"ragged\" takes samples that differ in their first axis; on_bad=\"skip\" goes past others"
		}
		return nil, errs.New(errs.Damaged, "the array is %s of shape %v, and that of the first sample %s of shape %v", h.DType, h.Shape, n.dtype, []int(n.shape)).Try("%s", hint)
	}
	if h.Bytes != int64(len(value))-h.Off {
		return nil, wrongLength(h, value)
	}
	return native(value[h.Off:], h.Swapped, h.DType), nil
}

// native is elements in the order of this machine; what lies in the shard is not
// written to.
func native(elements []byte, swap bool, dtype mem.DType) []byte {
	if !swap {
		return elements
	}
	out := make([]byte, len(elements))
	format.Swap(out, elements, dtype.Size())
	return out
}
