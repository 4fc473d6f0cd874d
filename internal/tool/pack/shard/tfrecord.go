package shard

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// TFRecord is one tf.train.Example a sample, framed and checked as TensorFlow
// does. Encoded bytes are a list of one; integers, alone or in arrays, a list of
// int64; float16 and float32 a list of floats. Arrays of uint8, float64 and
// uint64 would lose something or grow eightfold there: they are raw bytes, as
// tf.io.decode_raw takes them. An array of other than one axis has its shape
// beside it, as NAME/shape. The key is the feature "key", unless a field is called
// that.
type TFRecord struct{}

// Files is Output's.
func (TFRecord) Files() []File { return []File{{End: ".tfrecord"}} }

// Encode is Output's. The frame of a record (tensorflow/core/lib/io/record_writer):
//
//	8  length, little-endian
//	4  masked CRC-32C of the length
//	n  the Example
//	4  masked CRC-32C of it
func (TFRecord) Encode(s *Sample, parts [][]byte) error {
	out := parts[0]
	at := len(out)
	out = append(out, make([]byte, 12)...)
	out = example(out, s)
	record := out[at+12:]
	binary.LittleEndian.PutUint64(out[at:], uint64(len(record)))
	binary.LittleEndian.PutUint32(out[at+8:], masked(out[at:at+8]))
	parts[0] = binary.LittleEndian.AppendUint32(out, masked(record))
	return nil
}

// masked is a CRC as TensorFlow stores it: turned, and moved by a constant, so
// that the CRC of data that holds CRCs is no trap.
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

func example(dst []byte, s *Sample) []byte {
	// room is for lists made here only: those of bytes are views of the sample,
	// and may lie in memory that can not be written to.
	var features, room []byte
	for i := range s.Fields {
		f := &s.Fields[i]
		kind, list := values(f, room[:0])
		if kind != bytesList {
			room = list
		}
		features = feature(features, f.Name, kind, list)
		if f.DType != mem.Object && (len(f.Shape) > 1 || len(f.Shape) == 1 && kind == bytesList) {
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
	return message(dst, 1, features)
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

// values is the list of a field: the one value of a bytes list, which is the
// field's own memory, or packed numbers, appended to dst.
func values(f *Field, dst []byte) (kind int, list []byte) {
	size := f.DType.Size()
	switch f.DType {
	case mem.Object:
		return bytesList, f.Data
	case mem.Float32:
		return floatList, append(dst, f.Data...)
	case mem.Float16:
		for p := f.Data; len(p) > 1; p = p[2:] {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(half(binary.LittleEndian.Uint16(p))))
		}
		return floatList, dst
	case mem.Float64:
		return bytesList, f.Data
	case mem.Uint8, mem.Uint64:
		if _, whole := f.Int(); !whole {
			return bytesList, f.Data
		}
	}
	for p := f.Data; len(p) >= size; p = p[size:] {
		n, _ := element(f.DType, p)
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return int64List, dst
}
