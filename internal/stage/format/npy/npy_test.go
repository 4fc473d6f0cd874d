package npy_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
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

func (s shelf) try(paths ...string) (*npy.Dataset, error) {
	return npy.Open(ctx, s.src, paths, npy.Options{Store: s.store})
}

func (s shelf) open(t *testing.T, paths ...string) *npy.Dataset {
	t.Helper()
	d, err := s.try(paths...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func (s shelf) fields(t *testing.T, fields ...npy.Field) *npy.Dataset {
	t.Helper()
	d, err := npy.Open(ctx, s.src, nil, npy.Options{Store: s.store, Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// rows is all of one field.
func rows(t stagetest.TB, d *npy.Dataset, src source.Source, field string) (out []string) {
	t.Helper()
	var s format.Sample
	for id := range d.Index().Len() {
		stagetest.Must(t, stagetest.Read(d, src, id, []string{field}, &s))
		if int64(len(s.Fields[0].Data)) != d.Size(id, field) {
			t.Fatalf("sample %d has %d bytes, and Size says %d", id, len(s.Fields[0].Data), d.Size(id, field))
		}
		out = append(out, string(s.Fields[0].Data))
	}
	return out
}

// What NumPy writes and reads back; see testdata/npy/make.py.
func TestLikeNumPy(t *testing.T) {
	data, err := os.ReadFile("../../../../testdata/npy/golden.json")
	stagetest.Must(t, err)
	var golden map[string]struct {
		Paths  []string
		Fields []struct {
			Name, DType string
			Shape       []int
			Rows        []string
		}
		Code errs.Code
		What string
	}
	stagetest.Must(t, json.Unmarshal(data, &golden))
	if len(golden) < 40 {
		t.Fatalf("only %d cases", len(golden))
	}
	for name, c := range golden {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			for i, p := range c.Paths {
				data, err := os.ReadFile("../../../../testdata/npy/" + p)
				stagetest.Must(t, err)
				c.Paths[i] = s.put(t, p, data)
			}
			if c.Code != "" {
				_, err := s.try(c.Paths...)
				e := errs.From(err)
				if err == nil || e.Code != c.Code || !strings.Contains(e.What, c.What) || e.Where.Shard != c.Paths[0] || e.Hint == "" {
					t.Errorf("%s: %v | %s", e.Code, e, e.Hint)
				}
				return
			}
			d := s.open(t, c.Paths...)
			for i, f := range c.Fields {
				typ, ok := d.Type(f.Name)
				if !ok || typ.DType.String() != f.DType || !slices.Equal(typ.Shape, mem.Shape(f.Shape)) || typ.Shape == nil || typ.Ragged {
					t.Errorf("%s is %v", f.Name, typ)
				}
				if d.Index().Meta().Fields[i] != f.Name {
					t.Errorf("fields %v", d.Index().Meta().Fields)
				}
				got := rows(t, d, s.src, f.Name)
				for i := range got {
					got[i] = hex.EncodeToString([]byte(got[i]))
				}
				if !slices.Equal(got, f.Rows) {
					t.Errorf("%s: got %q, want %q", f.Name, got, f.Rows)
				}
			}
			stagetest.Dataset(t, d, s.src)
			stagetest.NoHeap(t, d, s.src, nil)
			stagetest.NoHeap(t, d, s.src, []string{"x;" + c.Fields[0].Name, c.Fields[0].Name})
		})
	}
}
