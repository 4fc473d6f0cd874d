package kernel

import (
	"bytes"
	"compress/flate"
	"errors"
	"hash/adler32"
	"io"
)

// inflateTwin is the inflater of a build without C, and the reference of the C code. It
// is Go's own: klauspost/compress is faster, but accepts some codes that zlib refuses.
type inflateTwin struct {
	src  bytes.Reader // an io.ByteReader: no byte is taken before it is needed
	size int
	r    io.ReadCloser
}

func (z *inflateTwin) open(src []byte) {
	z.src.Reset(src)
	z.size = len(src)
	if z.r == nil {
		z.r = flate.NewReader(&z.src)
		return
	}
	_ = z.r.(flate.Resetter).Reset(&z.src, nil)
}

func (z *inflateTwin) close() { z.src.Reset(nil) }

func (z *inflateTwin) used() int { return z.size - z.src.Len() }

func (z *inflateTwin) run(dst []byte, at, limit int) (n int, end bool, err error) {
	n = at
	for n < limit && n < len(dst) && err == nil {
		var k int
		k, err = z.r.Read(dst[n:min(limit, len(dst))])
		n += k
	}
	if err == nil && n < limit {
		var more [1]byte
		if _, err = io.ReadFull(z.r, more[:]); err == nil {
			return n, false, InflateFull
		}
	}
	var damage flate.CorruptInputError
	switch {
	case err == nil:
		return n, false, nil
	case err == io.EOF: //nolint:errorlint // as it is
		return n, true, nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, false, InflateCut
	case errors.As(err, &damage):
		return n, false, inflateAny
	}
	return n, false, err
}

// adlerGo is the twin of stk_adler32.
func adlerGo(sum uint32, p []byte) uint32 {
	if sum == 1 {
		return adler32.Checksum(p)
	}
	const prime = 65521
	a, b := sum&0xffff, sum>>16
	for ; len(p) > 0; p = p[min(len(p), 5552):] {
		for _, v := range p[:min(len(p), 5552)] {
			a += uint32(v)
			b += a
		}
		a, b = a%prime, b%prime
	}
	return b<<16 | a
}
