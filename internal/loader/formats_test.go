package loader

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

const formatDir = "../stage/format"

// unzipped is a fixture without its .gz, under a name.
func unzipped(t testing.TB, path, name string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(out, body, 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}

// stores are datasets of every format, as their own tools wrote them.
func stores(t testing.TB) map[string]Dataset {
	dir := t.TempDir()
	saveArray(t, dir, "x.npy", mem.Float32, "(7, 3)", random(84, 1))
	saveArray(t, dir, "y.npy", mem.Int64, "(7,)", random(56, 1))
	tokens := filepath.Join(t.TempDir(), "train.bin")
	if err := os.WriteFile(tokens, random(2000, 9), 0o644); err != nil {
		t.Fatal(err)
	}
	eos := int64(7)
	text := filepath.Join(t.TempDir(), "text.jsonl")
	if err := os.WriteFile(text, []byte("{\"a\": 1}\n\n{\"a\": 22, \"b\": \"x\"}\n{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := map[string]Dataset{
		"npy folder":       {Path: Paths{dir}},
		"npy columns":      {Format: "npy", Columns: []Column{{Name: "a", Path: Paths{dir + "/x.npy"}}, {Name: "b", Path: Paths{dir + "/y.npy"}}}},
		"lines":            {Path: Paths{text}, Format: "lines"},
		"mds":              {Path: Paths{formatDir + "/mds/testdata/everything"}},
		"mds zstd":         {Path: Paths{formatDir + "/mds/testdata/zstd"}},
		"parquet kinds":    {Path: Paths{"../../testdata/parquet/kinds.parquet"}},
		"parquet lists":    {Path: Paths{"../../testdata/parquet/lists.parquet"}},
		"parquet label":    {Path: Paths{"../../testdata/parquet/huggingface.parquet"}},
		"lmdb":             {Path: Paths{unzipped(t, "../../testdata/lmdb/pages16k.mdb.gz", "data.mdb")}},
		"lmdb folder":      {Path: Paths{filepath.Dir(unzipped(t, "../../testdata/lmdb/reverse.mdb.gz", "data.mdb"))}, Values: "bytes"},
		"tar":              {Path: Paths{shards(t, 9, 4)}},
		"hdf5":             {Path: Paths{unzipped(t, "../../testdata/hdf5/plain.h5.gz", "plain.h5")}},
		"hdf5 filters":     {Path: Paths{unzipped(t, "../../testdata/hdf5/filters.h5.gz", "filters.h5")}},
		"beton":            {Path: Paths{unzipped(t, formatDir+"/beton/testdata/raw.beton.gz", "raw.beton")}},
		"beton numbers":    {Path: Paths{unzipped(t, formatDir+"/beton/testdata/numbers.beton.gz", "numbers.beton")}},
		"files list":       {Path: Paths{pictures(t, 7) + "/*/*.ppm"}, Label: "folder"},
		"files manifest":   {Manifest: manifest(t)},
		"table":            {Path: Paths{manifest(t)}},
		"tfrecord":         {Path: Paths{"../../testdata/tfrecord/pictures.tfrecord"}},
		"tfrecord raw":     {Path: Paths{"../../testdata/tfrecord/raw.tfrec"}},
		"tfrecord gzip":    {Path: Paths{"../../testdata/tfrecord/pictures.tfrecord.gz"}},
		"tfrecord shards":  {Path: Paths{"../../testdata/tfrecord/pictures-0000{0,1}-of-00002"}},
		"tokens windows":   {Path: Paths{tokens}, DType: "uint16", Window: Window{Length: 32, Next: true, Stride: 5}},
		"tokens random":    {Path: Paths{tokens}, DType: "uint16", Window: Window{Length: 32, Random: 20, Seed: 4}},
		"tokens documents": {Path: Paths{tokens}, DType: "uint8", Window: Window{Documents: true, EOS: &eos}},
	}
	return all
}

// manifest is a table of pictures.
func manifest(t testing.TB) string {
	t.Helper()
	root := pictures(t, 5)
	text := "path,label,score\n"
	for i := range 5 {
		text += fmt.Sprintf("class%d/%06d.ppm,%d,%d.5\n", i*3/5, i, i%3, i)
	}
	path := filepath.Join(root, "train.csv")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// What a loader delivers of arrays and bytes is what the format gives, whatever
// the format, in an order that is shuffled; no field needs a word in the Spec.
func TestEveryFormat(t *testing.T) {
	s := ground(t)
	for name, d := range stores(t) {
		t.Run(name, func(t *testing.T) {
			l := open(t, s, Spec{Dataset: d, Batch: BatchSpec{Size: 3}, Workers: 2, Order: Order{Shuffle: "full"}, Fields: nameFields(t, s, d)})
			if want := strings.Fields(name)[0]; l.Format() != want {
				t.Errorf("it is called %s", l.Format())
			}
			file := source.NewFile()
			defer file.Close()
			r := format.NewReader(l.Dataset(), file)
			seen := map[int64]bool{}
			kinds := map[string]string{}
			for _, f := range l.Fields() {
				kinds[f.Name] = f.DType
			}
			p, err := l.Pass(0, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Cancel()
			for {
				b, err := p.Next(context.Background(), 0)
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				ids := rowsOf(b, b.Columns[len(b.Columns)-2], mem.Int64)
				for _, c := range b.Columns[:len(b.Columns)-2] {
					dtype, _ := mem.ParseDType(kinds[c.Name])
					rows := looseRows(b, c)
					if dtype != mem.Object {
						rows = rowsOf(b, c, dtype)
					}
					for i, row := range rows {
						id := int64(binary.LittleEndian.Uint64(ids[i]))
						seen[id] = true
						var sample format.Sample
						if err := r.Read(context.Background(), id, []string{c.Name}, &sample); err != nil {
							t.Fatal(err)
						}
						if !bytes.Equal(row, sample.Fields[0].Data) {
							t.Fatalf("sample %d, field %s (%s):\n%x, want\n%x", id, c.Name, dtype, row, sample.Fields[0].Data)
						}
					}
				}
				b.Release()
			}
			if int64(len(seen)) != l.Len() || l.Len() < 2 {
				t.Errorf("%d of %d samples", len(seen), l.Len())
			}
		})
	}
}

// looseRows are the rows of a column of bytes.
func looseRows(b *Batch, c wire.Column) (rows [][]byte) {
	at := func(r int) int64 { return c.Data + int64(binary.LittleEndian.Uint64(b.Slot.Mem[c.Off+8*int64(r):])) }
	if c.Data == 0 {
		return nil
	}
	for r := range b.Rows {
		rows = append(rows, b.Slot.Mem[at(r):at(r+1)])
	}
	return rows
}

// nameFields names the fields that every sample of a dataset has, without a word
// on how to decode them.
func nameFields(t testing.TB, s *Shared, d Dataset) (out []Field) {
	t.Helper()
	p, err := openPart(context.Background(), source.NewFile(), d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := source.NewFile()
	defer file.Close()
	defer p.ds.Index().Close()
	r := format.NewReader(p.ds, file)
	for _, name := range p.ds.Index().Meta().Fields {
		good := true
		for id := range p.n {
			var sample format.Sample
			good = good && r.Read(context.Background(), id, []string{name}, &sample) == nil
		}
		if good {
			out = append(out, Field{Name: name})
		}
	}
	return out
}

// Without fields there is something sensible to be had from every format, and it
// goes on from a state.
func TestFieldsOfTheFormat(t *testing.T) {
	s := ground(t)
	for name, d := range stores(t) {
		if name == "mds" || strings.HasPrefix(name, "parquet") { // have columns that can not be read, or nulls
			continue
		}
		t.Run(name, func(t *testing.T) {
			l, other := open(t, s, Spec{Dataset: d, Batch: BatchSpec{Size: 1}}), open(t, s, Spec{Dataset: d, Batch: BatchSpec{Size: 1}})
			whole := walkAll(t, l, 0, 0, 0)
			st := saved(t, l, 0, 1)
			if err := other.Check(st); err != nil {
				t.Fatal(err)
			}
			if int64(len(whole)) != l.Len() || !slices.Equal(texts(walkAll(t, other, 0, 1, 1)), texts(whole)[1:]) {
				t.Errorf("%d batches; from step 1: another stream", len(whole))
			}
		})
	}
}

// Formats that can not be told, and keys that a format has no use for.
func TestFormatsThatCanNotBe(t *testing.T) {
	all := stores(t)
	both := t.TempDir()
	saveArray(t, both, "x.npy", mem.Float32, "(7, 3)", random(84, 1))
	writeTar(t, filepath.Join(both, "x.tar"), []member{{"a.txt", []byte("x")}})
	text := filepath.Join(t.TempDir(), "x.xyz")
	if err := os.WriteFile(text, []byte("?"), 0o644); err != nil {
		t.Fatal(err)
	}
	npyDir := all["npy folder"].Path[0]
	for says, d := range map[string]Dataset{
		"is not clear: it holds x.npy (npy), x.tar (tar)": {Path: Paths{both}},
		"The format": {Path: Paths{text}, Format: "unheard"},
		"the format of " + text + " is not known":                        {Path: Paths{text}},
		"dataset.window is of tokens datasets, and this is npy":          {Path: Paths{npyDir}, Window: Window{Length: 4}},
		"dataset.label is of":                                            {Path: Paths{npyDir}, Label: "x"},
		"dataset.columns is of npy, npz, hdf5 datasets, and this is mds": {Path: all["mds"].Path, Columns: []Column{{Name: "x"}}},
		"dataset.extensions is of":                                       {Path: all["lmdb"].Path, Extensions: []string{"x"}},
		"dataset.samples is of synthetic":                                {Path: all["lmdb"].Path, Samples: 3},
		"a mds dataset has one root":                                     {Path: Paths{npyDir, npyDir}, Format: "mds"},
		"it is not said what a sample is":                                {Path: all["tokens windows"].Path},
		fmt.Sprintf("%s/x.npy is npy, and %s/x.tar is tar", both, both):  {Path: Paths{both + "/x.npy", both + "/x.tar"}},
	} {
		_, err := Open(context.Background(), ground(t), Spec{Dataset: d}, Options{})
		if errs.CodeOf(err) != errs.Config || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(strings.TrimPrefix(says, "The "))) {
			t.Errorf("%+v: %v, want %q", d, err, says)
		}
	}
}

// Two formats mixed, each with its own fields, into columns that are alike.
func TestMixturesOfFormats(t *testing.T) {
	s := ground(t)
	all := stores(t)
	dir := t.TempDir()
	saveArray(t, dir, "w.npy", mem.Int32, "(40, 33)", random(40*33*4, 2))
	a, b := all["tokens windows"], Dataset{Path: Paths{dir}}
	a.Fields = []Field{{Name: "tokens", DType: "int64"}}
	b.Fields = []Field{{Name: "tokens", From: "w", DType: "int64"}}
	l := open(t, s, Spec{Dataset: Dataset{Mixed: []Dataset{a, b}}, Batch: BatchSpec{Size: 5}, Mix: Mix{Stop: "all_exhausted"}})
	if l.Format() != "tokens, npy" {
		t.Error(l.Format())
	}
	if got := slices.Collect(maps.Keys(arrays(t, l))); int64(len(got)) != l.Len() {
		t.Errorf("%d of %d samples", len(got), l.Len())
	}
}
