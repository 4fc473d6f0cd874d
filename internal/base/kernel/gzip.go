package kernel

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// Flags of a gzip member's header.
const (
	gzipHeaderSum = 1 << 1
	gzipExtra     = 1 << 2
	gzipName      = 1 << 3
	gzipComment   = 1 << 4
)

// gzipHead is the length of the member header at the start of src.
func gzipHead(src []byte) (int, error) {
	if len(src) < 10 {
		return 0, InflateCut
	}
	if src[0] != 0x1f || src[1] != 0x8b || src[2] != 8 || src[3]&0xe0 != 0 {
		return 0, InflateHead
	}
	flags, at := src[3], 10
	if flags&gzipExtra != 0 {
		if len(src)-at < 2 {
			return 0, InflateCut
		}
		at += 2 + int(binary.LittleEndian.Uint16(src[at:]))
	}
	for _, text := range []byte{gzipName, gzipComment} {
		if flags&text == 0 {
			continue
		}
		end := bytes.IndexByte(src[min(at, len(src)):], 0)
		if end < 0 {
			return 0, InflateCut
		}
		at += end + 1
	}
	if flags&gzipHeaderSum != 0 {
		if len(src) < at+2 {
			return 0, InflateCut
		}
		if binary.LittleEndian.Uint16(src[at:]) != uint16(crc32.ChecksumIEEE(src[:at])) {
			return 0, InflateSum
		}
		at += 2
	}
	if len(src) < at {
		return 0, InflateCut
	}
	return at, nil
}

// Gzip decompresses src, a gzip file (RFC 1952) of one or several members, to at most n
// bytes at the front of dst, which may be longer: InflateSlack more bytes make it
// faster. All checksums and lengths are checked. got is the number of bytes.
func (z *Inflater) Gzip(dst []byte, n int, src []byte) (got int, err error) {
	defer z.Close()
	for {
		head, err := gzipHead(src)
		if err != nil {
			return got, err
		}
		z.Open(src[head:])
		k, end, err := z.Run(dst[got:], 0, n-got+1)
		if err != nil {
			return got, err
		}
		if !end || k > n-got {
			return got, InflateFull
		}
		foot := src[head+z.Used():]
		if len(foot) < 8 {
			return got, InflateCut
		}
		if binary.LittleEndian.Uint32(foot) != crc32.ChecksumIEEE(dst[got:got+k]) || binary.LittleEndian.Uint32(foot[4:]) != uint32(k) {
			return got, InflateSum
		}
		got += k
		if src = foot[8:]; len(src) == 0 {
			return got, nil
		}
	}
}
