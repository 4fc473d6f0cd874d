package tokens

import (
	"encoding/binary"
	"math"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
)

// The index of Megatron-LM and GPT-NeoX (class MMapIndexedDataset), little-endian:
//
//	0  9  magic
//	9  8  version, 1
//	17 1  type of the tokens
//	18 8  sequences, s
//	26 8  entries of the table of documents, d
//	34    s int32: tokens of each sequence
//	      s int64: where each begins in the .bin, bytes
//	      d int64: the first sequence of each document; the last entry is s
//	      s int8:  mode of each sequence, in multimodal sets only
const (
	megatronMagic = "MMIDIDX\x00\x00"
	megatronLen   = 34
)

// megatronTypes are the codes of the types of tokens. 6 and 7 are floats, and
// Megatron and GPT-NeoX do not agree which is which.
var megatronTypes = [...]mem.DType{1: mem.Uint8, 2: mem.Int8, 3: mem.Int16, 4: mem.Int32, 5: mem.Int64, 8: mem.Uint16}

// table is the header of an index.
type table struct {
	dtype     mem.DType
	sequences int64
	entries   int64
}

func (t table) pointers() int64  { return megatronLen + 4*t.sequences }
func (t table) documents() int64 { return megatronLen + 12*t.sequences }

func header(idx *reader) (t table, err error) {
	h, err := idx.read(0, min(megatronLen, idx.obj.Size))
	if err != nil {
		return t, err
	}
	at := idx.at(0)
	switch {
	case len(h) < len(megatronMagic) || string(h[:len(megatronMagic)]) != megatronMagic:
		e := errs.New(errs.Unsupported, "the .idx beside the tokens is not Megatron's").At(at)
		if len(h) >= 6 && string(h[:6]) == "TNTIDX" {
			return t, e.Try("it is the older kind, without memory mapping: write the data again with --dataset-impl mmap")
		}
		return t, e.Try("if it belongs to something else, give dtype= and the .bin is read without it; else write both again")
	case len(h) < megatronLen:
		return t, idx.damaged(0, "it ends inside its header")
	case binary.LittleEndian.Uint64(h[9:]) != 1:
		return t, errs.New(errs.Unsupported, "Megatron's index is of version %d; 1 is known", binary.LittleEndian.Uint64(h[9:])).At(idx.at(9)).
			Try("write it again with Megatron's or GPT-NeoX's preprocess_data.py")
	}
	if code := int(h[17]); code < len(megatronTypes) {
		t.dtype = megatronTypes[code]
	}
	if t.dtype == mem.Object {
		return t, errs.New(errs.Unsupported, "Megatron's index says that the tokens are of type %d, which is not an integer type", h[17]).At(idx.at(17)).
			Try("1 to 5 and 8 are uint8, int8, int16, int32, int64 and uint16; write the data again")
	}
	t.sequences, t.entries = int64(binary.LittleEndian.Uint64(h[18:])), int64(binary.LittleEndian.Uint64(h[26:]))
	if t.sequences < 0 || t.entries < 0 || t.sequences > idx.obj.Size/12 || t.entries > idx.obj.Size/8 {
		return t, idx.damaged(18, "it claims %d sequences and %d entries of documents, more than its %d bytes can hold", uint64(t.sequences), uint64(t.entries), idx.obj.Size)
	}
	if end := t.documents() + 8*t.entries; idx.obj.Size != end && idx.obj.Size != end+t.sequences {
		return t, idx.damaged(min(end, idx.obj.Size), "%d sequences and %d entries of documents take %d bytes, but it has %d", t.sequences, t.entries, end, idx.obj.Size)
	}
	return t, nil
}

// megatron indexes a pair. Windows see its tokens as one run, as Megatron's own do.
func megatron(bin, idx *reader, opt Options) (*shard, error) {
	t, err := header(idx)
	if err != nil {
		return nil, err
	}
	if opt.DType != mem.Object && opt.DType != t.dtype {
		return nil, errs.New(errs.Config, "dtype is %s, but Megatron's index says %s", opt.DType, t.dtype).At(idx.at(17)).Try("leave dtype out")
	}
	size := int64(t.dtype.Size())
	if bin.obj.Size%size != 0 {
		return nil, bin.damaged(bin.obj.Size, "%d bytes are not a whole number of %s tokens", bin.obj.Size, t.dtype)
	}
	sh := &shard{dtype: t.dtype, count: bin.obj.Size / size}
	w := walk{
		sh: sh, bin: bin, idx: idx, t: t, keep: opt.Documents && !opt.marked(),
		tokens:   column{r: idx, off: megatronLen, n: t.sequences, width: 4},
		pointers: column{r: idx, off: t.pointers(), n: t.sequences, width: 8},
		first:    column{r: idx, off: t.documents(), n: t.entries, width: 8},
	}
	if err := w.all(); err != nil {
		return nil, err
	}
	if opt.marked() {
		return sh, sh.split(bin, opt)
	}
	return sh, nil
}

