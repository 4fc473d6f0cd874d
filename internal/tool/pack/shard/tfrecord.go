package shard

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// TFRecord is one tf.train.Example per sample, framed and checked as in TensorFlow.
// The list of a field depends on its type alone, so that it is the same in all
// samples: encoded bytes are a list of one; integers, alone or in arrays, are a
// list of int64, and a uint64 that does not fit is rejected; float16 and float32
// are a list of floats. An array of uint8 would grow eightfold there: it is raw
// bytes, for tf.io.decode_raw. A float64 would lose digits in a list of floats: it
// is the bytes of a .npy file, which has its type and shape. Any other array of
// more than one axis, and one of raw bytes, has its shape beside it, as NAME/shape.
// The key is the feature "key", unless there is a field with this name.
type TFRecord struct{}

// Files implements Output.
func (TFRecord) Files() []File { return []File{{End: ".tfrecord"}} }

// Encode implements Output. The frame of a record
// (tensorflow/core/lib/io/record_writer):
//
//	8  length, little-endian
//	4  masked CRC-32C of the length
//	n  the Example
//	4  masked CRC-32C of it
func (TFRecord) Encode(s *Sample, parts [][]byte) error {
	out := parts[0]
	at := len(out)
	out = append(out, make([]byte, 12)...)
	out, err := example(out, s)
	if err != nil {
		return err
	}
	record := out[at+12:]
	binary.LittleEndian.PutUint64(out[at:], uint64(len(record)))
	binary.LittleEndian.PutUint32(out[at+8:], masked(out[at:at+8]))
	parts[0] = binary.LittleEndian.AppendUint32(out, masked(record))
	return nil
}

// masked is a CRC as TensorFlow stores it: rotated, and offset by a constant, so
// that the CRC of data that contains CRCs is safe.
func masked(p []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)), -15) + 0xa282ead8
}

// The messages of tensorflow/core/example, all of length-delimited fields:
//
//	Example   { Features features = 1 }
//	Features  { map<string, Feature> feature = 1 }
//	Feature   { oneof: BytesList bytes = 1, FloatList float = 2, Int64List int64 = 3 }
//	each list { repeated value = 1 }, numbers packed
const (
	bytesList = 1
	floatList = 2
	int64List = 3
)

func example(dst []byte, s *Sample) ([]byte, error) {
	// room is only for lists made here: those of bytes are views of the sample, and
	// may be in read-only memory.
	var features, room []byte
	for i := range s.Fields {
		f := &s.Fields[i]
		kind, list, err := values(f, room[:0])
		if err != nil {
			return nil, err
		}
		if kind != bytesList {
			room = list
		}
		features = feature(features, f.Name, kind, list)
		if f.DType != mem.Object && f.DType != mem.Float64 && (len(f.Shape) > 1 || len(f.Shape) == 1 && kind == bytesList) {
			room = room[:0]
			for _, n := range f.Shape {
				room = binary.AppendUvarint(room, uint64(n))
			}
			features = feature(features, f.Name+"/shape", int64List, room)
		}
	}
	if !slices.ContainsFunc(s.Fields, func(f Field) bool { return f.Name == "key" }) {
		features = feature(features, "key", bytesList, s.Key)
	}
	return message(dst, 1, features), nil
}

// feature appends one entry of the map.
func feature(dst []byte, name string, kind int, list []byte) []byte {
	values := message(nil, 1, list)
	if len(list) == 0 && kind != bytesList {
		values = nil
	}
	entry := message(nil, 1, []byte(name))
	entry = message(entry, 2, message(nil, kind, values))
	return message(dst, 1, entry)
}

// message appends a length-delimited field.
func message(dst []byte, number int, p []byte) []byte {
	dst = append(dst, byte(number<<3|2))
	dst = binary.AppendUvarint(dst, uint64(len(p)))
	return append(dst, p...)
}

// values is the list of a field: the one value of a bytes list, which may be the
// field's own memory, or packed numbers, appended to dst.
func values(f *Field, dst []byte) (kind int, list []byte, err error) {
	size := f.DType.Size()
	switch {
	case f.DType == mem.Object, f.DType == mem.Uint8 && len(f.Shape) > 0:
		return bytesList, f.Data, nil
	case f.DType == mem.Float64:
		return bytesList, append(format.NPY(f.DType, f.Shape, nil), f.Data...), nil
	case f.DType == mem.Float32:
		return floatList, append(dst, f.Data...), nil
	case f.DType == mem.Float16:
		for p := f.Data; len(p) > 1; p = p[2:] {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(kernel.Float16.Of(binary.LittleEndian.Uint16(p))))
		}
		return floatList, dst, nil
	}
	for p := f.Data; len(p) >= size; p = p[size:] {
		n, whole := element(f.DType, p)
		if !whole {
			return 0, nil, misfit(f.Name, "field %q (%s) has a value that is not an int64, the only integer of TFRecord: %d", f.Name, f.DType, uint64(n)).
				Try("pack it as tar or npy, or leave the field out with --fields")
		}
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return int64List, dst, nil
}
