package tar_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// An index of more shards, or of fewer, in the place of a dataset's own is not taken for
// it: somebody has renamed it. The dataset is what its shards are.
func TestAnIndexOfOtherShardsBeside(t *testing.T) {
	dir, both := besides(t)
	src := source.NewFile()
	defer src.Close()
	open := func(names ...string) *tar.Dataset {
		t.Helper()
		var paths []string
		for _, n := range names {
			paths = append(paths, filepath.Join(dir, n))
		}
		d, err := tar.Open(ctx, src, paths, tar.Options{Store: &index.Store{Dir: t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open("a.tar")
	one, err := format.WriteBeside(ctx, src, d.Index())
	d.Close()
	if err != nil || one == both {
		t.Fatalf("%q %q %v", one, both, err)
	}
	of := map[string][]byte{}
	for _, at := range []string{one, both} {
		if of[at], err = os.ReadFile(at); err != nil {
			t.Fatal(err)
		}
	}
	for at, of := range map[string][]byte{one: of[both], both: of[one]} {
		if err := os.WriteFile(at, of, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n, names := range map[int64][]string{2: {"a.tar"}, 4: {"a.tar", "b.tar"}} {
		d := open(names...)
		if d.Index().Len() != n || d.Index().Files() != len(names) {
			t.Errorf("%v have %d samples in %d files, and their index says so of %d", names, n, len(names), d.Index().Len())
		}
		d.Close()
	}
}
