package tokens_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"iter"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tokens"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// idx is Megatron's index, written by hand as its class IndexedDataset says.
func idx(code byte, sequences []int32, documents []int64, size int64) []byte {
	le := binary.LittleEndian
	out := append([]byte("MMIDIDX\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), code)
	out = le.AppendUint64(out, uint64(len(sequences)))
	out = le.AppendUint64(out, uint64(len(documents)))
	for _, n := range sequences {
		out = le.AppendUint32(out, uint32(n))
	}
	at := int64(0)
	for _, n := range sequences {
		out = le.AppendUint64(out, uint64(at))
		at += int64(n) * size
	}
	for _, d := range documents {
		out = le.AppendUint64(out, uint64(d))
	}
	return out
}

// files is a source of files in memory.
type files map[string][]byte

func (f files) Stat(_ context.Context, name string) (source.Info, error) {
	data, ok := f[name]
	if !ok {
		return source.Info{}, errs.New(errs.NotFound, "there is no such file")
	}
	return source.Info{Name: name, Size: int64(len(data)), Version: "1"}, nil
}

func (f files) ReadAt(_ context.Context, obj source.Info, p []byte, off int64) error {
	copy(p, f[obj.Name][off:][:len(p)])
	return nil
}

func (f files) List(context.Context, string) iter.Seq2[source.Info, error] {
	return func(func(source.Info, error) bool) {}
}

// read opens a file and reads all of it.
func read(f files, name string, opt tokens.Options) ([][]byte, error) {
	opt.Store = &index.Store{}
	d, err := tokens.Open(context.Background(), f, []string{name}, opt)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var out [][]byte
	var s format.Sample
	for id := range min(d.Index().Len(), 1000) {
		if err := stagetest.Read(d, f, id, nil, &s); err != nil {
			return nil, err
		}
		out = append(out, s.Fields[0].Data)
	}
	return out, nil
}

// patched is data with other bytes from off on.
func patched(data []byte, off int, other ...byte) []byte {
	data = bytes.Clone(data)
	copy(data[off:], other)
	return data
}

func le64(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// The index of five sequences of 20 tokens in three documents: sizes at 34,
// pointers at 54, documents at 94, its end at 126.
func TestDamagedMegatron(t *testing.T) {
	bin := upTo(20)
	good := idx(8, []int32{3, 5, 0, 8, 4}, []int64{0, 2, 2, 5}, 2)
	for _, opt := range []tokens.Options{{Window: 4}, {Documents: true}, {Documents: true, EOS: at(104)}} {
		if _, err := read(files{"s3://a.bin": bin, "s3://a.idx": good}, "s3://a.bin", opt); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name     string
		bin, idx []byte
		code     errs.Code
		what     string
		file     string
		off      int64
	}{
		{"empty index", bin, nil, errs.Unsupported, "not Megatron's", "s3://a.idx", 0},
		{"cut in the header", bin, good[:20], errs.Damaged, "ends inside its header", "s3://a.idx", 0},
		{"cut in the sizes", bin, good[:40], errs.Damaged, "more than its 40 bytes can hold", "s3://a.idx", 18},
		{"cut in the documents", bin, good[:len(good)-1], errs.Damaged, "but it has 125", "s3://a.idx", 125},
		{"a byte more", bin, append(bytes.Clone(good), 0), errs.Damaged, "but it has 127", "s3://a.idx", 126},
		{"another index", bin, patched(good, 0, 'T', 'N', 'T', 'I', 'D', 'X'), errs.Unsupported, "not Megatron's", "s3://a.idx", 0},
		{"unknown version", bin, patched(good, 9, 2), errs.Unsupported, "version 2", "s3://a.idx", 9},
		{"floats", bin, patched(good, 17, 6), errs.Unsupported, "type 6", "s3://a.idx", 17},
		{"dtype 0", bin, patched(good, 17, 0), errs.Unsupported, "type 0", "s3://a.idx", 17},
		{"dtype 255", bin, patched(good, 17, 255), errs.Unsupported, "type 255", "s3://a.idx", 17},
		{"a wider dtype", bin, patched(good, 17, 4), errs.Damaged, "sequence 1 should begin at byte 6 of the .bin, but the one before it ends at byte 12", "s3://a.idx", 62},
		{"a narrower dtype", bin, patched(good, 17, 1), errs.Damaged, "should begin at byte 6", "s3://a.idx", 62},
		{"absurd sequences", bin, patched(good, 18, le64(1<<60)...), errs.Damaged, "more than its 126 bytes can hold", "s3://a.idx", 18},
		{"negative sequences", bin, patched(good, 18, le64(-1)...), errs.Damaged, "more than its 126 bytes can hold", "s3://a.idx", 18},
		{"absurd documents", bin, patched(good, 26, le64(1<<60)...), errs.Damaged, "more than its 126 bytes can hold", "s3://a.idx", 18},
		{"one sequence less", bin, patched(good, 18, 4), errs.Damaged, "but it has 126", "s3://a.idx", 114},
		{"negative size", bin, patched(good, 34+3, 0xff), errs.Damaged, "sequence 0 should have", "s3://a.idx", 34},
		{"size beyond the .bin", bin, patched(good, 34+16, 5), errs.Damaged, "sequence 4 should have 5 tokens at token 16", "s3://a.idx", 50},
		{"last sequence shorter", bin, patched(good, 34+16, 3), errs.Damaged, "describes 19 tokens, but the file has 20", "s3://a.bin", 38},
		{"overlapping sequences", bin, patched(good, 54+8, 4), errs.Damaged, "sequence 1 should begin at byte 4", "s3://a.idx", 62},
		{"a gap", bin, patched(good, 54+8, 8), errs.Damaged, "sequence 1 should begin at byte 8", "s3://a.idx", 62},
		{"pointer beyond", bin, patched(good, 54+8, le64(1<<50)...), errs.Damaged, "sequence 1 should begin", "s3://a.idx", 62},
		{"first document not at the begin", bin, patched(good, 94, 1), errs.Damaged, "first document begins at sequence 1", "s3://a.idx", 94},
		{"documents out of order", bin, patched(good, 94+16, 1), errs.Damaged, "document 2 should begin at sequence 1", "s3://a.idx", 110},
		{"document beyond", bin, patched(good, 94+24, 6), errs.Damaged, "document 3 should begin at sequence 6", "s3://a.idx", 118},
		{"document negative", bin, patched(good, 94+8, le64(-1)...), errs.Damaged, "document 1 should begin at sequence -1", "s3://a.idx", 102},
		{"documents end early", bin, patched(good, 94+24, 4), errs.Damaged, "documents end at sequence 4 of 5", "s3://a.idx", 126},
		{"no document", bin, idx(8, []int32{20}, nil, 2), errs.Damaged, "documents end at sequence 0 of 1", "s3://a.idx", 46},
		{"cut .bin", bin[:38], good, errs.Damaged, "should have 4 tokens at token 16", "s3://a.idx", 50},
		{"odd .bin", bin[:39], good, errs.Damaged, "not a whole number of uint16", "s3://a.bin", 39},
		{"longer .bin", append(bytes.Clone(bin), 0, 0), good, errs.Damaged, "describes 20 tokens, but the file has 21", "s3://a.bin", 40},
		{"empty .bin", nil, good, errs.Damaged, "should have 3 tokens at token 0", "s3://a.idx", 34},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, opt := range []tokens.Options{{Window: 4}, {Documents: true}, {Documents: true, EOS: at(104)}} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := read(files{"s3://a.bin": c.bin, "s3://a.idx": c.idx}, "s3://a.bin", opt)
				runtime.ReadMemStats(&after)
				e := errs.From(err)
				if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || e.Where.Shard != c.file || e.Where.Offset.Or(-1) != c.off || e.Hint == "" {
					t.Errorf("%s: %v | %s; want %q at %d of %s", e.Code, err, e.Hint, c.what, c.off, c.file)
				}
				if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
					t.Errorf("%d bytes were allocated", n)
				}
			}
		})
	}
}

