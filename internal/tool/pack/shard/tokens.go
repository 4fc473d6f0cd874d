package shard

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

	"github.com/stoker-data/stoker/internal/base/mem"
)

// Tokens is a flat file of token numbers, as nanoGPT reads it, and beside it the
// start of each document, in Megatron's layout. A sample is a document: its one
// field is an array of integers with one axis.
type Tokens struct {
	Wide bool // 4 bytes per token, otherwise 2
}

// Files implements Output.
func (t Tokens) Files() []File {
	return []File{
		{End: ".bin", Plain: true},
		{End: ".idx", Plain: true, Head: t.indexHead, Tail: t.indexTail},
	}
}

// Encode implements Output.
func (t Tokens) Encode(s *Sample, parts [][]byte) error {
	if len(s.Fields) != 1 || s.Fields[0].DType == mem.Object || len(s.Fields[0].Shape) != 1 {
		return misfit("", "a sample of token files is a single list of whole numbers").
			Try("choose the field that has them with --fields, or make tokens of text with --tokenize")
	}
	f := &s.Fields[0]
	size, n := f.DType.Size(), f.Shape[0]
	if n > math.MaxInt32 {
		return misfit(f.Name, "a document of %d tokens; the index counts up to %d", n, math.MaxInt32)
	}
	limit := int64(math.MaxUint16)
	if t.Wide {
		limit = math.MaxUint32
	}
	for p := f.Data; len(p) >= size; p = p[size:] {
		v, whole := element(f.DType, p)
		if !whole || v < 0 || v > limit {
			e := misfit(f.Name, "field %q (%s) has a value that is not a token number from 0 to %d: %d", f.Name, f.DType, limit, v)
			if whole && v > limit && v <= math.MaxUint32 {
				return e.Try("use --token-type uint32 for larger ones")
			}
			return e.Try("no token type has room for it: these are not tokens, or damaged; choose the field of the tokens with --fields")
		}
		if t.Wide {
			parts[0] = binary.LittleEndian.AppendUint32(parts[0], uint32(v))
		} else {
			parts[0] = binary.LittleEndian.AppendUint16(parts[0], uint16(v))
		}
	}
	parts[1] = binary.LittleEndian.AppendUint32(parts[1], uint32(n))
	return nil
}

// Megatron's index (megatron/core/datasets/indexed_dataset.py), little-endian:
//
//	9    "MMIDIDX\0\0"
//	8    version, 1
//	1    type of a token: 4 int32, 8 uint16
//	8    sequences s
//	8    documents d, and one more
//	4*s  tokens of each sequence
//	8*s  where each begins in the .bin, bytes
//	8*(d+1)  first sequence of each document, and s
//
// Here a document is one sequence. The format has no uint32: token numbers are
// below 2^31 in practice, and are stored as int32.
const (
	megatronMagic = "MMIDIDX\x00\x00"
	codeInt32     = 4
	codeUint16    = 8
	megatronHead  = 34 // bytes before the lengths
)

func (t Tokens) indexHead(samples int64) []byte {
	code := byte(codeUint16)
	if t.Wide {
		code = codeInt32
	}
	h := append([]byte(megatronMagic), 1, 0, 0, 0, 0, 0, 0, 0, code)
	h = binary.LittleEndian.AppendUint64(h, uint64(samples))
	return binary.LittleEndian.AppendUint64(h, uint64(samples)+1)
}

// indexTail reads the lengths back, so that they are not kept in memory.
func (t Tokens) indexTail(w io.Writer, body io.ReaderAt, size, samples int64) error {
	width := int64(2)
	if t.Wide {
		width = 4
	}
	lengths := bufio.NewReader(io.NewSectionReader(body, megatronHead, size-megatronHead))
	var room [8]byte
	at := int64(0)
	for range samples {
		if _, err := w.Write(binary.LittleEndian.AppendUint64(room[:0], uint64(at))); err != nil {
			return err
		}
		if _, err := io.ReadFull(lengths, room[:4]); err != nil {
			return err
		}
		at += int64(binary.LittleEndian.Uint32(room[:4])) * width
	}
	for i := range samples + 1 {
		if _, err := w.Write(binary.LittleEndian.AppendUint64(room[:0], uint64(i))); err != nil {
			return err
		}
	}
	return nil
}
