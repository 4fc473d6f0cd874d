package format

import (
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Digest names the contents of a sample: XXH64 over its fields in stored order,
// each as its name, a zero byte, its length in 8 bytes and its bytes; a number
// that the index holds is its 8 bytes. All numbers are little-endian. What tells
// where a sample is stored (its url) does not count, so that a copy has the same.
func (s *Sample) Digest() uint64 {
	h := xxhash.New()
	var n [8]byte
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.Name == "__url__" {
			continue
		}
		_, _ = h.WriteString(f.Name)
		_, _ = h.Write([]byte{0})
		if f.IsInt {
			binary.LittleEndian.PutUint64(n[:], uint64(f.Int))
			_, _ = h.Write(n[:])
			continue
		}
		binary.LittleEndian.PutUint64(n[:], uint64(len(f.Data)))
		_, _ = h.Write(n[:])
		_, _ = h.Write(f.Data)
	}
	return h.Sum64()
}

// Hidden says whether a field is about its sample and no data: its key, its url.
func Hidden(name string) bool { return strings.HasPrefix(name, "__") }
