package tokens_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tokens"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

// shelf is a folder for files and one for indexes.
type shelf struct {
	dir   string
	src   source.Source
	store *index.Store
}

func newShelf(t *testing.T) shelf {
	t.Helper()
	dir := t.TempDir()
	src := source.NewFile()
	t.Cleanup(func() { _ = src.Close() })
	return shelf{dir, src, &index.Store{Dir: dir + "/cache"}}
}

func (s shelf) put(t stagetest.TB, name string, data []byte) string {
	t.Helper()
	return stagetest.Put(t, filepath.Join(s.dir, name), data)
}

func (s shelf) try(opt tokens.Options, paths ...string) (*tokens.Dataset, error) {
	opt.Store = s.store
	return tokens.Open(ctx, s.src, paths, opt)
}

func (s shelf) open(t *testing.T, opt tokens.Options, paths ...string) *tokens.Dataset {
	t.Helper()
	d, err := s.try(opt, paths...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// all is every sample, as numbers.
func all(t stagetest.TB, d *tokens.Dataset, src source.Source) (out [][]int64) {
	t.Helper()
	typ, _ := d.Type(tokens.Field)
	var s format.Sample
	for id := range d.Index().Len() {
		stagetest.Must(t, stagetest.Read(d, src, id, nil, &s))
		if n := d.Size(id, tokens.Field); len(s.Fields) != 1 || n != int64(len(s.Fields[0].Data)) {
			t.Fatalf("sample %d has %d fields, of %d bytes", id, len(s.Fields), n)
		}
		if !typ.Ragged && len(s.Fields[0].Data) != typ.Shape.Elems()*typ.DType.Size() {
			t.Fatalf("sample %d has %d bytes, and the shape is %v", id, len(s.Fields[0].Data), typ.Shape)
		}
		out = append(out, numbers(s.Fields[0].Data, typ.DType))
	}
	return out
}

func numbers(p []byte, d mem.DType) (out []int64) {
	le := binary.LittleEndian
	for ; len(p) > 0; p = p[d.Size():] {
		switch d {
		case mem.Uint8:
			out = append(out, int64(p[0]))
		case mem.Uint16:
			out = append(out, int64(le.Uint16(p)))
		case mem.Uint32:
			out = append(out, int64(le.Uint32(p)))
		case mem.Int32:
			out = append(out, int64(int32(le.Uint32(p))))
		case mem.Int64:
			out = append(out, int64(le.Uint64(p)))
		default:
			panic(d.String())
		}
	}
	return out
}

// uint16s is a flat file.
func uint16s(v ...uint16) (out []byte) {
	for _, n := range v {
		out = binary.LittleEndian.AppendUint16(out, n)
	}
	return out
}

// upTo is the tokens 100 to 100+n.
func upTo(n int) []byte {
	var v []uint16
	for i := range n {
		v = append(v, uint16(100+i))
	}
	return uint16s(v...)
}

func at(n int64) *int64 { return &n }

// What NumPy and Megatron read from the files that they wrote; see
// testdata/tokens/make.py.
func TestLikeTheirTools(t *testing.T) {
	const dir = "../../../../testdata/tokens/"
	data, err := os.ReadFile(dir + "golden.json")
	stagetest.Must(t, err)
	var golden []struct {
		Paths   []string
		DType   string
		Options struct {
			Window, Stride  int64
			Next, Documents bool
			EOS, BOS        *int64
			DType           string
		}
		Samples [][]int64
	}
	stagetest.Must(t, json.Unmarshal(data, &golden))
	if len(golden) < 30 {
		t.Fatalf("only %d cases", len(golden))
	}
	types := map[string]mem.DType{"": mem.Object, "uint32": mem.Uint32}
	for _, c := range golden {
		o := c.Options
		t.Run(fmt.Sprint(c.Paths, o.Window, o.Stride, o.Next, o.Documents), func(t *testing.T) {
			s := newShelf(t)
			for i, p := range c.Paths {
				stem := strings.TrimSuffix(p, filepath.Ext(p))
				for _, ext := range []string{".bin", ".idx", ".npy"} {
					if data, err := os.ReadFile(dir + stem + ext); err == nil {
						s.put(t, stem+ext, data)
					}
				}
				c.Paths[i] = s.dir + "/" + p
			}
			d := s.open(t, tokens.Options{Window: o.Window, Stride: o.Stride, Next: o.Next, Documents: o.Documents, EOS: o.EOS, BOS: o.BOS, DType: types[o.DType]}, c.Paths...)
			if got := all(t, d, s.src); !slices.EqualFunc(got, c.Samples, slices.Equal) {
				t.Errorf("got %v, want %v", got, c.Samples)
			}
			typ, ok := d.Type(tokens.Field)
			if !ok || typ.DType.String() != c.DType || typ.Ragged != o.Documents {
				t.Errorf("%v", typ)
			}
			stagetest.Dataset(t, d, s.src)
			stagetest.NoHeap(t, d, s.src, nil)
			stagetest.NoHeap(t, d, s.src, []string{"x;tokens", "tokens"})
		})
	}
}

// Windows of any files against slices of slices.
func TestRandomCuts(t *testing.T) {
	s := newShelf(t)
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Int64Range(1, 12).Draw(t, "window")
		opt := tokens.Options{Window: window, Stride: rapid.Int64Range(0, 15).Draw(t, "stride"), Next: rapid.Bool().Draw(t, "next")}
		stride, length := opt.Stride, window
		if stride == 0 {
			stride = window
		}
		if opt.Next {
			length++
		}
		var paths []string
		var want [][]int64
		for i := range rapid.IntRange(1, 4).Draw(t, "files") {
			data := upTo(rapid.IntRange(0, 60).Draw(t, "tokens"))
			paths = append(paths, s.put(t, fmt.Sprintf("%d.bin", i), data))
			v := numbers(data, mem.Uint16)
			for from := int64(0); from+length <= int64(len(v)); from += stride {
				want = append(want, v[from:from+length])
			}
		}
		opt.Store = &index.Store{} // files of one size and time come again
		d, err := tokens.Open(ctx, s.src, paths, opt)
		if len(want) == 0 {
			if errs.CodeOf(err) != errs.Empty {
				t.Fatalf("%v", err)
			}
			return
		}
		stagetest.Must(t, err)
		defer d.Close()
		if got := all(t, d, s.src); !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// Documents of any flat files against a plain loop.
func TestRandomDocuments(t *testing.T) {
	s := newShelf(t)
	rapid.Check(t, func(t *rapid.T) {
		mark := rapid.Uint16Range(0, 3).Draw(t, "mark")
		opt := tokens.Options{Documents: true}
		ends := rapid.Bool().Draw(t, "ends")
		if opt.EOS = at(int64(mark)); !ends {
			opt.EOS, opt.BOS = nil, opt.EOS
		}
		var paths []string
		var want [][]int64
		for i := range rapid.IntRange(1, 3).Draw(t, "files") {
			v := rapid.SliceOfN(rapid.Uint16Range(0, 5), 0, 40).Draw(t, "tokens")
			paths = append(paths, s.put(t, fmt.Sprintf("%d.bin", i), uint16s(v...)))
			var doc []int64
			for _, n := range v {
				if !ends && n == mark && len(doc) > 0 {
					want, doc = append(want, doc), nil
				}
				if doc = append(doc, int64(n)); ends && n == mark {
					want, doc = append(want, doc), nil
				}
			}
			if len(doc) > 0 {
				want = append(want, doc)
			}
		}
		opt.Store = &index.Store{} // files of one size and time come again
		d, err := tokens.Open(ctx, s.src, paths, opt)
		if len(want) == 0 {
			if errs.CodeOf(err) != errs.Empty {
				t.Fatalf("%v", err)
			}
			return
		}
		stagetest.Must(t, err)
		defer d.Close()
		if got := all(t, d, s.src); !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// A document may begin in one run of reading and end in the next.
func TestLongDocuments(t *testing.T) {
	s := newShelf(t)
	v := make([]uint16, 1_300_000)
	marks := []int{0, 524_287, 524_288, 524_289, 1_200_000}
	for _, i := range marks {
		v[i] = 7
	}
	d := s.open(t, tokens.Options{Documents: true, EOS: at(7)}, s.put(t, "a.bin", uint16s(v...)))
	from := int64(0)
	for id, end := range append(marks, len(v)-1) {
		if n := d.Size(int64(id), tokens.Field) / 2; n != int64(end)+1-from {
			t.Errorf("document %d has %d tokens", id, n)
		}
		from = int64(end) + 1
	}
	if d.Index().Len() != 6 || d.Tokens() != 1_300_000 {
		t.Errorf("%d documents of %d tokens", d.Index().Len(), d.Tokens())
	}
}

// Random windows are part of what users have seen: where they begin may never
// change.
func TestRandomWindowsGolden(t *testing.T) {
	s := newShelf(t)
	paths := []string{s.put(t, "a.bin", upTo(1000)), s.put(t, "b.bin", upTo(5)), s.put(t, "c.bin", upTo(3000))}
	for seed, want := range map[uint64]string{
		0: "2:732 2:1852 2:2640 0:73 2:1549 2:2600 2:2805 2:1521 0:143 2:1107 2:1917 0:741 ",
		1: "2:455 2:2628 0:624 2:2712 0:303 0:748 2:601 0:795 0:820 2:2169 2:100 2:2205 ",
	} {
		d := s.open(t, tokens.Options{Window: 8, Next: true, Random: 12, Seed: seed}, paths...)
		got := ""
		for id := range d.Index().Len() {
			file, start, n := d.Span(id)
			if got += fmt.Sprintf("%d:%d ", file, start); n != 9 {
				t.Errorf("a window of %d tokens", n)
			}
		}
		if got != want {
			t.Errorf("seed %d: %s", seed, got)
		}
		for i, v := range all(t, d, s.src) {
			if _, start, _ := d.Span(int64(i)); v[0] != 100+start || v[8] != 108+start {
				t.Errorf("sample %d is %v", i, v)
			}
		}
		stagetest.Dataset(t, d, s.src)
		stagetest.NoHeap(t, d, s.src, nil)
	}
}

// Every start of every file is as likely as any other.
func TestRandomWindowsAreUniform(t *testing.T) {
	s := newShelf(t)
	paths := []string{s.put(t, "a.bin", upTo(14)), s.put(t, "b.bin", upTo(4)), s.put(t, "c.bin", upTo(24))}
	const draws = 200_000
	d := s.open(t, tokens.Options{Window: 4, Next: true, Random: draws, Seed: 5}, paths...)
	seen := make(map[string]float64)
	for id := range d.Index().Len() {
		file, start, _ := d.Span(id)
		seen[fmt.Sprint(file, ":", start)]++
	}
	if len(seen) != 10+20 {
		t.Fatalf("%d starts were drawn", len(seen))
	}
	chi, each := 0.0, draws/30.0
	for _, n := range seen {
		chi += (n - each) * (n - each) / each
	}
	if chi > 58.3 { // 0.1 % of 29 degrees of freedom
		t.Errorf("chi square %v: %v", chi, seen)
	}
}

func TestNotes(t *testing.T) {
	s := newShelf(t)
	a, b, c := s.put(t, "a.bin", upTo(50)), s.put(t, "b.bin", upTo(37)), s.put(t, "c.bin", upTo(3))
	for _, x := range []struct {
		opt   tokens.Options
		paths []string
		want  string
	}{
		{tokens.Options{Window: 10}, []string{a}, ""},
		{tokens.Options{Window: 10, Next: true}, []string{a}, "the last 9 of 50 tokens belong to no sample: they are too few for a window of 11"},
		{tokens.Options{Window: 10}, []string{a, b}, "the last 7 of 87 tokens belong to no sample: they are too few for a window of 10"},
		{tokens.Options{Window: 10}, []string{a, b, c}, "10 of 90 tokens, at the ends of 2 files, belong to no sample: they are too few for a window of 10"},
		{tokens.Options{Window: 10, Random: 7}, []string{a, b}, ""},
	} {
		if note := s.open(t, x.opt, x.paths...).Index().Note(); note != x.want {
			t.Errorf("%+v: %q", x.opt, note)
		}
	}
}

func TestOptions(t *testing.T) {
	s := newShelf(t)
	odd := s.put(t, "odd.bin", make([]byte, 101))
	short := s.put(t, "short.bin", upTo(5))
	empty := s.put(t, "empty.bin", nil)
	var wide []byte
	for i := range 100 {
		wide = binary.LittleEndian.AppendUint32(wide, uint32(3000+7*i))
	}
	wider := s.put(t, "wide.bin", wide)
	for _, c := range []struct {
		opt  tokens.Options
		path string
		code errs.Code
		what string
	}{
		{tokens.Options{}, short, errs.Config, "what a sample is"},
		{tokens.Options{Window: -1}, short, errs.Config, "window of -1"},
		{tokens.Options{Window: 1 << 40}, short, errs.Config, "the limit is"},
		{tokens.Options{Window: 4, Stride: -1}, short, errs.Config, "stride of -1"},
		{tokens.Options{Window: 4, Random: -1}, short, errs.Config, "-1 random windows"},
		{tokens.Options{Window: 4, Random: 1, Stride: 1}, short, errs.Config, "random windows and a stride"},
		{tokens.Options{Random: 1}, short, errs.Config, "what a sample is"},
		{tokens.Options{Window: 4, Documents: true}, short, errs.Config, "documents and windows"},
		{tokens.Options{Random: 4, Documents: true}, short, errs.Config, "documents and windows"},
		{tokens.Options{Window: 4, EOS: at(1)}, short, errs.Config, "windows are set"},
		{tokens.Options{Documents: true, EOS: at(1), BOS: at(1)}, short, errs.Config, "both set"},
		{tokens.Options{Documents: true}, short, errs.Config, "unknown where the documents"},
		{tokens.Options{Documents: true, EOS: at(70_000)}, short, errs.Config, "no uint16 token can be 70000"},
		{tokens.Options{Documents: true, EOS: at(-1)}, short, errs.Config, "no uint16 token can be -1"},
		{tokens.Options{Window: 4, DType: mem.Float32}, short, errs.Config, "dtype float32"},
		{tokens.Options{Window: 6}, short, errs.Empty, "no window of 6 tokens"},
		{tokens.Options{Window: 5, Next: true}, short, errs.Empty, "no window of 6 tokens"},
		{tokens.Options{Window: 5, Next: true, Random: 9}, short, errs.Empty, "no window of 6 tokens"},
		{tokens.Options{Window: 5}, empty, errs.Empty, "no token"},
		{tokens.Options{Documents: true, EOS: at(1)}, empty, errs.Empty, "no token"},
		{tokens.Options{Window: 5}, odd, errs.Damaged, "not a whole number of uint16"},
		{tokens.Options{Window: 5, DType: mem.Uint32}, short, errs.Damaged, "not a whole number of uint32"},
		{tokens.Options{Window: 5}, wider, errs.Config, "uint16 is read by default"},
		{tokens.Options{Window: 5}, s.dir, errs.Config, "is a folder"},
		{tokens.Options{Window: 5}, s.dir + "/shrot.bin", errs.NotFound, "no token file"},
		{tokens.Options{Window: 5}, s.dir + "/short.idx", errs.NotFound, "no index file"},
	} {
		_, err := s.try(c.opt, c.path)
		e := errs.From(err)
		if err == nil || e.Code != c.code || !strings.Contains(e.What, c.what) || e.Hint == "" {
			t.Errorf("%s: %v | %s; want %q", e.Code, err, e.Hint, c.what)
		}
	}
	if _, err := s.try(tokens.Options{Window: 5}); errs.CodeOf(err) != errs.Config {
		t.Errorf("no file: %v", err)
	}
	e := errs.From(func() error {
		_, err := s.try(tokens.Options{Window: 5, DType: mem.Uint32}, s.put(t, "llm.bin", llm(9)))
		return err
	}())
	if e.Code != errs.Config || !strings.Contains(e.What, "dtype is uint32") {
		t.Errorf("%v", e)
	}
	mixed := tokens.Options{Window: 2}
	npy := append([]byte("\x93NUMPY\x01\x00\x3b\x00{'descr': '<i4', 'fortran_order': False, 'shape': (2,), } \n"), make([]byte, 8)...)
	if _, err := s.try(mixed, short, s.put(t, "a.npy", npy)); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), "int32") {
		t.Errorf("%v", err)
	}
	for dtype, n := range map[mem.DType]int64{mem.Uint16: 20, mem.Uint32: 10, mem.Int64: 5, mem.Uint8: 40} {
		if got := s.open(t, tokens.Options{Window: 10, DType: dtype}, wider).Index().Len(); got != n {
			t.Errorf("%d windows of %s", got, dtype)
		}
	}
}

// llm is a file with llm.c's header.
func llm(n int) []byte {
	h := make([]byte, 1024)
	binary.LittleEndian.PutUint32(h, 20240520)
	binary.LittleEndian.PutUint32(h[4:], 1)
	binary.LittleEndian.PutUint32(h[8:], uint32(n))
	return append(h, upTo(n)...)
}

// A file of another format is not cut into tokens, regardless of its name and of the
// type that is given.
func TestForeignFiles(t *testing.T) {
	s := newShelf(t)
	for what, head := range map[string]string{
		"Parquet": "PAR1\x15\x04", "gzip": "\x1f\x8b\x08\x00\x00\x00", "zstd": "\x28\xb5\x2f\xfd\x04", "HDF5": "\x89HDF\r\n\x1a\n",
		"tar": "a.jpg" + strings.Repeat("\x00", 252) + "ustar", "ZIP": "PK\x03\x04",
	} {
		path := s.put(t, "x.bin", append([]byte(head), make([]byte, 1000)...)[:1000])
		for _, opt := range []tokens.Options{{Window: 1}, {Window: 1, DType: mem.Uint16}} {
			opt.Store = &index.Store{}
			_, err := tokens.Open(context.Background(), source.NewFile(), []string{path}, opt)
			if e := errs.From(err); err == nil || e.Code != errs.Config || !strings.Contains(e.What, what) || !strings.Contains(e.What, "not a file of tokens") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// A header that does not fit the length of its file is read as tokens.
func TestAlmostAHeader(t *testing.T) {
	s := newShelf(t)
	if n := s.open(t, tokens.Options{Window: 1}, s.put(t, "a.bin", llm(9))).Index().Len(); n != 9 {
		t.Errorf("%d tokens", n)
	}
	if n := s.open(t, tokens.Options{Window: 1}, s.put(t, "b.bin", llm(9)[:1024+16])).Index().Len(); n != 512+8 {
		t.Errorf("%d tokens", n)
	}
}

func TestFields(t *testing.T) {
	s := newShelf(t)
	path := s.put(t, "a.bin", upTo(9))
	d := s.open(t, tokens.Options{Window: 3}, path)
	stagetest.Must(t, d.Check([]string{"x;tokens"}))
	if e := errs.From(d.Check([]string{"text"})); e.Code != errs.Config || !strings.Contains(e.What, `"tokens"`) || e.Where.Shard != path {
		t.Errorf("%v", e)
	}
	if _, ok := d.Type("text"); ok || d.Size(0, "text") != -1 {
		t.Error("a field that is not there has a type")
	}
}

func TestStaleness(t *testing.T) {
	s := newShelf(t)
	paths := []string{s.put(t, "a.bin", upTo(30)), s.put(t, "b.bin", upTo(9))}
	opt := tokens.Options{Documents: true, EOS: at(110)}
	old := s.open(t, opt, paths...)
	faulty := stagetest.WithFaults(s.src)
	opt.Store = s.store
	again, err := tokens.Open(ctx, faulty, paths, opt)
	stagetest.Must(t, err)
	defer again.Close()
	if faulty.Reads() != 0 || again.Index().Digest() != old.Index().Digest() {
		t.Errorf("%d reads of what is indexed", faulty.Reads())
	}
	s.put(t, "a.bin", upTo(31))
	if err := stagetest.Read(old, s.src, 0, nil, &format.Sample{}); errs.CodeOf(err) != errs.Changed {
		t.Errorf("%v", err)
	}
	if d := s.open(t, opt, paths...); d.Tokens() != 40 || d.Index().Digest() == old.Index().Digest() {
		t.Errorf("%d tokens", d.Tokens())
	}
}

func TestSniff(t *testing.T) {
	for name, want := range map[string]bool{"a.bin": true, "A.BIN": true, "a.idx": false, "a.npy": false, "a": false} {
		if tokens.Sniff(name, upTo(10)) != want {
			t.Error(name)
		}
	}
	if !tokens.Sniff("a.idx", []byte("MMIDIDX\x00\x00\x01\x00\x00\x00")) {
		t.Error("Megatron's index is not known")
	}
}

func BenchmarkWindow(b *testing.B) {
	dir := b.TempDir()
	src := source.NewFile()
	defer src.Close()
	var paths []string
	for i := range 10 {
		paths = append(paths, fmt.Sprintf("%s/%d.bin", dir, i))
		stagetest.Put(b, paths[i], nil)
		stagetest.Must(b, os.Truncate(paths[i], 200<<20))
	}
	d, err := tokens.Open(ctx, src, paths, tokens.Options{Window: 2048, Next: true, Random: 1 << 20, Store: &index.Store{}})
	stagetest.Must(b, err)
	defer d.Close()
	var s format.Sample
	dst := make([]format.Extent, 0, 1)
	raw := [][]byte{make([]byte, 2*2049)}
	id := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		dst = d.Extents(id&(1<<20-1), nil, dst[:0])
		stagetest.Must(b, d.Parse(id&(1<<20-1), nil, raw, &s))
		id++
	}
}
