package tree_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5/tree"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

const fixtures = "../../../../../testdata/hdf5/"

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	return stagetest.Unzipped(t, fixtures+name+".h5.gz")
}

func open(data []byte) (*tree.File, error) {
	return tree.Open(context.Background(), stagetest.Bytes(data), source.Info{Name: "x.h5", Size: int64(len(data)), Version: "1"})
}

func items(t *testing.T, data []byte) (*tree.File, map[string]tree.Item) {
	t.Helper()
	f, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.Items(true)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]tree.Item)
	for _, i := range list {
		out[i.Path] = i
	}
	return f, out
}

// place is what the HDF5 library tells of one dataset.
type place struct {
	Shape  []int64
	Chunk  []int64
	Chunks int
	Places string
	Offset *int64
}

// Every dataset, its dimensions and the place of every chunk are what the HDF5
// library says.
func TestAsLibrary(t *testing.T) {
	want := make(map[string]map[string]place)
	for _, name := range []string{"want.json", "want_2.json"} { // HDF5 1.14's and 2.0's
		raw, err := os.ReadFile(fixtures + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for name, datasets := range want {
		t.Run(name, func(t *testing.T) {
			f, have := items(t, fixture(t, name))
			for path, w := range datasets {
				seen++
				item := have[path]
				d := item.Dataset
				if d == nil {
					t.Errorf("%s is missing", path)
					continue
				}
				if !slices.Equal(d.Dims, w.Shape) || !slices.Equal(d.Layout.Chunk, w.Chunk) {
					t.Errorf("%s: %v in chunks of %v, want %v in %v", path, d.Dims, d.Layout.Chunk, w.Shape, w.Chunk)
					continue
				}
				if w.Offset != nil && *w.Offset != d.Layout.Off {
					t.Errorf("%s is at %d, want %d", path, d.Layout.Off, *w.Offset)
				}
				if w.Places == "" { // contiguous; or the library does not know
					continue
				}
				chunks, err := f.Chunks(d)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					continue
				}
				if n, sum := sumOf(d, chunks); n != w.Chunks || sum != w.Places {
					t.Errorf("%s: %d chunks %s, want %d %s", path, n, sum, w.Chunks, w.Places)
				}
			}
		})
	}
	if seen < 170 {
		t.Errorf("%d datasets only", seen)
	}
}

// sumOf is make.py's sum of the places of chunks.
func sumOf(d *tree.Dataset, chunks []tree.Chunk) (n int, sum string) {
	h := sha256.New()
	grid := d.Grid()
	for no, c := range chunks {
		if c.Off < 0 {
			continue
		}
		n++
		at := make([]string, len(grid))
		rest := int64(no)
		for i := len(grid) - 1; i >= 0; i-- {
			at[i] = fmt.Sprint(rest % grid[i] * d.Layout.Chunk[i])
			rest /= grid[i]
		}
		fmt.Fprintf(h, "%s %d %d %d\n", strings.Join(at, ","), c.Off, c.Size, c.Mask)
	}
	return n, hex.EncodeToString(h.Sum(nil))
}

func TestItems(t *testing.T) {
	for _, name := range []string{"groups", "groups_latest", "groups_ordered"} {
		_, have := items(t, fixture(t, name))
		for path, target := range map[string]string{
			"soft": "train/x", "train/relative": "train/y", "dangling": "nowhere", "outside": "other.h5:/x",
		} {
			if i := have[path]; i.Target != target || i.Outside != (path == "outside") || i.Dataset != nil {
				t.Errorf("%s: %s leads to %q (outside: %v)", name, path, i.Target, i.Outside)
			}
		}
		if one, again := have["again"], have["val/x"]; one.Again || !again.Again || again.Same != "again" || again.Dataset == nil || again.Dataset != one.Dataset {
			t.Errorf("%s: two names of one dataset: %+v, %+v", name, one, again)
		}
		if loop := have["val/loop"]; !loop.Group || !loop.Again || loop.Same != "" {
			t.Errorf("%s: a second name of the root: %+v", name, loop)
		}
		if !have["many"].Group || have["many/059"].Dataset == nil || have["again"].Dataset == nil {
			t.Errorf("%s: %+v", name, have["many"])
		}
		if a := have["many"].Attributes; len(a) != 60 || a[59].Name != "attribute 59" || a[59].Value != "88.5" || a[59].Type != "float64" {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestAttributes(t *testing.T) {
	for _, name := range []string{"plain", "userblock"} {
		_, have := items(t, fixture(t, name))
		want := []tree.Attribute{
			{"classes", "string of 4 bytes", []int64{2}, `["cat" "doge"]`},
			{"count", "int64", nil, "24"},
			{"flag", "bool", nil, "true"},
			{"mean", "float32", []int64{3}, "[0.5 0.25 0.125]"},
			{"title", "string", nil, `"photos of coffee"`},
		}
		if diff := cmp.Diff(want, have[""].Attributes); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if a := have["images"].Attributes; len(a) != 1 || a[0].Value != `"8 bit"` {
			t.Errorf("%s: %v", name, a)
		}
	}
}

func TestTypes(t *testing.T) {
	for _, name := range []string{"types", "types_latest"} {
		_, have := items(t, fixture(t, name))
		for path, want := range map[string]string{
			"le_u1": "uint8", "le_b": "bool", "le_f2": "float16", "be_f8": "big-endian float64", "fixed": "string of 9 bytes", "strings": "string",
			"jpegs": "variable length of uint8", "tokens": "variable length of int32", "opaque": "opaque of 5 bytes", "arrays": "int16 [2 3]",
			"enum": "enumeration of int16", "of_named": "float64",
		} {
			if got := have[path].Dataset.Type.Name; got != want {
				t.Errorf("%s: %s is %q, want %q", name, path, got, want)
			}
		}
		if i := have["named_type"]; i.Group || i.Dataset != nil || i.Target != "" {
			t.Errorf("%+v", i)
		}
	}
	_, have := items(t, fixture(t, "refused"))
	for path, want := range map[string]string{
		"compound": "compound types are not read", "complex": "compound types are not read", "references": "references are not read",
		"external": "its data is in other files", "virtual": "it is a virtual dataset, whose data is in other datasets",
	} {
		if d := have[path].Dataset; d.Type.Why+d.Why != want || d.Why != "" && d.Hint == "" {
			t.Errorf("%s: %q %q, %q", path, d.Type.Why, d.Why, d.Hint)
		}
	}
	if f := have["zstd"].Dataset.Filters; len(f) != 1 || f[0].Name != "zstd" {
		t.Errorf("%v", f)
	}
}

func TestNoFile(t *testing.T) {
	for name, data := range map[string][]byte{"nothing": nil, "zeros": make([]byte, 5000), "text": []byte(strings.Repeat("\x89HDF", 300))} {
		if _, err := open(data); errs.CodeOf(err) != errs.Damaged {
			t.Errorf("%s: %v", name, err)
		}
	}
}
