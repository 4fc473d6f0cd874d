package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/stoker-data/stoker/internal/base/kernel"
)

// Codecs, as files number them.
const (
	CodecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	CodecLZO    = 3
	codecBrotli = 4
	codecHadoop = 5 // LZ4 in frames of Hadoop's, or bare from some writers
	codecZstd   = 6
	CodecLZ4    = 7
)

var errLength = errors.New("it does not decompress to the length that it should")

// unpack fills all of dst with what src unpacks to; one byte more or less is an
// error. A codec that panics on what it was given finds it damaged.
func unpack(codec int, dst, src []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its decoder gave up: %v", r)
		}
	}()
	if len(dst) == 0 && len(src) == 0 {
		return nil // of nothing but nulls
	}
	switch codec {
	case codecSnappy:
		n, err := snappy.DecodedLen(src)
		if err != nil {
			return err
		}
		if n != len(dst) {
			return errLength
		}
		_, err = snappy.Decode(dst, src)
		return err
	case codecZstd:
		return unzstd(dst, src)
	case CodecLZ4:
		return unLZ4(dst, src)
	case codecHadoop:
		if unHadoop(dst, src) == nil {
			return nil
		}
		return unLZ4(dst, src)
	case codecGzip:
		z, _ := inflaters.Get().(*kernel.Inflater)
		if z == nil {
			z = new(kernel.Inflater)
		}
		defer inflaters.Put(z)
		n, err := z.Gzip(dst, len(dst), src)
		if err == nil && n != len(dst) {
			err = errLength
		}
		return err
	case codecBrotli:
		return drain(dst, brotli.NewReader(bytes.NewReader(src)))
	}
	return fmt.Errorf("codec %d", codec)
}

// drain reads exactly dst from r.
func drain(dst []byte, r io.Reader) error {
	if _, err := io.ReadFull(r, dst); err != nil {
		return err
	}
	var more [1]byte
	switch n, err := r.Read(more[:]); {
	case n > 0:
		return errLength
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func unLZ4(dst, src []byte) error {
	n, err := lz4.UncompressBlock(src, dst)
	if err != nil {
		return err
	}
	if n != len(dst) {
		return errLength
	}
	return nil
}

// unHadoop unpacks blocks of (unpacked length, packed length, both big-endian,
// LZ4 block).
func unHadoop(dst, src []byte) error {
	for len(dst) > 0 {
		if len(src) < 8 {
			return io.ErrUnexpectedEOF
		}
		n, m := binary.BigEndian.Uint32(src), binary.BigEndian.Uint32(src[4:])
		src = src[8:]
		if uint64(n) > uint64(len(dst)) || uint64(m) > uint64(len(src)) || n == 0 {
			return errLength
		}
		if err := unLZ4(dst[:n], src[:m]); err != nil {
			return err
		}
		dst, src = dst[n:], src[m:]
	}
	if len(src) > 0 {
		return errLength
	}
	return nil
}

// unzstd unpacks into dst and nowhere else: the decoder is told that no more may
// come, and its windows are what it decodes into.
func unzstd(dst, src []byte) error {
	z, err := zstds()
	if err != nil {
		return err
	}
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return err
	}
	if h.HasFCS && h.FrameContentSize > uint64(len(dst)) {
		return errLength
	}
	out, err := z.DecodeAll(src, dst[:0:len(dst)])
	if err != nil {
		return err
	}
	if len(out) != len(dst) || len(out) > 0 && &out[0] != &dst[0] {
		return errLength
	}
	return nil
}

// inflaters hold tables, and no unpacked data.
var inflaters sync.Pool // *kernel.Inflater

// zstds is the decoder of the process: it has no state between calls.
var zstds = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(1<<31), zstd.WithDecodeAllCapLimit(true))
})
