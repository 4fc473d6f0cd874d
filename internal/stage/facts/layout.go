package facts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"strings"

	"github.com/cespare/xxhash/v2"
)

const (
	magic         = "STOKERFA"
	magicEnd      = "STOKEREN"
	layoutVersion = 1
	headerLen     = 64
	footerLen     = 64
	recordHead    = 40
	slotLen       = 16
	maxKind       = 48

	// maxProbe ends searches in forged tables. With two homes for each record, a run of
	// more than a hundred slots happens once in a million tables of a million records.
	maxProbe = 512

	// MaxFact is the length of the longest fact that is kept, in bytes.
	MaxFact = 512 << 10
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// Key says what a fact is about: bytes of one version of one stored file.
type Key struct {
	File   uint64 // a digest of the file's name and version, made by the caller
	Offset int64  // of the sample in the file, bytes
	Length int64  // of the sample, bytes
}

// hash is that of the key in a record, never 0.
func hash(head []byte) uint64 {
	return max(xxhash.Sum64(head[8:32]), 1)
}

func (k Key) hash() uint64 {
	var head [recordHead]byte
	k.put(head[:])
	return hash(head[:])
}

func (k Key) put(head []byte) {
	le.PutUint64(head[8:], k.File)
	le.PutUint64(head[16:], uint64(k.Offset))
	le.PutUint64(head[24:], uint64(k.Length))
}

func keyOf(head []byte) Key {
	return Key{File: le.Uint64(head[8:]), Offset: int64(le.Uint64(head[16:])), Length: int64(le.Uint64(head[24:]))}
}

func stampOf(head []byte) uint64 { return le.Uint64(head[32:]) }

func align8[T int | int64](n T) T { return (n + 7) &^ 7 }

// finish fills in stamp and checksum of a record, whose fact ends where rec ends.
func finish(rec []byte, stamp uint64, seed uint32) {
	le.PutUint64(rec[32:], stamp)
	le.PutUint32(rec, crc32.Update(seed, castagnoli, rec[4:]))
}

// appendRecord appends a record without stamp and checksum, and the zeros after it.
func appendRecord(dst []byte, k Key, fact []byte) []byte {
	var head [recordHead]byte
	le.PutUint32(head[4:], uint32(len(fact)))
	k.put(head[:])
	dst = append(append(dst, head[:]...), fact...)
	var zero [8]byte
	return append(dst, zero[:align8(len(fact))-len(fact)]...)
}

// whole says whether rec, which ends with its fact, is a record of the kind.
func whole(rec []byte, seed uint32) bool {
	return len(rec) >= recordHead && int64(le.Uint32(rec[4:])) == int64(len(rec)-recordHead) &&
		le.Uint32(rec) == crc32.Update(seed, castagnoli, rec[4:])
}

// first is the record at the beginning of data, without the zeros after it; nil: it is
// missing, or not whole.
func first(data []byte, seed uint32) []byte {
	if len(data) < recordHead {
		return nil
	}
	n := int64(le.Uint32(data[4:]))
	if n > MaxFact || n > int64(len(data)-recordHead) {
		return nil
	}
	if rec := data[: recordHead+n : recordHead+n]; whole(rec, seed) {
		return rec
	}
	return nil
}

// slot is one of the table; place is the record's, as in the file.
type slot struct{ hash, place uint64 }

func placeOf(off int64, fact int) uint64 { return uint64(off/8)<<24 | uint64(fact) }

// record is the offset and the length, with the head and without the zeros after it, of
// the record of a slot.
func (s slot) record() (off, n int64) {
	return int64(s.place>>24) * 8, recordHead + int64(s.place&(1<<24-1))
}

// home is the first slot in which the record of a hash may be.
func home(hash uint64, homes int64) int64 {
	i, _ := bits.Mul64(hash, uint64(homes))
	return int64(i)
}

func header(kind string) []byte {
	h := make([]byte, headerLen)
	copy(h, magic)
	le.PutUint32(h[8:], layoutVersion)
	copy(h[16:], kind)
	le.PutUint32(h[12:], headerSum(h))
	return h
}

func headerSum(h []byte) uint32 {
	return crc32.Update(crc32.Checksum(h[:12], castagnoli), castagnoli, h[16:headerLen])
}

// errLater is what checkHeader says of a file that a later version wrote.
var errLater = errors.New("a later version of stoker wrote it")

// errForeign is what checkHeader says of a file that no version wrote: it is not touched.
var errForeign = errors.New("it is not a file of facts")

func checkHeader(h []byte, kind string) error {
	switch {
	case len(h) < headerLen:
		return fmt.Errorf("%d bytes are too few for a header", len(h))
	case string(h[:8]) != magic && strings.Trim(string(h[:headerLen]), "\x00") != "":
		return errForeign
	case string(h[:8]) != magic:
		return errors.New("its header is empty")
	case le.Uint32(h[8:]) > layoutVersion:
		return errLater // the rest is that version's
	case le.Uint32(h[12:]) != headerSum(h):
		return errors.New("the checksum of its header is wrong")
	case le.Uint32(h[8:]) != layoutVersion:
		return errForeign
	case strings.TrimRight(string(h[16:headerLen]), "\x00") != kind:
		return fmt.Errorf("it has facts of kind %q: %w", strings.TrimRight(string(h[16:headerLen]), "\x00"), errForeign)
	}
	return nil
}

// shape is what a footer says.
type shape struct {
	table, slots, homes, facts int64
	sum                        uint32
}

func (s shape) footer(seed uint32) []byte {
	f := make([]byte, footerLen)
	copy(f, magicEnd)
	le.PutUint64(f[8:], uint64(s.table+s.slots*slotLen+footerLen))
	le.PutUint64(f[16:], uint64(s.table))
	le.PutUint64(f[24:], uint64(s.slots))
	le.PutUint64(f[32:], uint64(s.homes))
	le.PutUint64(f[40:], uint64(s.facts))
	le.PutUint32(f[48:], s.sum)
	le.PutUint32(f[60:], crc32.Update(seed, castagnoli, f[:60]))
	return f
}

// parse checks a whole sealed file, except its records. It never panics, whatever data
// holds.
func parse(data []byte, kind string, seed uint32) (shape, error) {
	var s shape
	if err := checkHeader(data[:min(len(data), headerLen)], kind); err != nil {
		return s, err
	}
	size := int64(len(data))
	if size < headerLen+footerLen {
		return s, errors.New("its end is missing")
	}
	f := data[size-footerLen:]
	if string(f[:8]) != magicEnd || le.Uint32(f[60:]) != crc32.Update(seed, castagnoli, f[:60]) || le.Uint64(f[8:]) != uint64(size) {
		return s, errors.New("its end is missing")
	}
	room := uint64(size - headerLen - footerLen)
	table, slots, homes, facts := le.Uint64(f[16:]), le.Uint64(f[24:]), le.Uint64(f[32:]), le.Uint64(f[40:])
	if slots > room/slotLen || table != uint64(size-footerLen)-slots*slotLen || table%8 != 0 || homes < 1 || homes > slots || facts > slots {
		return s, fmt.Errorf("a table of %d slots at %d does not fit into %d bytes", slots, table, size)
	}
	s = shape{int64(table), int64(slots), int64(homes), int64(facts), le.Uint32(f[48:])}
	if crc32.Update(seed, castagnoli, data[s.table:size-footerLen]) != s.sum {
		return s, errors.New("the checksum of its table is wrong")
	}
	return s, nil
}

// tableWriter writes a table as a stream of slots, which come in the order of their hashes.
type tableWriter struct {
	w     io.Writer
	shape // homes is set by the maker, before the first put
	buf   []byte
	err   error
}

// newTable is the table of at most n records; its checksum begins with seed.
func newTable(w io.Writer, n int64, seed uint32) *tableWriter {
	return &tableWriter{w: w, shape: shape{homes: max(2*n, 1), sum: seed}, buf: make([]byte, 0, 64<<10)}
}

func (t *tableWriter) put(s slot) {
	for t.slots < home(s.hash, t.homes) {
		t.add(slot{})
	}
	t.add(s)
	t.facts++
}

func (t *tableWriter) add(s slot) {
	t.buf = le.AppendUint64(le.AppendUint64(t.buf, s.hash), s.place)
	if t.slots++; len(t.buf) == cap(t.buf) {
		t.flush()
	}
}

func (t *tableWriter) flush() {
	t.sum = crc32.Update(t.sum, castagnoli, t.buf)
	if t.err == nil {
		_, t.err = t.w.Write(t.buf)
	}
	t.buf = t.buf[:0]
}

// end writes the slots that are left.
func (t *tableWriter) end() error {
	for t.slots < t.homes {
		t.add(slot{})
	}
	t.flush()
	return t.err
}
