// Package pages reads the pages of a Parquet file: their headers, compression, levels and
// encodings. A page becomes a Block, which gives single values without decoding again. No
// function reads a file, and none believes a length before it has seen as many bytes.
package pages

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/stoker-data/stoker/internal/stage/format/parquet/meta"
)

// Page types and encodings, as files number them.
const (
	kindData   = 0
	KindDict   = 2
	KindDataV2 = 3

	EncPlain       = 0
	EncPlainDict   = 2
	encRLE         = 3
	encBitPacked   = 4
	encDelta       = 5
	encDeltaLength = 6
	encDeltaBytes  = 7
	encRLEDict     = 8
	encSplit       = 9
)

// MaxHeader bounds the header of a page: its statistics may hold two values.
const MaxHeader = 16 << 20

// Header is what is stored before a page.
type Header struct {
	Kind     int
	Unpacked int // bytes
	Packed   int // bytes, without the header
	crc      uint32
	Summed   bool // crc is there
	Values   int  // nulls count
	Encoding int
	levels   int // encoding of the definition levels, v1
	Rows     int // v2; else -1
	DefLen   int // v2: bytes of the levels, which are never compressed
	RepLen   int
	raw      bool // v2: the values are not compressed whatever the codec
	Length   int  // bytes of the header itself
}

var errHeader = errors.New("a page's header makes no sense")

// ParseHeader reads the header that p begins with. errShort: it continues after p.
func ParseHeader(p []byte) (Header, error) {
	h := Header{Kind: -1, Unpacked: -1, Packed: -1, Values: -1, Rows: -1, Encoding: -1}
	t := &meta.Thrift{P: p}
	t.Fields(0, func(id int64, typ byte) bool {
		switch {
		case id == 5 && typ == meta.ThriftStruct:
			t.Fields(1, h.data(t))
		case id == 7 && typ == meta.ThriftStruct:
			t.Fields(1, h.data(t))
		case id == 8 && typ == meta.ThriftStruct:
			t.Fields(1, h.dataV2(t))
		case !meta.IsInt(typ):
			return false
		case id == 1:
			h.Kind = t.Size()
		case id == 2:
			h.Unpacked = t.Size()
		case id == 3:
			h.Packed = t.Size()
		case id == 4:
			h.crc, h.Summed = uint32(t.Int()), true
		default:
			return false
		}
		return true
	})
	if t.Err != nil {
		return h, t.Err
	}
	h.Length = t.At
	switch {
	case h.Kind < 0 || h.Unpacked < 0 || h.Packed < 0:
		return h, errHeader
	case (h.Kind == kindData || h.Kind == KindDict || h.Kind == KindDataV2) && (h.Values < 0 || h.Encoding < 0):
		return h, errHeader
	case h.Kind == KindDataV2 && (h.Rows < 0 || h.Rows > h.Values || h.DefLen > h.Packed || h.RepLen > h.Packed-h.DefLen ||
		h.DefLen+h.RepLen > h.Unpacked):
		return h, errHeader
	}
	return h, nil
}

// data reads a DataPageHeader or a DictionaryPageHeader, whose fields are its
// first.
func (h *Header) data(t *meta.Thrift) func(int64, byte) bool {
	return func(id int64, typ byte) bool {
		switch {
		case !meta.IsInt(typ):
			return false
		case id == 1:
			h.Values = t.Size()
		case id == 2:
			h.Encoding = t.Size()
		case id == 3:
			h.levels = t.Size()
		default:
			return false
		}
		return true
	}
}

func (h *Header) dataV2(t *meta.Thrift) func(int64, byte) bool {
	return func(id int64, typ byte) bool {
		switch {
		case id == 7 && typ == meta.ThriftFalse:
			h.raw = true
			return true
		case !meta.IsInt(typ):
			return false
		case id == 1:
			h.Values = t.Size()
		case id == 3:
			h.Rows = t.Size()
		case id == 4:
			h.Encoding = t.Size()
		case id == 5:
			h.DefLen = t.Size()
		case id == 6:
			h.RepLen = t.Size()
		default:
			return false
		}
		return true
	}
}

// Holds says whether the page is one of data.
func (h *Header) Holds() bool { return h.Kind == kindData || h.Kind == KindDataV2 }

// Dictionary says whether the values of the page are numbers in the dictionary.
func (h *Header) Dictionary() bool { return h.Encoding == EncPlainDict || h.Encoding == encRLEDict }

// A page of n stored bytes may become maxUnpacked(n): far more than in any file that
// was written in earnest, and little enough not to be a bomb. A page of two million
// equal integers exceeds it; writers make pages of 1 MiB, or of 20,000 rows.
func maxUnpacked(n int) int { return max(12<<20, 128*n) }

// openPage checks a page as it is stored in the file, and returns its header and what
// is stored after it.
func openPage(p []byte, codec int) (h Header, stored []byte, err error) {
	h, err = ParseHeader(p)
	if err != nil {
		return h, nil, fmt.Errorf("the header of the page: %w", err)
	}
	stored = p[h.Length:]
	if h.Packed != len(stored) {
		return h, nil, fmt.Errorf("the page says that it has %d bytes, but it has %d", h.Packed, len(stored))
	}
	if err := h.Bounded(codec, len(p)); err != nil {
		return h, nil, err
	}
	if h.Summed && crc32.ChecksumIEEE(stored) != h.crc {
		return h, nil, errors.New("the checksum of the page is wrong")
	}
	return h, stored, nil
}

// Bounded says whether a page of n bytes, its header among them, may hold what the
// header claims.
func (h *Header) Bounded(codec, n int) error {
	limit := maxUnpacked(n)
	switch {
	case h.Unpacked > limit || h.Values > limit/4:
		return fmt.Errorf("a page of %d bytes claims to hold %d values in %d bytes: so few decompress to at most %d", n, h.Values, h.Unpacked, limit)
	case h.Plain(codec) && h.Unpacked != h.Packed:
		return fmt.Errorf("the page is not compressed, and has %d bytes instead of %d", h.Packed, h.Unpacked)
	}
	return nil
}

// Plain says whether the page is stored uncompressed in the file.
func (h *Header) Plain(codec int) bool { return codec == CodecNone || h.raw }

// Unpacked is the body of a page, after room of front bytes. The levels of a v2 page
// come before its values, and are never compressed.
func Unpacked(h Header, codec int, stored []byte, front int) ([]byte, error) {
	buf := make([]byte, front+h.Unpacked)
	body := buf[front:]
	if h.Plain(codec) {
		copy(body, stored)
		return buf, nil
	}
	lead := h.DefLen + h.RepLen
	copy(body, stored[:lead])
	if err := unpack(codec, body[lead:], stored[lead:]); err != nil {
		return nil, fmt.Errorf("cannot decompress the page: %w", err)
	}
	return buf, nil
}
