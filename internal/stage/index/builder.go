package index

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Part says whether a column is part of what the dataset is.
type Part bool

const (
	// Identity: the column counts in the digest.
	Identity Part = true
	// Aside: it does not, because another machine with the same data may have
	// other values there (times), or because it follows from the others.
	Aside Part = false
)

// Builder collects the columns of one index in memory and writes them. Columns
// are held, not copied, until it is written.
//
// The digest is the first 16 bytes of a SHA-256 over
//
//	"stoker dataset 1\n" format "\n"
//	and for every Identity column, in the order they were added:
//	name "\n" kind "\n" rows as 8 bytes, then its bytes as in the file
//
// all numbers little-endian: a function of what the dataset holds and never
// of where it is, when it was copied, or by whom it was indexed.
type Builder struct {
	Meta  Meta // Digest is filled in
	cols  []column
	data  [][][]byte // the parts of each column
	part  []Part
	names map[string]bool

	digested string // of an index that is copied: its digest
}

// Int64s adds a column.
func (b *Builder) Int64s(name string, v []int64, p Part) {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*8)
	b.add(column{Name: name, Kind: kindInt64, Rows: int64(len(v))}, p, raw)
}

// Int32s adds a column.
func (b *Builder) Int32s(name string, v []int32, p Part) {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*4)
	b.add(column{Name: name, Kind: kindInt32, Rows: int64(len(v))}, p, raw)
}

// Bytes adds a column.
func (b *Builder) Bytes(name string, v []byte, p Part) {
	b.add(column{Name: name, Kind: kindBytes, Rows: int64(len(v))}, p, v)
}

// Strings adds a column.
func (b *Builder) Strings(name string, v *Texts, p Part) {
	if len(v.off) == 0 {
		v.off = []int64{0}
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v.off))), len(v.off)*8)
	b.add(column{Name: name, Kind: kindStrings, Rows: int64(v.Len()), Text: int64(len(v.text))}, p, raw, v.text)
}

// Versions adds the versions of the stored files (source.Info), in their order. Those of
// 8 bytes, as local files have them, take the room of a number.
func (b *Builder) Versions(versions []string) {
	times := make([]int64, len(versions))
	for i, v := range versions {
		if v == "" {
			continue
		}
		if len(v) == 8 {
			times[i] = int64(binary.LittleEndian.Uint64([]byte(v)))
		}
		if times[i] == 0 { // of another length, or it would read as none
			var text Texts
			for _, v := range versions {
				text.AppendString(v)
			}
			b.Strings(FileVersion, &text, Aside)
			return
		}
	}
	b.Int64s(FileMTime, times, Aside)
}

func (b *Builder) add(c column, p Part, parts ...[]byte) {
	if b.names == nil {
		b.names = make(map[string]bool)
	}
	if b.names[c.Name] {
		panic("index: column " + c.Name + " was added twice")
	}
	b.names[c.Name] = true
	b.cols, b.part, b.data = append(b.cols, c), append(b.part, p), append(b.data, parts)
}

// Texts is a column of texts that is being built.
type Texts struct {
	off  []int64
	text []byte
}

// Append adds a row.
func (t *Texts) Append(row []byte) {
	t.text = append(t.text, row...)
	t.end()
}

// AppendString adds a row.
func (t *Texts) AppendString(row string) {
	t.text = append(t.text, row...)
	t.end()
}

func (t *Texts) end() {
	if len(t.off) == 0 {
		t.off = append(t.off, 0)
	}
	t.off = append(t.off, int64(len(t.text)))
}

// Len is the number of rows.
func (t *Texts) Len() int { return max(len(t.off)-1, 0) }

// At is row i, a view until the next Append.
func (t *Texts) At(i int) []byte { return t.text[t.off[i]:t.off[i+1]] }

func (b *Builder) digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "stoker dataset 1\n%s\n", b.Meta.Format)
	for i, c := range b.cols {
		if b.part[i] != Identity {
			continue
		}
		fmt.Fprintf(h, "%s\n%s\n", c.Name, c.Kind)
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(c.Rows)))
		for _, raw := range b.data[i] {
			h.Write(raw)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// write writes the whole index to the empty file f.
func (b *Builder) write(f *os.File) error {
	if b.Meta.Digest = b.digested; b.digested == "" {
		b.Meta.Digest = b.digest()
	}
	meta, err := b.layout()
	if err != nil {
		return err
	}
	if _, err := f.Write(make([]byte, headerLen)); err != nil {
		return err
	}
	w := &bodyWriter{w: bufio.NewWriterSize(f, 1<<20), sum: xxhash.New(), n: headerLen}
	w.put(meta)
	w.pad()
	for i := range b.cols {
		for _, raw := range b.data[i] {
			w.put(raw)
		}
		w.pad()
	}
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if w.err != nil {
		return w.err
	}
	h := header(w.n, int64(len(meta)), w.sum.Sum64())
	_, err = f.WriteAt(h[:], 0)
	return err
}

// layout gives every column its offset and returns meta. The offsets depend on
// the length of meta and the other way round; columns come after a meta
// that has the longest offsets there can be.
func (b *Builder) layout() ([]byte, error) {
	const longest = int64(1) << 62
	for i := range b.cols {
		b.cols[i].Off = longest
	}
	room, err := json.Marshal(newMetaFile(b.Meta, b.cols))
	if err != nil {
		return nil, err
	}
	if len(room) > maxMetaLen {
		return nil, errors.New("meta is too long")
	}
	off := align8(headerLen + int64(len(room)))
	for i := range b.cols {
		b.cols[i].Off = off
		off = align8(off + b.cols[i].size())
	}
	meta, err := json.Marshal(newMetaFile(b.Meta, b.cols))
	if err != nil {
		return nil, err
	}
	// JSON may end in spaces.
	for len(meta) < len(room) {
		meta = append(meta, ' ')
	}
	return meta, nil
}

// bodyWriter writes, sums and counts; the first error sticks.
type bodyWriter struct {
	w   *bufio.Writer
	sum *xxhash.Digest
	n   int64
	err error
}

func (w *bodyWriter) put(p []byte) {
	if w.err != nil {
		return
	}
	_, w.err = w.w.Write(p)
	_, _ = w.sum.Write(p)
	w.n += int64(len(p))
}

func (w *bodyWriter) pad() {
	var zero [8]byte
	w.put(zero[:align8(w.n)-w.n])
}

// failed is the error of an index that could not be written.
func failed(path string, err error) error {
	return errs.New(errs.Unreadable, "the index cannot be written").At(in(path)).Because(err).
		Try("free some space there, or set STOKER_CACHE to a folder that can be written to")
}
