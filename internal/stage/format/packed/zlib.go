package packed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Inflater unpacks zlib streams (RFC 1950) that are in memory whole, and whose
// length is known. It has 11 KiB of tables, is to be used again, and not by two at
// a time. The zero value is ready.
type Inflater struct{ z inflate }

var (
	errHead   = errors.New("it does not begin as zlib streams do")
	errBeyond = errors.New("there is more in it than there should be")
	errSum    = errors.New("its checksum is not that of what came out")
)

// Zlib is the n bytes that raw unpacks to. What follows the stream in raw is left
// alone. Memory is allocated for n bytes and no more, whatever raw claims.
func (u *Inflater) Zlib(raw []byte, n int64) ([]byte, error) {
	if len(raw) < 2 || raw[0]&15 != 8 || raw[0]>>4 > 7 || binary.BigEndian.Uint16(raw)%31 != 0 || raw[1]&32 != 0 {
		return nil, errHead
	}
	z := &u.z
	z.feed = feedOf("", raw[2:], 0)
	z.b, z.n, z.last = 0, 0, false
	z.out, z.low, z.start, z.w = make([]byte, n+1+slackBytes), 0, 0, 0
	defer func() { z.out, z.feed = nil, feed{} }()
	if err := z.whole(int(n)); err != nil {
		return nil, err
	}
	z.align()
	sum, err := z.peek(4)
	if err != nil || len(sum) < 4 {
		return nil, plain(z.cut())
	}
	out := z.out[:n:n]
	if adler32.Checksum(out) != binary.BigEndian.Uint32(sum) {
		return nil, errSum
	}
	return out, nil
}

// whole unpacks all blocks, which are n bytes.
func (z *inflate) whole(n int) error {
	for !z.last {
		ended, err := z.header(n)
		for err == nil && !ended {
			// With n as its limit symbols would not see the end of the block.
			if ended, err = z.symbols(n + 1); z.w > n {
				return errBeyond
			}
		}
		if err != nil {
			return plain(err)
		}
	}
	if z.w != n {
		return fmt.Errorf("%d bytes came out, and not %d", z.w, n)
	}
	return nil
}

// plain is an error of the stream without the place in a file, which the stream
// does not know.
func plain(err error) error {
	if e := errs.From(err); e.Where.Offset >= 0 {
		return fmt.Errorf("%s, at its byte %d", e.What, e.Where.Offset+2)
	}
	return err
}
