package format

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// Arrays whose shape differs from sample to sample have no place in a Type. They
// are given out as what decoders read: pictures as PNM, all others as NPY. It is
// one copy of the bytes; a header in memory of its own would need decoders that
// read from two places.

// PNM is pixels, h rows of w, as a portable pixmap (3 channels) or greymap (1).
func PNM(w, h, channels int, pixels []byte) []byte {
	out := AppendPNM(make([]byte, 0, 24+len(pixels)), w, h, channels)
	return append(out, pixels...)
}

// AppendPNM appends what comes before such pixels (netpbm's P6 and P5).
func AppendPNM(dst []byte, w, h, channels int) []byte {
	magic := byte('6')
	if channels == 1 {
		magic = '5'
	}
	dst = append(dst, 'P', magic, '\n')
	dst = strconv.AppendInt(dst, int64(w), 10)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, int64(h), 10)
	return append(dst, "\n255\n"...)
}

// NPY is the elements of an array, little-endian and in C order, as a file of
// NumPy, version 1.0 of numpy.lib.format.
func NPY(dtype mem.DType, shape []int, elems []byte) []byte {
	kinds := map[mem.DType]string{
		mem.Bool: "|b1", mem.Uint8: "|u1", mem.Int8: "|i1", mem.Uint16: "<u2", mem.Int16: "<i2", mem.Float16: "<f2",
		mem.Uint32: "<u4", mem.Int32: "<i4", mem.Float32: "<f4", mem.Uint64: "<u8", mem.Int64: "<i8", mem.Float64: "<f8",
	}
	dims := ""
	for _, n := range shape {
		dims += strconv.Itoa(n) + ", "
	}
	dims = strings.TrimSuffix(dims, " ")
	if len(shape) > 1 {
		dims = strings.TrimSuffix(dims, ",")
	}
	const prefix, align = 10, 64
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", kinds[dtype], dims)
	room := (prefix+len(head)+1+align-1)/align*align - prefix
	out := make([]byte, 0, prefix+room+len(elems))
	out = append(out, "\x93NUMPY\x01\x00"...)
	out = append(out, byte(room), byte(room>>8))
	out = append(out, head...)
	for len(out) < prefix+room-1 {
		out = append(out, ' ')
	}
	out = append(out, '\n')
	return append(out, elems...)
}
