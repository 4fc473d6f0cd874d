package shard

import (
	"bytes"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Compressor makes frames that can be unpacked one by one, and in sequence by every
// program that knows the format. Safe for concurrent use.
type Compressor struct {
	End string // extension of compressed files
	// Frame appends src as one frame.
	Frame func(dst, src []byte) ([]byte, error)
}

// Compressions are the names that NewCompressor knows.
func Compressions() []string { return []string{"none", "zstd", "gzip", "lz4"} }

// NewCompressor returns the compressor with a name; nil for "none" and "".
func NewCompressor(name string) (*Compressor, error) {
	switch name {
	case "", "none":
		return nil, nil
	case "zstd":
		// One goroutine: with several, the bytes of a frame would depend on their
		// number.
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
		if err != nil {
			return nil, errs.New(errs.Bug, "cannot set up zstd").Because(err)
		}
		return &Compressor{".zst", func(dst, src []byte) ([]byte, error) { return e.EncodeAll(src, dst), nil }}, nil
	case "gzip":
		return &Compressor{".gz", func(dst, src []byte) ([]byte, error) {
			b := bytes.NewBuffer(dst)
			z := gzip.NewWriter(b)
			if _, err := z.Write(src); err != nil {
				return nil, err
			}
			err := z.Close()
			return b.Bytes(), err
		}}, nil
	case "lz4":
		return &Compressor{".lz4", func(dst, src []byte) ([]byte, error) {
			b := bytes.NewBuffer(dst)
			z := lz4.NewWriter(b)
			if err := z.Apply(lz4.ConcurrencyOption(1), lz4.SizeOption(uint64(len(src)))); err != nil {
				return nil, err
			}
			if _, err := z.Write(src); err != nil {
				return nil, err
			}
			err := z.Close()
			return b.Bytes(), err
		}}, nil
	}
	return nil, errs.New(errs.Config, "unknown compression %q", name).Try("the choices are none, zstd, gzip and lz4")
}
