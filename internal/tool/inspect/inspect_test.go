package inspect

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
)

// The choice of samples is sorted, has no sample twice, and is the same every
// time; everything that is asked for is there.
func TestChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 3000).Draw(t, "n")
		c := Config{Check: rapid.Int64Range(-1, 4000).Draw(t, "check"), All: rapid.Bool().Draw(t, "all")}
		ids := c.choice(n)
		want := c.Check
		if want == 0 {
			want = DefaultCheck
		}
		want = max(0, min(want, n))
		if c.All {
			want = n
		}
		if int64(len(ids)) != want || !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Fatalf("%d samples of %d: %v", len(ids), n, ids)
		}
		if len(ids) > 0 && (ids[0] < 0 || ids[len(ids)-1] >= n) {
			t.Fatalf("samples outside of the dataset: %v", ids)
		}
		if !slices.Equal(ids, c.choice(n)) {
			t.Fatal("another choice the second time")
		}
	})
}

func TestPythonLines(t *testing.T) {
	for _, c := range []struct {
		dataset spec.Dataset
		report  Report
		want    []string
	}{
		{
			spec.Dataset{Path: spec.Paths{`a "b"\c`}},
			Report{Format: "folder"},
			[]string{`stoker.ImageFolder("a \"b\"\\c", transform=T.Compose(`, "shuffle=True", "for images, labels in loader:"},
		},
		{
			spec.Dataset{Path: spec.Paths{"x.tar", "y.tar"}},
			Report{Format: "tar", Checked: 4, Fields: []Field{
				{Name: "jpg", Kind: "image", Present: 3},
				{Name: "png", Kind: "image", Present: 1},
				{Name: "cls", Kind: "number", Present: 4},
				{Name: "txt", Kind: "text", Present: 2},
				{Name: "npy", Kind: "bytes", Present: 4},
			}},
			[]string{
				`stoker.WebDataset(["x.tar", "y.tar"])`, `.to_tuple("jpg;png", "cls", "npy")`,
				"RandomHorizontalFlip()]), None, None)", "for images, labels, rest2 in loader:",
			},
		},
		{
			spec.Dataset{Path: spec.Paths{"x.tar"}},
			Report{Format: "tar", Checked: 1, Fields: []Field{{Name: "txt", Kind: "text", Present: 1}}},
			[]string{`stoker.WebDataset("x.tar")`, `.to_tuple("txt")` + "\n", "for texts, in loader:"},
		},
		{
			spec.Dataset{Path: spec.Paths{"images.npy", "label.npy"}},
			Report{Format: "npy", delivered: []dataset.Column{{Name: "images"}, {Name: "label"}}},
			[]string{`stoker.NpyDataset("images.npy", "label.npy")`, "shuffle=True", "for rest0, labels in loader:"},
		},
		{
			spec.Dataset{Path: spec.Paths{"x-0.npy", "x-1.npy"}},
			Report{Format: "npy", delivered: []dataset.Column{{Name: "x"}}},
			[]string{`stoker.NpyDataset(x=["x-0.npy", "x-1.npy"])`, "for rest0 in loader:"},
		},
		{
			spec.Dataset{Path: spec.Paths{"a.npz"}, Columns: []spec.Column{{Name: "x"}, {Name: "y", From: "labels"}}},
			Report{Format: "npy", first: "a.NPZ", delivered: []dataset.Column{{Name: "x"}, {Name: "y"}}},
			[]string{`stoker.NpyDataset("a.npz", fields=["x", stoker.Field("y", source="labels")])`, "for batch in loader:"},
		},
		{
			spec.Dataset{Path: spec.Paths{"a.h5"}, Group: "train", Columns: []spec.Column{{Name: "images"}}},
			Report{Format: "hdf5", delivered: []dataset.Column{{Name: "images", Kind: "array"}}},
			[]string{`stoker.HDF5Dataset("a.h5", group="train", columns=["images"])`, "for batch in loader:"},
		},
		{
			spec.Dataset{Path: spec.Paths{"lmdb"}, Database: "train", Values: "datum"},
			Report{Format: "lmdb", delivered: []dataset.Column{{Name: "image", Kind: "image"}, {Name: "label"}}},
			[]string{`stoker.LMDBDataset("lmdb", database="train", values="datum", fields=[stoker.Field("image", transform=T.Compose(`, `), "label"])`, "import transforms as T"},
		},
		{
			spec.Dataset{Path: spec.Paths{"t.csv"}, Label: "kind"},
			Report{Format: "table", delivered: []dataset.Column{{Name: "label"}, {Name: "score"}}},
			[]string{`stoker.Table("t.csv", label="kind")`, "for labels, rest1 in loader:"},
		},
		{
			spec.Dataset{Manifest: "t.csv", Root: "pictures"},
			Report{Format: "files", stored: []string{"image", "label", "filename"}},
			[]string{`stoker.Table("t.csv", path="filename", label="label", root="pictures", transform=`, "for images, labels in loader:"},
		},
		{
			spec.Dataset{Path: spec.Paths{"*/*.jpg"}, Label: "folder"},
			Report{Format: "files"},
			[]string{`stoker.files("*/*.jpg", transform=`, "for images, labels in loader:"},
		},
		{
			spec.Dataset{Path: spec.Paths{"train.bin"}, DType: "uint16", Window: spec.Window{Length: 1024, Stride: 512}},
			Report{Format: "tokens"},
			[]string{`stoker.TokenDataset("train.bin", 1024, stride=512, dtype="uint16")`, "for x, y in loader:"},
		},
		{
			spec.Dataset{Path: spec.Paths{"a.jsonl"}},
			Report{Format: "lines"},
			[]string{`stoker.LinesDataset("a.jsonl")`, "for batch in loader:"},
		},
	} {
		all := dataset.Formats()
		kind := all[slices.IndexFunc(all, func(f dataset.Format) bool { return f.Name == c.report.Format })]
		got := pythonLines(c.dataset, kind, &c.report)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
	}
}
