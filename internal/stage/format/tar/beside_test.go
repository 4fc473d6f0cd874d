package tar_test

import (
	gotar "archive/tar"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// moved copies a folder of files: new place, new times.
func moved(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	names, err := filepath.Glob(filepath.Join(to, "*.tar"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, n := range names {
		if err := os.Chtimes(n, old, old); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// besides is two shards with an index beside them.
func besides(t *testing.T) (dir, at string) {
	t.Helper()
	dir = t.TempDir()
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"a.tar", "b.tar"} {
		data := archive(t, gotar.FormatUSTAR, members("one-"+name[:1]+".txt="+strings.Repeat(name[:1], 50_000), "two-"+name[:1]+".txt"))
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	src := source.NewFile()
	defer src.Close()
	d := openIn(t, src, dir)
	defer d.Close()
	at, err := format.WriteBeside(ctx, src, d.Index())
	if err != nil {
		t.Fatal(err)
	}
	return dir, at
}

func openIn(t *testing.T, src source.Source, dir string) *tar.Dataset {
	t.Helper()
	d, err := tar.Open(ctx, src, []string{filepath.Join(dir, "a.tar"), filepath.Join(dir, "b.tar")},
		tar.Options{Store: &index.Store{Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// reads counts the reads of the data.
type reads struct {
	source.Source
	times atomic.Int64
}

func (r *reads) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	r.times.Add(1)
	return r.Source.ReadAt(ctx, obj, p, off)
}

func TestAnIndexBesideTheDataTravels(t *testing.T) {
	dir, _ := besides(t)
	to := moved(t, dir)
	src := source.NewFile()
	defer src.Close()
	counted := &reads{Source: src}
	here, there := openIn(t, src, dir), openIn(t, counted, to)
	defer here.Close()
	defer there.Close()
	if n := counted.times.Load(); n > 2*3+2 { // the header of the index, and all of it
		t.Errorf("%d reads: the shards were indexed again", n)
	}
	if here.Index().Digest() != there.Index().Digest() {
		t.Error("the digest changed on the way")
	}
	if got := string(there.Index().AppendPath(1, nil)); got != filepath.Join(to, "b.tar") {
		t.Errorf("the second shard is %s", got)
	}
	var s format.Sample
	r := format.NewReader(there, src)
	for id := range there.Index().Len() {
		if err := r.Read(ctx, id, nil, &s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnIndexBesideOtherDataIsNotUsed(t *testing.T) {
	dir, at := besides(t)
	for name, spoil := range map[string]func(to string){
		"other bytes": func(to string) {
			data := archive(t, gotar.FormatUSTAR, members("one-a.txt="+strings.Repeat("x", 50_000), "new-a.txt"))
			stagetest.Must(t, os.WriteFile(filepath.Join(to, "a.tar"), data, 0o600))
			old := time.Now().Add(-time.Hour)
			stagetest.Must(t, os.Chtimes(filepath.Join(to, "a.tar"), old, old))
		},
		"damaged index": func(to string) {
			rel, err := filepath.Rel(dir, at)
			stagetest.Must(t, err)
			b, err := os.ReadFile(at)
			stagetest.Must(t, err)
			b[len(b)-9] ^= 1
			stagetest.Must(t, os.WriteFile(filepath.Join(to, rel), b, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := moved(t, dir)
			spoil(to)
			src := source.NewFile()
			defer src.Close()
			d := openIn(t, src, to)
			defer d.Close()
			var s format.Sample
			if err := format.NewReader(d, src).Read(ctx, 1, []string{"__key__"}, &s); err != nil {
				t.Fatal(err)
			}
			want := "two-a"
			if name == "other bytes" {
				want = "new-a"
			}
			if got := string(s.Fields[0].Data); got != want {
				t.Errorf("the second sample is %q, not %q", got, want)
			}
		})
	}
}
