package format_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The index of a folder's files is taken where they are what it says, and not
// where it names files outside of the folder.
func TestBesideInAFolder(t *testing.T) {
	ctx, top := context.Background(), t.TempDir()
	root := filepath.Join(top, "data")
	for _, path := range []string{root + "/in", top + "/out"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("four"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src := source.NewFile()
	defer src.Close()
	key := index.Key{Format: "mds", Paths: []string{root}}
	for name, ok := range map[string]bool{"in": true, "../out": false, "../data/in": false, "lost": false} {
		_, prints, err := format.Fingerprints(ctx, src, []string{root + "/in"})
		if err != nil {
			t.Fatal(err)
		}
		store := index.Store{Dir: t.TempDir()}
		x, err := store.Load(ctx, index.Plan{Key: key, Fresh: func(*index.Index) bool { return true }, Build: func(_ context.Context, _ *index.Index, b *index.Builder) error {
			var names index.Texts
			names.AppendString(name)
			b.Meta.Root, b.Meta.Samples = root, 1
			b.Strings(index.FileName, &names, index.Identity)
			b.Int64s(index.FileSize, []int64{4}, index.Identity)
			b.Int64s(index.FilePrint, prints, index.Aside)
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, got := format.BesideIn(ctx, src, key).Stamp(x); got != ok {
			t.Errorf("an index of %s is taken: %v", name, got)
		}
		_ = x.Close()
	}
}

// Files of two hosts or buckets share a scheme, which is not a folder: nothing is asked of
// a host named like the folder of indexes.
func TestNothingIsBesideFilesOfTwoHosts(t *testing.T) {
	for _, c := range []struct {
		paths []string
		where string // before the name of the index
	}{
		{[]string{"https://a/x/1.tar", "https://a/x/2.tar"}, "https://a/x/.stoker/"},
		{[]string{"https://a/1.tar", "https://a/x/2.tar"}, "https://a/.stoker/"},
		{[]string{"https://a/1.tar", "https://b/2.tar"}, ""},
		{[]string{"https://a:1/1.tar", "https://a:2/2.tar"}, ""},
		{[]string{"s3://a/1.tar", "s3://b/2.tar"}, ""},
		{[]string{"s3://a//1.tar", "s3://a//2.tar"}, "s3://a//.stoker/"},
		{[]string{"hf://datasets/o/a/x/1.tar", "hf://datasets/o/a/2.tar"}, "hf://datasets/o/a/.stoker/"},
		{[]string{"hf://datasets/o/a/1.tar", "hf://datasets/o/b/1.tar"}, ""},
		{[]string{"/a/1.tar", "/b/2.tar"}, "/.stoker/"},
	} {
		got := format.Beside(t.Context(), nil, index.Key{Format: "tar", Paths: c.paths}).Path
		if folder := got[:strings.LastIndexByte(got, '/')+1]; folder != c.where {
			t.Errorf("the index of %v would be %q, not in %q", c.paths, got, c.where)
		}
	}
}
