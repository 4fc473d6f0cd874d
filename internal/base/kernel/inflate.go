package kernel

import (
	"encoding/binary"
	"os"
)

// InflateError is the reason why a deflate stream gives no more bytes.
type InflateError uint8

// The reasons. The numbers are those of inflate.h.
const (
	InflateFull   InflateError = iota + 2 // the stream has more bytes than requested
	InflateCut                            // the input ends before the stream does
	inflateBlock                          // a block of type 3
	inflateStored                         // the length of a stored block contradicts itself
	inflateCodes                          // the codes of a block are not codes
	inflateCode                           // bits that are not a code of the block
	inflateFar                            // a match that begins before the stream
	InflateHead                           // not a zlib stream
	InflateSum                            // the checksum does not match
	inflateAny                            // damage that the twin finds
)

func (e InflateError) Error() string {
	return [...]string{
		InflateFull:   "it unpacks to more bytes than expected",
		InflateCut:    "the deflate stream is truncated",
		inflateBlock:  "a deflate block has an undefined type",
		inflateStored: "the length of a stored deflate block is damaged",
		inflateCodes:  "the codes of a deflate block are damaged",
		inflateCode:   "a deflate block uses a code that it does not define",
		inflateFar:    "a match reaches back before the start of the deflate stream",
		InflateHead:   "it does not begin with a zlib header",
		InflateSum:    "the checksum (Adler-32) does not match",
		inflateAny:    "the deflate stream is damaged",
	}[e]
}

// InflateSlack is the room after the end of a stream, in bytes, with which it is
// decompressed at full speed to its end.
const InflateSlack = 320

// inflateWindow is how far back a match may reach.
const inflateWindow = 32 << 10

// Inflater decompresses deflate streams (RFC 1951), also in zlib's format (RFC 1950),
// whose compressed bytes are completely in memory. It holds 22 KiB of tables and
// allocates nothing once warm. One goroutine at a time may use it; the zero value is
// ready.
type Inflater struct {
	src   []byte
	at    uint64 // bytes decompressed into dst
	sum   uint32
	level int // 0: not known yet
	state inflateState
	twin  inflateTwin
}

// Levels of an Inflater.
const (
	inflateTwinLevel = -1
	inflateBaseLevel = 1
	inflateAVX2Level = 2
)

// Open begins the deflate stream at the start of src. src must not change until it has
// been read.
func (z *Inflater) Open(src []byte) {
	if z.level == 0 {
		z.level = inflateLevel(os.Getenv(kernelEnv))
	}
	z.src, z.at, z.sum = src, 0, 1
	if z.level == inflateTwinLevel {
		z.twin.open(src)
	} else {
		z.open()
	}
}

// OpenZlib begins the zlib stream at the start of src.
func (z *Inflater) OpenZlib(src []byte) error {
	if len(src) < 2 {
		return InflateCut
	}
	if src[0]&15 != 8 || src[0]>>4 > 7 || binary.BigEndian.Uint16(src)%31 != 0 || src[1]&32 != 0 {
		return InflateHead
	}
	z.Open(src[2:])
	return nil
}

// Close forgets the stream, so that its bytes can be collected.
func (z *Inflater) Close() {
	z.src = nil
	z.twin.close()
}

// Run decompresses into dst from offset at on, until there are at least limit bytes, and
// returns how many there are; end reports that the stream is complete. dst[:at] holds
// earlier output, of which the last 32 KiB must still be there. With less than
// InflateSlack bytes after limit, the stream may have more than dst has room for, which
// is InflateFull: dst is full then, and Run cannot continue. Bytes after the output may
// change.
func (z *Inflater) Run(dst []byte, at, limit int) (n int, end bool, err error) {
	if z.level == inflateTwinLevel {
		return z.twin.run(dst, at, limit)
	}
	return z.run(dst, at, limit)
}

// Sum adds bytes to the checksum of the stream, in the order in which they were
// decompressed.
func (z *Inflater) Sum(p []byte) { z.sum = z.adler32(z.sum, p) }

// Check compares the checksum of the bytes given to Sum with the one after the end of a
// zlib stream.
func (z *Inflater) Check() error {
	rest := z.src[z.Used():]
	if len(rest) < 4 {
		return InflateCut
	}
	if binary.BigEndian.Uint32(rest) != z.sum {
		return InflateSum
	}
	return nil
}

// Used is how many bytes of the source were used, the last one perhaps only in part.
func (z *Inflater) Used() int {
	if z.level == inflateTwinLevel {
		return z.twin.used()
	}
	return z.used()
}

// Zlib decompresses the zlib stream at the start of src to exactly n bytes at the front
// of dst, which may be longer: InflateSlack more bytes make it faster. used is how many
// bytes of src were used, also after an error.
func (z *Inflater) Zlib(dst []byte, n int, src []byte) (got, used int, err error) {
	if err := z.OpenZlib(src); err != nil {
		return 0, 0, err
	}
	defer z.Close()
	got, end, err := z.Run(dst, 0, n+1)
	switch {
	case err != nil:
	case !end || got > n:
		err = InflateFull
	case got == n:
		z.Sum(dst[:n])
		err = z.Check()
	}
	return got, 2 + z.Used(), err
}
