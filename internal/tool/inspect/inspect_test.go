package inspect

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/loader"
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
		paths  []string
		report Report
		want   []string
	}{
		{
			[]string{`a "b"\c`},
			Report{Format: "folder"},
			[]string{`stoker.ImageFolder("a \"b\"\\c", transform=T.Compose(`, "shuffle=True", "for images, labels in loader:"},
		},
		{
			[]string{"x.tar", "y.tar"},
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
			[]string{"x.tar"},
			Report{Format: "tar", Checked: 1, Fields: []Field{{Name: "txt", Kind: "text", Present: 1}}},
			[]string{`stoker.WebDataset("x.tar")`, `.to_tuple("txt")` + "\n", "for texts, in loader:"},
		},
	} {
		got := pythonLines(loader.Dataset{Path: c.paths}, &c.report)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
	}
}
