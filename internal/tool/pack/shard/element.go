package shard

import (
	"encoding/binary"
	"math"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// element is the first integer in p; false if the type is not an integer type, or
// the number does not fit into an int64.
func element(d mem.DType, p []byte) (int64, bool) {
	switch d {
	case mem.Uint8:
		return int64(p[0]), true
	case mem.Bool:
		return int64(p[0]), true
	case mem.Int8:
		return int64(int8(p[0])), true
	case mem.Int16:
		return int64(int16(binary.LittleEndian.Uint16(p))), true
	case mem.Uint16:
		return int64(binary.LittleEndian.Uint16(p)), true
	case mem.Int32:
		return int64(int32(binary.LittleEndian.Uint32(p))), true
	case mem.Uint32:
		return int64(binary.LittleEndian.Uint32(p)), true
	case mem.Int64:
		return int64(binary.LittleEndian.Uint64(p)), true
	case mem.Uint64:
		n := binary.LittleEndian.Uint64(p)
		return int64(n), n <= math.MaxInt64
	}
	return 0, false
}
