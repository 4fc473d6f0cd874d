package compressed

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/stoker-data/stoker/internal/base/errs"
)

const (
	zstdMagic = 0xfd2fb528
	zstdBlock = 128 << 10
	// wholeBytes is the most that a frame may unpack to for its samples to be
	// reached alone; of a larger one every sample costs unpacking it from its
	// beginning to there, and a piece of it is that much.
	wholeBytes = 4 << 20
	// Windows of up to freeWindow are allocated for every file, larger ones (zstd
	// --ultra, --long) for files that could fill a part of them.
	freeWindow = 32 << 20
	mostWindow = 128 << 20
)

// zstdFrames reads zstd frames (RFC 8878), one after another. Which of the bytes are a
// frame is determined by walking its blocks; klauspost/compress unpacks them and checks
// the checksum and the length of the content.
type zstdFrames struct {
	feed
	dec *zstd.Decoder
	out []byte

	inside bool
	begin  int64 // of the frame in the file
	n      int64 // of the frame, unpacked

	// Of the walk: bytes of the frame that can be read on, and what comes then.
	left   int
	last   bool // the last block is among them
	sum    bool // a checksum follows it
	done   bool
	failed error // of Read, which the decoder may have wrapped
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(mostWindow))
	if err != nil {
		panic(err) // of options that do not go together
	}
	return d
}

func newZstd(f feed) *zstdFrames {
	return &zstdFrames{feed: f, dec: newDecoder(), out: make([]byte, wholeBytes)}
}

func (z *zstdFrames) next() (piece, error) {
	for {
		if !z.inside {
			if more, err := z.head(); err != nil {
				return piece{}, err
			} else if !more {
				return piece{}, io.EOF
			}
			continue
		}
		skip := z.n
		n, err := z.read(z.out)
		if err != nil && err != io.EOF { //nolint:errorlint // as it is
			return piece{}, err
		}
		z.n += int64(n)
		lead := skip << 1
		if err == io.EOF { //nolint:errorlint // as it is
			z.inside = false
			if skip == 0 {
				lead = 1
			}
		}
		if n > 0 {
			return piece{data: z.out[:n], in: z.begin, lead: lead, end: z.pos()}, nil
		}
	}
}

// read fills p; io.EOF: the frame ended before, or with it.
func (z *zstdFrames) read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k, err := z.dec.Read(p[n:])
		n += k
		switch {
		case err == nil:
		case z.failed != nil:
			return n, z.failed
		case errors.Is(err, io.EOF):
			return n, io.EOF
		default:
			return n, z.damaged(z.begin, "cannot decompress a zstd frame after %d bytes of it", z.n+int64(n)).Because(err)
		}
	}
	return n, nil
}

// head goes into the next frame that is data, or steps over one that is not;
// false: the file ends.
func (z *zstdFrames) head() (bool, error) {
	at := z.pos()
	h, err := z.peek(18)
	if err != nil || len(h) == 0 && at > 0 {
		return false, err
	}
	if len(h) < 8 {
		return false, z.cut()
	}
	magic := binary.LittleEndian.Uint32(h)
	if magic&^15 == skipMagic {
		return true, z.skip(int64(binary.LittleEndian.Uint32(h[4:])) + 8)
	}
	if magic != zstdMagic {
		return false, z.damaged(at, "a zstd frame should begin here")
	}
	var head zstd.Header
	if err := head.Decode(h); errors.Is(err, io.ErrUnexpectedEOF) {
		return false, z.cut()
	} else if err != nil {
		return false, z.damaged(at, "the head of a zstd frame is damaged").Because(err)
	}
	if head.DictionaryID != 0 {
		return false, unsupported(z.obj.Name, at, "zstd frames with a dictionary").Try("write the file without one, or unpack it with unzstd -D")
	}
	if err := z.window(at, head.WindowSize); err != nil {
		return false, err
	}
	z.left, z.last, z.sum, z.done, z.failed = frameHead(h), false, head.HasCheckSum, false, nil
	z.begin, z.n, z.inside = at, 0, true
	return true, z.dec.Reset(z)
}

// window refuses windows whose size the file does not justify allocating.
func (z *zstdFrames) window(at int64, size uint64) error {
	if size <= freeWindow || size <= mostWindow && int64(size/4) <= z.obj.Size {
		return nil
	}
	return errs.New(errs.Unsupported, "a zstd frame needs a window of %d MiB", size>>20).
		At(errs.Where{Shard: z.obj.Name, Offset: errs.Known(at)}).Try("write the file again without --long and --ultra")
}

// frameHead is the length of a frame's head (RFC 8878, 3.1.1.1), with its magic.
func frameHead(h []byte) int {
	flags := h[4]
	n := 5 + [4]int{0, 1, 2, 4}[flags&3] + [4]int{0, 2, 4, 8}[flags>>6]
	single := flags>>5&1 != 0
	if !single {
		n++
	}
	if single && flags>>6 == 0 {
		n++
	}
	return n
}

// Read gives the decoder the bytes of one frame.
func (z *zstdFrames) Read(p []byte) (int, error) {
	n, err := z.walk(p)
	if err != nil && err != io.EOF { //nolint:errorlint // as it is
		z.failed = err
	}
	return n, err
}

func (z *zstdFrames) walk(p []byte) (int, error) {
	for z.left == 0 {
		switch {
		case z.done:
			return 0, io.EOF
		case z.last:
			if z.done = true; z.sum {
				z.left = 4
			}
			continue
		}
		h, err := z.peek(3)
		if err != nil {
			return 0, err
		}
		if len(h) < 3 {
			return 0, z.cut()
		}
		head := int(h[0]) | int(h[1])<<8 | int(h[2])<<16
		size := head >> 3
		switch {
		case head>>1&3 == 3 || size > zstdBlock:
			return 0, z.damaged(z.pos(), "the head of a zstd block is damaged")
		case head>>1&3 == 1: // one byte, that often
			size = 1
		}
		z.left, z.last = 3+size, head&1 != 0
	}
	b, err := z.peek(min(z.left, len(p)))
	if err != nil {
		return 0, err
	}
	if len(b) == 0 && len(p) > 0 {
		return 0, z.cut()
	}
	n := copy(p, b)
	z.p += n
	z.left -= n
	return n, nil
}
