package parquet

import (
	"errors"
	"fmt"
	"hash/crc32"
)

// Page types and encodings, as files number them.
const (
	pageData   = 0
	pageDict   = 2
	pageDataV2 = 3

	encPlain       = 0
	encPlainDict   = 2
	encRLE         = 3
	encBitPacked   = 4
	encDelta       = 5
	encDeltaLength = 6
	encDeltaBytes  = 7
	encRLEDict     = 8
	encSplit       = 9
)

// maxHeader bounds the header of a page: its statistics may hold two values.
const maxHeader = 16 << 20

// pageHeader is what is stored before a page.
type pageHeader struct {
	kind     int
	unpacked int // bytes
	packed   int // bytes, without the header
	crc      uint32
	summed   bool // crc is there
	values   int  // nulls count
	encoding int
	levels   int // encoding of the definition levels, v1
	rows     int // v2; else -1
	defLen   int // v2: bytes of the levels, which are never compressed
	repLen   int
	raw      bool // v2: the values are not compressed whatever the codec
	length   int  // bytes of the header itself
}

var errHeader = errors.New("a page's header makes no sense")

// parseHeader reads the header that p begins with. errShort: it continues after p.
func parseHeader(p []byte) (pageHeader, error) {
	h := pageHeader{kind: -1, unpacked: -1, packed: -1, values: -1, rows: -1, encoding: -1}
	t := &thrift{p: p}
	t.fields(0, func(id int64, typ byte) bool {
		switch {
		case id == 5 && typ == thriftStruct:
			t.fields(1, h.data(t))
		case id == 7 && typ == thriftStruct:
			t.fields(1, h.data(t))
		case id == 8 && typ == thriftStruct:
			t.fields(1, h.dataV2(t))
		case !isInt(typ):
			return false
		case id == 1:
			h.kind = t.size()
		case id == 2:
			h.unpacked = t.size()
		case id == 3:
			h.packed = t.size()
		case id == 4:
			h.crc, h.summed = uint32(t.int()), true
		default:
			return false
		}
		return true
	})
	if t.err != nil {
		return h, t.err
	}
	h.length = t.at
	switch {
	case h.kind < 0 || h.unpacked < 0 || h.packed < 0:
		return h, errHeader
	case (h.kind == pageData || h.kind == pageDict || h.kind == pageDataV2) && (h.values < 0 || h.encoding < 0):
		return h, errHeader
	case h.kind == pageDataV2 && (h.rows < 0 || h.rows > h.values || h.defLen > h.packed || h.repLen > h.packed-h.defLen ||
		h.defLen+h.repLen > h.unpacked):
		return h, errHeader
	}
	return h, nil
}

// data reads a DataPageHeader or a DictionaryPageHeader, whose fields are its
// first.
func (h *pageHeader) data(t *thrift) func(int64, byte) bool {
	return func(id int64, typ byte) bool {
		switch {
		case !isInt(typ):
			return false
		case id == 1:
			h.values = t.size()
		case id == 2:
			h.encoding = t.size()
		case id == 3:
			h.levels = t.size()
		default:
			return false
		}
		return true
	}
}

func (h *pageHeader) dataV2(t *thrift) func(int64, byte) bool {
	return func(id int64, typ byte) bool {
		switch {
		case id == 7 && typ == thriftFalse:
			h.raw = true
			return true
		case !isInt(typ):
			return false
		case id == 1:
			h.values = t.size()
		case id == 3:
			h.rows = t.size()
		case id == 4:
			h.encoding = t.size()
		case id == 5:
			h.defLen = t.size()
		case id == 6:
			h.repLen = t.size()
		default:
			return false
		}
		return true
	}
}

// holds says whether the page is one of data.
func (h *pageHeader) holds() bool { return h.kind == pageData || h.kind == pageDataV2 }

// dictionary says whether the values of the page are numbers in the dictionary.
func (h *pageHeader) dictionary() bool { return h.encoding == encPlainDict || h.encoding == encRLEDict }

// A page of n stored bytes may become maxUnpacked(n): far more than in any file that
// was written in earnest, and little enough not to be a bomb. A page of two million
// equal integers exceeds it; writers make pages of 1 MiB, or of 20,000 rows.
func maxUnpacked(n int) int { return max(12<<20, 128*n) }

// openPage checks a page as it is stored in the file, and returns its header and what
// is stored after it.
func openPage(p []byte, codec int) (h pageHeader, stored []byte, err error) {
	h, err = parseHeader(p)
	if err != nil {
		return h, nil, fmt.Errorf("the header of the page: %w", err)
	}
	stored = p[h.length:]
	if h.packed != len(stored) {
		return h, nil, fmt.Errorf("the page says that it has %d bytes, and it has %d", h.packed, len(stored))
	}
	if err := h.bounded(codec, len(p)); err != nil {
		return h, nil, err
	}
	if h.summed && crc32.ChecksumIEEE(stored) != h.crc {
		return h, nil, errors.New("the checksum of the page is wrong")
	}
	return h, stored, nil
}

// bounded says whether a page of n bytes, its header among them, may hold what the
// header claims.
func (h *pageHeader) bounded(codec, n int) error {
	limit := maxUnpacked(n)
	switch {
	case h.unpacked > limit || h.values > limit/4:
		return fmt.Errorf("a page of %d bytes claims to hold %d values in %d bytes: no more than %d are unpacked of so few", n, h.values, h.unpacked, limit)
	case h.plain(codec) && h.unpacked != h.packed:
		return fmt.Errorf("the page is not compressed, and has %d bytes instead of %d", h.packed, h.unpacked)
	}
	return nil
}

// plain says whether the page is stored uncompressed in the file.
func (h *pageHeader) plain(codec int) bool { return codec == codecNone || h.raw }

// unpacked is the body of a page, after room of front bytes. The levels of a v2 page
// come before its values, and are never compressed.
func unpacked(h pageHeader, codec int, stored []byte, front int) ([]byte, error) {
	buf := make([]byte, front+h.unpacked)
	body := buf[front:]
	if h.plain(codec) {
		copy(body, stored)
		return buf, nil
	}
	lead := h.defLen + h.repLen
	copy(body, stored[:lead])
	if err := unpack(codec, body[lead:], stored[lead:]); err != nil {
		return nil, fmt.Errorf("the page can not be unpacked: %w", err)
	}
	return buf, nil
}