func TestDamagedFlat(t *testing.T) {
	header := "\x93NUMPY\x01\x00\x5a\x00{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }" + strings.Repeat(" ", 32) + "\n"
	good := append([]byte(header), make([]byte, 8)...)
	if _, err := read(files{"s3://a.npy": good}, "s3://a.npy", tokens.Options{Window: 1}); err != nil {
		t.Fatal(err)
	}
	shape := func(s string) []byte {
		return append([]byte(strings.Replace(header, "(2,), }"+strings.Repeat(" ", len(s)-4), s+", }", 1)), make([]byte, 8)...)
	}
	for _, c := range []struct {
		name string
		data []byte
		code errs.Code
		what string
		off  int64
	}{
		{"cut", good[:len(good)-1], errs.Damaged, "claims 8 bytes of tokens, but there are 7", int64(len(good)) - 1},
		{"a byte more", append(bytes.Clone(good), 0), errs.Damaged, "claims 8 bytes of tokens, but there are 9", int64(len(good)) + 1},
		{"cut in the header", good[:40], errs.Damaged, "bytes should be", 0},
		{"two dimensions", shape("(1, 2)"), errs.Unsupported, "has 2 dimensions", 0},
		{"no dimension", shape("(  )"), errs.Unsupported, "has 0 dimensions", 0},
		{"shape product overflow", shape("(4611686018427387904,)"), errs.Damaged, "more elements than can be counted", 0},
		{"floats", bytes.Replace(good, []byte("<i4"), []byte("<f4"), 1), errs.Unsupported, "1 dimensions of float32", 0},
		{"objects", bytes.Replace(good, []byte("<i4"), []byte("|O8"), 1), errs.Unsupported, "pickle", 0},
		{"big-endian", bytes.Replace(good, []byte("<i4"), []byte(">i4"), 1), errs.Unsupported, "big-endian", 0},
		{"flipped header", bytes.Replace(good, []byte("descr"), []byte("dexcr"), 1), errs.Damaged, "not a dictionary", 0},
		{"odd", good[1:], errs.Damaged, "not a whole number of uint16", int64(len(good)) - 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := read(files{"s3://a.npy": c.data}, "s3://a.npy", tokens.Options{Window: 1})
			e := errs.From(err)
			if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || e.Where.Shard != "s3://a.npy" || e.Where.Offset.Or(-1) != c.off || e.Hint == "" {
				t.Errorf("%s: %v | %s; want %q at %d", e.Code, err, e.Hint, c.what, c.off)
			}
		})
	}
}

