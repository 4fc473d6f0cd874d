package npy

import (
	"bufio"
	"context"
	"errors"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// stretch reads a stretch of a stored file from its begin to its end.
type stretch struct {
	ctx context.Context
	src source.Source
	obj source.Info
	off int64
	n   int64 // bytes left
}

func (s *stretch) Read(p []byte) (int, error) {
	if s.n == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), s.n)]
	if err := s.src.ReadAt(s.ctx, s.obj, p, s.off); err != nil {
		return 0, format.InShard(err)
	}
	s.off, s.n = s.off+int64(len(p)), s.n-int64(len(p))
	return len(p), nil
}

// inflater unpacks one member. Its errors are those of the source, or the package
// flate's, or io.ErrUnexpectedEOF.
type inflater struct {
	in  *bufio.Reader
	out io.ReadCloser
}

// inflate reads s in runs of that many bytes.
func inflate(s *stretch, run int64) inflater {
	in := bufio.NewReaderSize(s, int(min(max(s.n, 16), run)))
	return inflater{in, flate.NewReader(in)}
}

// atOnce is how long a member's compressed bytes may be, to be read whole: the kernel's
// inflater, which is twice as fast, wants them so.
const atOnce = 64 << 20

// whole unpacks all of a member of size bytes.
func whole(s *stretch, size int64, crc uint32) ([]byte, error) {
	if s.n > atOnce {
		return inflate(s, 256<<10).whole(size, crc)
	}
	raw := make([]byte, s.n)
	if _, err := io.ReadFull(s, raw); err != nil {
		return nil, err
	}
	p := make([]byte, size+kernel.InflateSlack)
	var z kernel.Inflater
	z.Open(raw)
	n, end, err := z.Run(p, 0, int(size)+1)
	switch {
	case err != nil:
		return nil, err
	case !end:
		return nil, errLong
	case int64(n) < size:
		return nil, io.ErrUnexpectedEOF
	case z.Used() < len(raw):
		return nil, errBehind
	}
	return summed(p[:size:size], crc)
}

func summed(p []byte, crc uint32) ([]byte, error) {
	if got := crc32.ChecksumIEEE(p); got != crc {
		return nil, errSum
	}
	return p, nil
}

// whole unpacks all of a member, whose size and sum are known.
func (f inflater) whole(size int64, crc uint32) ([]byte, error) {
	p := make([]byte, size)
	if _, err := io.ReadFull(f.out, p); err != nil {
		return nil, err
	}
	var more [1]byte
	if n, err := f.out.Read(more[:]); n > 0 || err != io.EOF { //nolint:errorlint // as it is
		if n == 0 && err != nil {
			return nil, err
		}
		return nil, errLong
	}
	if _, err := f.in.ReadByte(); err == nil {
		return nil, errBehind
	}
	return summed(p, crc)
}

var (
	errLong   = errors.New("it decompresses to more bytes than it should")
	errBehind = errors.New("its compressed bytes end too early")
	errSum    = errors.New("its checksum (CRC-32) is wrong")
)
