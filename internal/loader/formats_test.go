package loader

import (
	"bytes"
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
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

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
func looseRows(b *Batch, c batch.Column) (rows [][]byte) {
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
	c, err := dataset.Open(context.Background(), Spec{Dataset: d}, dataset.Options{Stored: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := format.NewReader(c.Dataset(), c.Source())
	for _, name := range c.Dataset().Index().Meta().Fields {
		good := true
		for id := range c.Len() {
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
		if name == "mds" || strings.HasPrefix(name, "parquet") { // have columns that cannot be read, or nulls
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

// Formats that cannot be recognized, and keys that a format does not use.
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
		"the options do not say what a sample is":                        {Path: all["tokens windows"].Path},
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
