package lmdb_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/lmdb"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

var ctx = context.Background()

const fixtures = "../../../../testdata/lmdb/"

// fixture is an environment that the real library wrote.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	return stagetest.Unzipped(t, fixtures+name+".mdb.gz")
}

const here = "mem://x.mdb"

// try opens bytes as an environment.
func try(data []byte, opt lmdb.Options) (*lmdb.Dataset, error) {
	opt.Store = &index.Store{}
	return lmdb.Open(ctx, stagetest.Memory{here: data}, []string{here}, opt)
}

func open(t *testing.T, data []byte, opt lmdb.Options) *lmdb.Dataset {
	t.Helper()
	d, err := try(data, opt)
	stagetest.Must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// sum reads everything, as make.py sums what LMDB reads.
func sum(d *lmdb.Dataset, src source.Source) (digest string, keys []string, err error) {
	h := sha256.New()
	for id := range d.Index().Len() {
		var s format.Sample
		if err := stagetest.Read(d, src, id, []string{lmdb.Key, lmdb.Value}, &s); err != nil {
			return "", nil, err
		}
		k, v := s.Fields[0].Data, s.Fields[1].Data
		fmt.Fprintf(h, "%d %s %d %s", len(k), k, len(v), v)
		keys = append(keys, string(k[:min(len(k), 16)]))
	}
	return hex.EncodeToString(h.Sum(nil)), keys, nil
}

// want is what make.py says of one fixture.
type want struct {
	Database    string
	Keys, Page  int
	First, Last []string
	SHA256      string
}

func wanted(t *testing.T) map[string]want {
	t.Helper()
	raw, err := os.ReadFile(fixtures + "want.json")
	stagetest.Must(t, err)
	var all map[string]want
	stagetest.Must(t, json.Unmarshal(raw, &all))
	return all
}

// What LMDB wrote is read as LMDB reads it: every key, every byte, in its order.
func TestAsLMDBReads(t *testing.T) {
	all := wanted(t)
	if len(all) < 14 {
		t.Fatalf("%d fixtures", len(all))
	}
	for name, w := range all {
		if w.Keys == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			data := fixture(t, name)
			d := open(t, data, lmdb.Options{Database: w.Database, Values: lmdb.Raw})
			digest, keys, err := sum(d, stagetest.Memory{here: data})
			stagetest.Must(t, err)
			if len(keys) != w.Keys || digest != w.SHA256 {
				t.Errorf("%d keys with the sum %s, want %d with %s", len(keys), digest, w.Keys, w.SHA256)
			}
			if diff := cmp.Diff([][]string{w.First, w.Last}, [][]string{keys[:4], keys[len(keys)-2:]}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConformance(t *testing.T) {
	for name, database := range map[string]string{
		"small": "", "mixed": "", "integer": "", "only": "", "named": "train", "reverse": "", "pages16k": "",
		"datum_raw": "", "datum_encoded": "", "datum_float": "",
	} {
		t.Run(name, func(t *testing.T) {
			data := fixture(t, name)
			d := open(t, data, lmdb.Options{Database: database})
			stagetest.Dataset(t, d, stagetest.Memory{here: data})
			if name != "datum_float" { // whose floats may have to be put together
				stagetest.NoHeap(t, d, stagetest.Memory{here: data}, d.Index().Meta().Fields)
			}
			if v, ok := d.Type("nothing"); ok {
				t.Errorf("nothing is %v", v)
			}
		})
	}
}

// A folder, a file in it, and the environment as a file give the same data.
func TestPlaces(t *testing.T) {
	src := source.NewFile()
	defer src.Close()
	dir := t.TempDir()
	data := fixture(t, "mixed")
	stagetest.Must(t, os.Mkdir(dir+"/env", 0o755))
	past := time.Now().Add(-time.Hour)
	for _, p := range []string{"/env/data.mdb", "/single.lmdb"} {
		stagetest.Must(t, os.WriteFile(dir+p, data, 0o644))
		stagetest.Must(t, os.Chtimes(dir+p, past, past))
	}
	store := &index.Store{Dir: dir + "/cache"}
	var sums []string
	for _, paths := range [][]string{{dir + "/env"}, {dir + "/env/data.mdb"}, {dir + "/single.lmdb"}, {dir + "/env"}} {
		built := false
		d, err := lmdb.Open(ctx, src, paths, lmdb.Options{Store: store, Progress: func(int64, int64, string) { built = true }})
		stagetest.Must(t, err)
		s, _, err := sum(d, src)
		stagetest.Must(t, err)
		sums = append(sums, s)
		stagetest.Must(t, d.Close())
		if len(sums) == 4 && built {
			t.Error("an index that holds was built again")
		}
	}
	for _, s := range sums {
		if s != sums[0] {
			t.Errorf("sums differ: %v", sums)
		}
	}
	both, err := lmdb.Open(ctx, src, []string{dir + "/env", dir + "/single.lmdb"}, lmdb.Options{Store: store})
	stagetest.Must(t, err)
	defer both.Close()
	stagetest.Dataset(t, both, src)
	if n := both.Index().Len(); n != 2*211 {
		t.Errorf("%d samples of two environments", n)
	}
	_, err = lmdb.Open(ctx, src, []string{dir + "/nothing"}, lmdb.Options{Store: store})
	if e := errs.From(err); e.Code != errs.NotFound || e.Where.Shard != dir+"/nothing" {
		t.Errorf("%v at %v", e, e.Where)
	}
	_, err = lmdb.Open(ctx, src, []string{dir}, lmdb.Options{Store: store})
	if e := errs.From(err); e.Code != errs.NotFound || e.Where.Shard != dir+"/data.mdb" {
		t.Errorf("%v at %v", e, e.Where)
	}
}

// An environment that is appended to while it is open, or while it is indexed, is
// detected; opened again, it has what was appended.
func TestChanged(t *testing.T) {
	src := source.NewFile()
	defer src.Close()
	path := filepath.Join(t.TempDir(), "data.mdb")
	small, big := fixture(t, "small"), fixture(t, "mixed")
	past := time.Now().Add(-time.Hour)
	put := func(data []byte) {
		stagetest.Must(t, os.WriteFile(path, data, 0o644))
		stagetest.Must(t, os.Chtimes(path, past, past))
	}
	put(small)
	opt := lmdb.Options{Store: &index.Store{Dir: t.TempDir()}}
	d, err := lmdb.Open(ctx, src, []string{path}, opt)
	stagetest.Must(t, err)
	stagetest.Must(t, stagetest.Read(d, src, 3, nil, &format.Sample{}))
	put(big)
	err = stagetest.Read(d, src, 3, nil, &format.Sample{})
	if errs.CodeOf(err) != errs.Changed {
		t.Errorf("read after a change of size: %v", err)
	}
	stagetest.Must(t, d.Close())
	d, err = lmdb.Open(ctx, src, []string{path}, opt)
	stagetest.Must(t, err)
	if d.Index().Len() != 211 {
		t.Errorf("%d samples after the change", d.Index().Len())
	}
	// A commit that keeps the length of the file changes its time.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	stagetest.Must(t, err)
	_, err = f.WriteAt(big[4096:8192], 4096)
	stagetest.Must(t, err)
	stagetest.Must(t, f.Close())
	err = stagetest.Read(d, src, 3, nil, &format.Sample{})
	if errs.CodeOf(err) != errs.Changed {
		t.Errorf("read after a commit: %v", err)
	}
	stagetest.Must(t, d.Close())

	put(big)
	opt.Progress = func(int64, int64, string) { stagetest.Must(t, os.WriteFile(path, big, 0o644)) }
	opt.Store = &index.Store{}
	_, err = lmdb.Open(ctx, src, []string{path}, opt)
	if e := errs.From(err); e.Code != errs.Changed || e.Where.Shard != path {
		t.Errorf("written to while it is indexed: %v at %v", e, e.Where)
	}
}

func TestDatabases(t *testing.T) {
	for _, c := range []struct {
		name, database string
		code           errs.Code
		what, hint     string
		samples        int64
	}{
		{"named", "", errs.Config, "2 named databases; choose one: train, val", `database="train"`, 0},
		{"named", "trian", errs.Config, `no database "trian"; it has train, val`, `did you mean "train"?`, 0},
		{"small", "train", errs.Config, "the unnamed one only", "leave database out", 0},
		{"named", "train", "", "", "", 40},
		{"only", "", "", "", "", 20},
		{"only", "one", "", "", "", 20},
		{"beside", "", "", "", "", 9},
		{"beside", "more", "", "", "", 1},
		{"dupsort", "d", errs.Unsupported, "several values for a key", "without dupsort", 0},
		{"dupsort", "", errs.Unsupported, "several values for a key", "without dupsort", 0},
		{"empty", "", errs.Empty, "there is no sample", "every key is a sample", 0},
	} {
		d, err := try(fixture(t, c.name), lmdb.Options{Database: c.database})
		if c.code == "" {
			stagetest.Must(t, err)
			if d.Index().Len() != c.samples {
				t.Errorf("%s %q: %d samples", c.name, c.database, d.Index().Len())
			}
			stagetest.Must(t, d.Close())
			continue
		}
		e := errs.From(err)
		if e.Code != c.code || !strings.Contains(e.What, c.what) || !strings.Contains(e.Hint, c.hint) || e.Where.Shard != here {
			t.Errorf("%s %q: %s %q at %v, hint %q", c.name, c.database, e.Code, e.What, e.Where, e.Hint)
		}
	}
}

// Notes like __len__ are not samples, and are counted.
func TestNotes(t *testing.T) {
	d := open(t, fixture(t, "small"), lmdb.Options{})
	if m := d.Index().Meta(); m.Samples != 12 || m.Skipped != 1 {
		t.Errorf("%+v", m)
	}
	if n := d.Size(2, "nothing;value"); n != 30 { // k10
		t.Errorf("%d bytes", n)
	}
}

func TestDatums(t *testing.T) {
	read := func(d *lmdb.Dataset, data []byte, id int64) []format.Field {
		var s format.Sample
		stagetest.Must(t, stagetest.Read(d, stagetest.Memory{here: data}, id, nil, &s))
		return s.Fields
	}
	data := fixture(t, "datum_raw")
	d := open(t, data, lmdb.Options{})
	f := read(d, data, 13)
	if f[0].Name != "image" || len(f[0].Data) != 60 || f[0].Data[59] != 13*7 || f[1].Name != "label" || f[1].Int != 3 || string(f[2].Data) != "00000013" {
		t.Errorf("%+v", f)
	}
	if got, _ := d.Type("image"); !cmp.Equal(got, format.Type{DType: mem.Uint8, Shape: mem.Shape{3, 4, 5}}) || d.Size(0, "image") != 60 {
		t.Errorf("%+v", got)
	}
	data = fixture(t, "datum_encoded")
	d = open(t, data, lmdb.Options{})
	f = read(d, data, 5)
	if len(f[0].Data) != 905 || string(f[0].Data[:2]) != "\xff\xd8" || f[1].Int != -5 {
		t.Errorf("%+v", f)
	}
	if got, _ := d.Type("image"); got.DType != mem.Object {
		t.Errorf("%+v", got)
	}
	data = fixture(t, "datum_float")
	d = open(t, data, lmdb.Options{})
	for id, wantBytes := range map[int64]string{4: "0000804000008440", 5: "0000a0400000a440"} { // 4, 4.125; 5, 5.125
		if f = read(d, data, id); hex.EncodeToString(f[0].Data[:8]) != wantBytes || len(f[0].Data) != 24 {
			t.Errorf("sample %d: %x", id, f[0].Data)
		}
	}
	if got, _ := d.Type("image"); !cmp.Equal(got, format.Type{DType: mem.Float32, Shape: mem.Shape{1, 2, 3}}) {
		t.Errorf("%+v", got)
	}
	_, err := try(fixture(t, "small"), lmdb.Options{Values: lmdb.Datum})
	if e := errs.From(err); e.Code != errs.Damaged || e.Where.Sample.Or(-1) != 0 || !strings.Contains(e.What, `"k0" is not a Datum`) {
		t.Errorf("%v at %v", e, e.Where)
	}
	_, err = try(fixture(t, "small"), lmdb.Options{Values: "x"})
	if errs.CodeOf(err) != errs.Config {
		t.Error(err)
	}
}

func TestCheckAndSniff(t *testing.T) {
	data := fixture(t, "small")
	d := open(t, data, lmdb.Options{})
	stagetest.Must(t, d.Check([]string{"jpg;value", "__key__"}))
	if e := errs.From(d.Check([]string{"valeu"})); e.Code != errs.Config || e.Hint != `did you mean "value"?` {
		t.Errorf("%v | %s", e, e.Hint)
	}
	for name, head := range map[string][]byte{"x": data[:32], "a/Data.MDB": nil, "y.lmdb": {}} {
		if !lmdb.Sniff(name, head) {
			t.Errorf("%s is none", name)
		}
	}
	if lmdb.Sniff("data.mdb", make([]byte, 100)) || lmdb.Sniff("a.tar", nil) {
		t.Error("zeros are one")
	}
}
