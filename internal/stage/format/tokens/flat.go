package tokens

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
)

// The headers of llm.c: 256 int32 numbers, of which the first is one of these,
// the second a version and the third the number of tokens (Karpathy, llm.c,
// dev/data/data_common.py).
const (
	llmGPT2   = 20240520 // uint16
	llmLlama3 = 20240801 // uint32
	llmLen    = 1024
)

// flat indexes a file of tokens one after the other.
func flat(r *reader, opt Options) (*shard, error) {
	sh := &shard{dtype: opt.DType}
	head, err := r.read(0, min(r.obj.Size, llmLen))
	if err != nil {
		return nil, err
	}
	end := r.obj.Size
	switch dtype, ok := llm(head, r.obj.Size); {
	case ok:
		sh.off, sh.dtype = llmLen, dtype
	case strings.HasPrefix(string(head), npy.Magic):
		h, err := numpy(r, head)
		if err != nil {
			return nil, err
		}
		sh.off, sh.dtype, end = h.Off, h.DType, h.Off+h.Bytes
	case foreign(head) != "":
		return nil, errs.New(errs.Config, "%s is %s, not a file of tokens", r.obj.Name, foreign(head)).At(r.at(0)).
			Try("open it as what it is, or unpack it; `stoker pack --output tokens` makes tokens of it")
	case opt.DType == mem.Object:
		sh.dtype = mem.Uint16
		if is, err := wide(r); err != nil {
			return nil, err
		} else if is {
			return nil, errs.New(errs.Config, "every second number of %s is close to zero, like the high halves of uint32 tokens, but uint16 is read by default", r.obj.Name).
				At(r.at(-1)).Try("give dtype=\"uint32\", or dtype=\"uint16\" if these are the tokens")
		}
	}
	if opt.DType != mem.Object && opt.DType != sh.dtype {
		return nil, errs.New(errs.Config, "dtype is %s, but the header of the file says %s", opt.DType, sh.dtype).At(r.at(0)).
			Try("leave dtype out")
	}
	size := int64(sh.dtype.Size())
	if left := (end - sh.off) % size; left != 0 {
		return nil, errs.New(errs.Damaged, "the file has %d bytes, which is not a whole number of %s tokens", end-sh.off, sh.dtype).At(r.at(end - left)).
			Try("it was cut, or its tokens are of another type: give dtype=, or write it again")
	}
	sh.count = (end - sh.off) / size
	if !opt.Documents {
		return sh, nil
	}
	return sh, sh.split(r, opt)
}

// foreign returns the format of a file that begins with the magic bytes of another
// format; only those long enough not to be tokens by chance are tried. "" means that
// none of them matches.
func foreign(head []byte) string {
	for _, f := range []struct {
		at         int
		mark, what string
	}{
		{0, "PAR1", "Parquet"},
		{0, "\x89HDF\r\n\x1a\n", "HDF5"},
		{0, "\x1f\x8b\x08\x00\x00", "compressed with gzip"},
		{0, "\x1f\x8b\x08\x08", "compressed with gzip"},
		{0, "\x28\xb5\x2f\xfd", "compressed with zstd"},
		{0, "\x04\x22\x4d\x18", "compressed with lz4"},
		{0, "\xfd7zXZ\x00", "compressed with xz"},
		{0, "PK\x03\x04", "a ZIP archive, such as a .npz"},
		{0, "\x89PNG\r\n\x1a\n", "a PNG"},
		{0, "ARROW1\x00\x00", "Arrow"},
		{257, "ustar", "a tar archive"},
	} {
		if len(head) >= f.at+len(f.mark) && string(head[f.at:f.at+len(f.mark)]) == f.mark {
			return f.what
		}
	}
	return ""
}

// llm is what a header of llm.c says; only one that fits the length of its file
// counts as one.
func llm(head []byte, size int64) (mem.DType, bool) {
	if len(head) < llmLen {
		return 0, false
	}
	dtype := mem.Uint16
	switch binary.LittleEndian.Uint32(head) {
	case llmGPT2:
	case llmLlama3:
		dtype = mem.Uint32
	default:
		return 0, false
	}
	n := int64(binary.LittleEndian.Uint32(head[8:]))
	return dtype, n*int64(dtype.Size()) == size-llmLen
}

