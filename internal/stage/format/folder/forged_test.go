package folder

import (
	"context"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/index"
)

// An index may come with the data, from anyone: one without a sample, or whose columns
// do not fit together, is refused.
func TestForgedIndex(t *testing.T) {
	type said struct {
		samples int64
		files   []string
		class   []int32
		classes int
		mtimes  int
		folders int
	}
	for name, c := range map[string]struct {
		said
		ok bool
	}{
		"true":                 {said{2, []string{"a/1.jpg", "b/1.jpg"}, []int32{0, 1}, 2, 2, 2}, true},
		"no sample":            {said{0, nil, nil, 1, 0, 2}, false},
		"more samples":         {said{3, []string{"a/1.jpg", "b/1.jpg"}, []int32{0, 1}, 2, 2, 2}, false},
		"a class too few":      {said{2, []string{"a/1.jpg", "b/1.jpg"}, []int32{0}, 2, 2, 2}, false},
		"a class of nobody":    {said{2, []string{"a/1.jpg", "b/1.jpg"}, []int32{0, 2}, 2, 2, 2}, false},
		"a class below zero":   {said{2, []string{"a/1.jpg", "b/1.jpg"}, []int32{0, -1}, 2, 2, 2}, false},
		"a folder's time less": {said{2, []string{"a/1.jpg", "b/1.jpg"}, []int32{0, 1}, 2, 2, 1}, false},
	} {
		x, err := index.Store{}.Load(context.Background(), index.Plan{
			Key: index.Key{Format: "folder"},
			Build: func(_ context.Context, _ *index.Index, b *index.Builder) error {
				var files, classes, folders index.Texts
				for _, f := range c.files {
					files.AppendString(f)
				}
				b.Meta.Root = "/d"
				b.Strings(index.FileName, &files, index.Identity)
				b.Int64s(index.FileSize, make([]int64, len(c.files)), index.Identity)
				b.Int64s(index.FileMTime, make([]int64, c.mtimes), index.Aside)
				for i := range c.classes {
					classes.AppendString(string(rune('a' + i)))
				}
				for i := range 2 {
					folders.AppendString(string(rune('a' + i)))
				}
				b.Meta.Samples = c.samples
				b.Int32s(index.SampleClass, c.class, index.Identity)
				b.Strings(index.ClassName, &classes, index.Identity)
				b.Strings(dirName, &folders, index.Aside)
				b.Int64s(dirMTime, make([]int64, c.folders), index.Aside)
				return nil
			},
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if ok := valid(x); ok != c.ok {
			t.Errorf("%s: accepted %v, want %v", name, ok, c.ok)
		}
		_ = x.Close()
	}
}