// A pattern that finds both files of a pair stands for it once; a dtype that is
// given reads the .bin alone.
func TestPairs(t *testing.T) {
	s := newShelf(t)
	bin := s.put(t, "a.bin", upTo(20))
	i := s.put(t, "a.idx", idx(8, []int32{3, 5, 0, 8, 4}, []int64{0, 2, 2, 5}, 2))
	doc := tokens.Options{Documents: true}
	want := [][]int64{numbers(upTo(8), mem.Uint16), numbers(upTo(20)[16:], mem.Uint16)}
	for _, paths := range [][]string{{bin}, {i}, {bin, i}, {i, bin}} {
		d := s.open(t, doc, paths...)
		if got := all(t, d, s.src); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%q: %v", paths, got)
		}
		if note := d.Index().Note(); note != "1 documents without a token are left out" || d.Index().Meta().Skipped != 1 {
			t.Errorf("note %q", note)
		}
	}
	if n := s.open(t, doc, bin, bin).Index().Len(); n != 4 {
		t.Errorf("%d documents of a pair that was asked for twice", n)
	}
	doc.DType = mem.Uint16
	if n := s.open(t, doc, bin).Index().Len(); n != 2 {
		t.Errorf("%d documents", n)
	}
	doc.DType++
	if _, err := s.try(doc, bin); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "Megatron's index says uint16") {
		t.Errorf("%v", err)
	}
	s.put(t, "a.idx", []byte("no index"))
	if n := s.open(t, tokens.Options{Window: 5, DType: mem.Uint16}, bin).Index().Len(); n != 4 {
		t.Errorf("%d windows", n)
	}
	if e := errs.From(func() error { _, err := s.try(tokens.Options{Window: 5}, bin); return err }()); e.Code != errs.Unsupported || !strings.Contains(e.Hint, "dtype=") {
		t.Errorf("%v", e)
	}
}

// fixture is what another tool wrote.
func fixture(f *testing.F, name string) []byte {
	data, err := os.ReadFile("../../../../testdata/tokens/" + name)
	stagetest.Must(f, err)
	return data
}

func FuzzMegatron(f *testing.F) {
	f.Add(upTo(20), idx(8, []int32{3, 5, 0, 8, 4}, []int64{0, 2, 2, 5}, 2))
	f.Add(upTo(20), idx(4, []int32{10}, []int64{0, 1, 1}, 4))
	for _, name := range []string{"bytes_document", "multimodal", "text_document", "text_int32_document"} {
		f.Add(fixture(f, name+".bin"), fixture(f, name+".idx"))
	}
	f.Fuzz(func(t *testing.T, bin, index []byte) {
		src := files{"s3://a.bin": bin, "s3://a.idx": index}
		docs, err := read(src, "s3://a.bin", tokens.Options{Documents: true})
		sound(t, err)
		if err == nil && len(docs) < 1000 && !bytes.Equal(slices.Concat(docs...), bin) {
			t.Errorf("the documents are not the .bin")
		}
		_, err = read(src, "s3://a.bin", tokens.Options{Window: 3, Next: true, Stride: 2})
		sound(t, err)
	})
}

func FuzzFlat(f *testing.F) {
	f.Add(upTo(20))
	f.Add(llm(9))
	for _, name := range []string{"llama.bin", "llmc.bin", "train.bin", "tokens.npy"} {
		f.Add(fixture(f, name))
	}
	f.Add(append([]byte("\x93NUMPY\x01\x00\x46\x00{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }            \n"), make([]byte, 8)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		src := files{"s3://a": data}
		_, err := read(src, "s3://a", tokens.Options{Documents: true, EOS: at(101)})
		sound(t, err)
		_, err = read(src, "s3://a", tokens.Options{Window: 3, Random: 9})
		sound(t, err)
	})
}

// sound wants samples, or an error with its place.
func sound(t *testing.T, err error) {
	if err == nil {
		return
	}
	switch e := errs.From(err); e.Code {
	case errs.Damaged, errs.Unsupported, errs.Empty, errs.Config:
		if e.Where.Shard == "" || e.Hint == "" {
			t.Errorf("%v has no place or hint", e)
		}
	default:
		t.Errorf("%s: %v", e.Code, e)
	}
}