// walk goes over all that an index says, in order, and checks it against the .bin: the
// sequences follow one another there from its beginning to its end, as every writer of
// these files leaves them, and documents are runs of sequences.
type walk struct {
	sh       *shard
	bin, idx *reader
	t        table
	keep     bool // the documents, as samples

	tokens, pointers, first column

	sum   int64 // tokens of the sequences so far
	docs  int64 // documents that have begun
	begin int64 // of the last of them, tokens
}

func (w *walk) all() error {
	size := int64(w.t.dtype.Size())
	boundary, err := w.boundary(0)
	if err != nil {
		return err
	}
	if boundary != 0 {
		return w.idx.damaged(w.t.documents(), "the first document begins at sequence %d", boundary)
	}
	for seq := range w.t.sequences {
		for boundary == seq {
			if boundary, err = w.document(seq); err != nil {
				return err
			}
		}
		n, err := w.tokens.next()
		if err != nil {
			return err
		}
		off, err := w.pointers.next()
		if err != nil {
			return err
		}
		if n < 0 || n > w.sh.count-w.sum {
			return w.idx.damaged(megatronLen+4*seq, "sequence %d should have %d tokens at token %d of the .bin, which has %d", seq, n, w.sum, w.sh.count)
		}
		if off != w.sum*size {
			return w.idx.damaged(w.t.pointers()+8*seq, "sequence %d should begin at byte %d of the .bin, but the one before it ends at byte %d", seq, off, w.sum*size)
		}
		w.sum += n
		if err := w.idx.ctx.Err(); seq&0xffff == 0 && err != nil {
			return err
		}
	}
	if w.sum != w.sh.count {
		return w.bin.damaged(w.sum*size, "its index describes %d tokens, but the file has %d", w.sum, w.sh.count)
	}
	for w.first.n > 0 { // empty documents at the end, and the end itself
		if boundary, err = w.document(w.t.sequences); err != nil {
			return err
		}
	}
	if boundary != w.t.sequences {
		return w.idx.damaged(w.t.documents()+8*(w.t.entries-1), "the last document ends at sequence %d of %d", boundary, w.t.sequences)
	}
	return w.end()
}

// boundary is the next entry of the table of documents, which is not below at.
func (w *walk) boundary(at int64) (int64, error) {
	no := w.t.entries - w.first.n
	if w.first.n == 0 {
		return 0, w.idx.damaged(w.t.documents()+8*no, "its documents end at sequence %d of %d", at, w.t.sequences)
	}
	v, err := w.first.next()
	if err != nil {
		return 0, err
	}
	if v < at || v > w.t.sequences {
		return 0, w.idx.damaged(w.t.documents()+8*no, "document %d should begin at sequence %d, but the one before it begins at %d of %d", no, v, at, w.t.sequences)
	}
	return v, nil
}

// document ends the open document before sequence seq and begins the next one; it
// returns where that will end.
func (w *walk) document(seq int64) (int64, error) {
	if w.docs > 0 {
		if err := w.end(); err != nil {
			return 0, err
		}
	}
	w.docs++
	w.begin = w.sum
	return w.boundary(seq)
}

// end ends the open document; one without a token is counted and left out.
func (w *walk) end() error {
	n := w.sum - w.begin
	switch {
	case !w.keep || w.docs == 0:
	case n > math.MaxInt32:
		return errs.New(errs.Unsupported, "document %d has %d tokens; the limit is %d", w.docs-1, n, math.MaxInt32).At(w.idx.at(w.t.documents() + 8*(w.docs-1))).Try("take windows")
	case n == 0:
		w.sh.skipped++
	default:
		w.sh.start, w.sh.tokens = append(w.sh.start, w.begin), append(w.sh.tokens, int32(n))
	}
	w.begin = w.sum
	return nil
}

// column reads the numbers of one table of an index one after the other.
type column struct {
	r      *reader
	off, n int64 // of what was not read yet: bytes, numbers
	width  int   // bytes of a number, 4 or 8
	room   []byte
	left   []byte
}

func (c *column) next() (int64, error) {
	if len(c.left) == 0 {
		const run = 64 << 10
		n := min(c.n*int64(c.width), run)
		if c.room == nil {
			c.room = make([]byte, n)
		}
		c.left = c.room[:n]
		if err := c.r.into(c.left, c.off); err != nil {
			return 0, err
		}
		c.off += n
	}
	p := c.left
	c.left, c.n = p[c.width:], c.n-1
	if c.width == 4 {
		return int64(int32(binary.LittleEndian.Uint32(p))), nil
	}
	return int64(binary.LittleEndian.Uint64(p)), nil
}