// numpy reads the header of a .npy file of one dimension of integers.
func numpy(r *reader, head []byte) (npy.Header, error) {
	fail := func(err error) (npy.Header, error) {
		e := *errs.From(err)
		if e.Where.Shard == "" {
			e.Where = r.at(0)
		}
		return npy.Header{}, &e
	}
	n, err := npy.HeaderLen(head)
	if err != nil {
		return fail(err)
	}
	if head, err = r.read(0, n); err != nil {
		return fail(err)
	}
	h, err := npy.ParseHeader(head)
	switch {
	case err != nil:
		return fail(err)
	case len(h.Shape) != 1 || !integer(h.DType):
		return fail(errs.New(errs.Unsupported, "a file of tokens is one dimension of integers; this one has %d dimensions of %s", len(h.Shape), h.DType).
			Try("open it with NpyDataset, one sample a row"))
	case h.Swapped:
		return fail(errs.New(errs.Unsupported, "its tokens are big-endian").
			Try("save it in this machine's byte order: numpy.save(path, array.astype(array.dtype.newbyteorder(\"<\")))"))
	case h.Bytes != r.obj.Size-h.Off:
		return fail(r.damaged(r.obj.Size, "its header claims %d bytes of tokens, but there are %d", h.Bytes, r.obj.Size-h.Off))
	}
	return h, nil
}

// wide reports whether the contents of the file can hardly be anything but 32-bit
// tokens: all of their high halves are below 8 (no vocabulary has 2^19 words), while
// more than half of the low ones are not.
func wide(r *reader) (bool, error) {
	if r.obj.Size%4 != 0 {
		return false, nil
	}
	const look = 64 << 10
	low, n := 0, 0
	for _, off := range []int64{0, r.obj.Size / 2 &^ 3, (r.obj.Size - look) &^ 3} {
		p, err := r.read(max(off, 0), min(look, r.obj.Size-max(off, 0)))
		if err != nil {
			return false, err
		}
		for ; len(p) >= 4; p = p[4:] {
			n++
			if binary.LittleEndian.Uint16(p) >= 8 {
				low++
			}
			if binary.LittleEndian.Uint16(p[2:]) >= 8 {
				return false, nil
			}
		}
	}
	return n >= 16 && low > n/2, nil
}

// split parts the tokens of a file into documents.
func (sh *shard) split(r *reader, opt Options) error {
	if opt.EOS == nil && opt.BOS == nil {
		return errs.New(errs.Config, "it is unknown where the documents of %s begin", r.obj.Name).At(r.at(-1)).
			Try("give the token that ends one, eos=50256 for GPT-2's tokenizer, or the one that begins one, bos=; or put Megatron's .idx beside the .bin; or take windows")
	}
	mark, ends := opt.EOS, true
	if mark == nil {
		mark, ends = opt.BOS, false
	}
	bits, ok := bitsOf(*mark, sh.dtype)
	if !ok {
		return errs.New(errs.Config, "no %s token can be %d", sh.dtype, *mark).At(r.at(-1)).Try("look up the token in its tokenizer")
	}
	size := sh.dtype.Size()
	begin, at := int64(0), int64(0)
	cut := func(end int64) error {
		if end == begin {
			return nil
		}
		if end-begin > math.MaxInt32 {
			return errs.New(errs.Unsupported, "a document of %d tokens; the limit is %d", end-begin, math.MaxInt32).At(r.at(sh.off+begin*int64(size))).
				Try("is %d the token that separates documents?", *mark)
		}
		sh.start, sh.tokens = append(sh.start, begin), append(sh.tokens, int32(end-begin))
		begin = end
		return nil
	}
	err := r.stream(sh.off, sh.count*int64(size), func(p []byte) error {
		for i := next(p, size, bits, 0); i >= 0; i = next(p, size, bits, i+1) {
			end := at + int64(i)
			if ends {
				end++
			}
			if err := cut(end); err != nil {
				return err
			}
		}
		at += int64(len(p) / size)
		return nil
	})
	if err != nil {
		return err
	}
	return cut(at)
}

// bitsOf returns how a token is stored in a file; false means that it does not fit.
func bitsOf(token int64, d mem.DType) (uint64, bool) {
	width := 8 * d.Size()
	lo, hi := int64(0), int64(math.MaxInt64)
	switch d {
	case mem.Int8, mem.Int16, mem.Int32, mem.Int64:
		lo, hi = -1<<(width-1), 1<<(width-1)-1
	case mem.Uint8, mem.Uint16, mem.Uint32:
		hi = 1<<width - 1
	}
	return uint64(token) & (1<<width - 1), token >= lo && token <= hi
}

// next returns the number of the first token from the one numbered i on that has these
// bits, or -1 if there is none.
func next(p []byte, size int, bits uint64, i int) int {
	switch size {
	case 1:
		for ; i < len(p); i++ {
			if p[i] == uint8(bits) {
				return i
			}
		}
	case 2:
		for ; 2*i+2 <= len(p); i++ {
			if binary.LittleEndian.Uint16(p[2*i:]) == uint16(bits) {
				return i
			}
		}
	case 4:
		for ; 4*i+4 <= len(p); i++ {
			if binary.LittleEndian.Uint32(p[4*i:]) == uint32(bits) {
				return i
			}
		}
	case 8:
		for ; 8*i+8 <= len(p); i++ {
			if binary.LittleEndian.Uint64(p[8*i:]) == bits {
				return i
			}
		}
	}
	return -1
}
