package stagetest

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"slices"
	"strconv"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Marks are the offsets of these signatures in a file, in order: where its
// structures begin.
func Marks(data []byte, signatures ...string) []int {
	var out []int
	for _, s := range signatures {
		for at := 0; ; at++ {
			i := bytes.Index(data[at:], []byte(s))
			if i < 0 {
				break
			}
			at += i
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return out
}

// HarmedAt is Harmed for files that are mostly samples: of every place whose fourth
// byte is below 128, the first two bytes say which of the marks it is counted from,
// and the third how many bytes after it.
func HarmedAt(data, harm []byte, marks []int) []byte {
	harm = append([]byte(nil), harm...)
	for i := 0; i+5 <= len(harm) && len(marks) > 0; i += 5 {
		h := harm[i : i+5]
		if h[3] < 128 {
			at := marks[int(binary.LittleEndian.Uint16(h))%len(marks)] + int(h[2])
			h[0], h[1], h[2] = byte(at), byte(at>>8), byte(at>>16)
		}
	}
	return Harmed(data, harm)
}

var wrongSum = regexp.MustCompile(`the checksum of the (\d+) bytes here is ([0-9a-f]{8}) and should be ([0-9a-f]{8})`)

// WithSums reads a harmed HDF5 file again and again, and each time puts right the
// checksum that the reader refuses, so that what a checksum protects is reached too. It
// changes data, and returns the first error that is of something else.
func WithSums(data []byte, read func(data []byte) error) error {
	for {
		err := read(data)
		if err == nil {
			return nil
		}
		e := errs.From(err)
		m := wrongSum.FindStringSubmatch(e.What)
		off, known := e.Where.Offset.Get()
		if m == nil || !known {
			return err
		}
		n, _ := strconv.ParseInt(m[1], 10, 64)
		if !setSum(data[off:off+n], sum(m[2]), sum(m[3])) {
			return err
		}
	}
}

func sum(hex string) []byte {
	v, _ := strconv.ParseUint(hex, 16, 32)
	return binary.LittleEndian.AppendUint32(nil, uint32(v))
}

// setSum replaces the checksum of a block: at its end, but after its head in a block of
// a heap. It answers false where it is not to be found or is what it should be.
func setSum(block, stored, should []byte) bool {
	at := len(block) - 4
	if string(block[:4]) == "FHDB" {
		at = bytes.Index(block, stored)
	}
	if at < 0 || !bytes.Equal(block[at:at+4], stored) || bytes.Equal(stored, should) {
		return false
	}
	copy(block[at:], should)
	return true
}
