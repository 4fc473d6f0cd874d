package format_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// An index is built once, and again after each thing that makes it stale: a file with
// another time, a damaged index, another option.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.bin")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	src := source.NewFile()
	builds, sound := 0, true
	plan := format.Plan{
		Format: "toy", Paths: []string{path}, Store: &index.Store{Dir: filepath.Join(dir, "cache")},
		Valid: func(*index.Index) bool { return sound },
		Build: func(ctx context.Context, _ *index.Index, b *index.Builder) error {
			builds++
			obj, err := src.Stat(ctx, path)
			if err != nil {
				return err
			}
			var names index.Texts
			names.AppendString(filepath.Base(path))
			b.Meta.Root, b.Meta.Samples = dir, 1
			b.Strings(index.FileName, &names, index.Identity)
			b.Int64s(index.FileSize, []int64{obj.Size}, index.Identity)
			b.Versions([]string{obj.Version})
			return nil
		},
	}
	load := func(what string, want int) {
		t.Helper()
		x, err := format.Load(t.Context(), src, plan)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		_ = x.Close()
		if builds != want {
			t.Errorf("%s: built %d times, want %d", what, builds, want)
		}
	}
	load("first", 1)
	load("again", 1)
	if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	load("a file that was touched", 2)
	plan.Options = "other"
	load("other options", 3)
	plan.Options, sound = "", false
	load("an index that is not sound", 4)
	sound = true
	load("again", 4)
	plan.Fresh = func(*index.Index) bool { return false }
	load("a format's own check", 5)
}
