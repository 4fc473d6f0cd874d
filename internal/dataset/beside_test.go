package dataset

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest/fixture"
)

// readCount counts the reads of stored files.
type readCount struct {
	source.Source
	n *atomic.Int64
}

func (c readCount) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	c.n.Add(1)
	return c.Source.ReadAt(ctx, obj, p, off)
}

// Head looks at what kind of file it is, and is not counted.
func (c readCount) Head(ctx context.Context, name string, p []byte) (int, error) {
	return source.Head(ctx, c.Source, name, p)
}

// moved is a dataset whose files were copied from one folder into a new one, and
// got new times.
func moved(t *testing.T, d spec.Dataset, from string) (_ spec.Dataset, to string) {
	t.Helper()
	to = t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	err := filepath.WalkDir(to, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
	place := func(paths spec.Paths) (out spec.Paths) {
		for _, p := range paths {
			abs, err := filepath.Abs(p)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, strings.Replace(abs, from, to, 1))
		}
		return out
	}
	d.Path = place(d.Path)
	var columns []spec.Column
	for _, c := range d.Columns {
		c.Path = place(c.Path)
		columns = append(columns, c)
	}
	d.Columns = columns
	return d, to
}

// openCounted opens a dataset where no index of it is kept.
func openCounted(t *testing.T, d spec.Dataset) (p *Part, reads int64) {
	t.Helper()
	t.Setenv("STOKER_CACHE", t.TempDir())
	file := source.NewFile()
	t.Cleanup(func() { _ = file.Close() })
	var n atomic.Int64
	p, err := openPart(context.Background(), readCount{file, &n}, d, Options{Formats: Formats()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stored.Index().Close() })
	return p, n.Load()
}

// An index beside the data travels with a copy of them, which is opened with no
// more than the reads of fingerprints, whatever the format.
func TestIndexesTravel(t *testing.T) {
	for name, d := range fixture.Stores(t) {
		if strings.HasPrefix(name, "files") { // who lists files has to look at each of them anyway
			continue
		}
		t.Run(name, func(t *testing.T) {
			first, _ := openCounted(t, d)
			x := first.Stored.Index()
			var paths []string
			for i := range x.Files() {
				paths = append(paths, string(x.AppendPath(i, nil)))
			}
			here, from := moved(t, d, format.Folder(paths)) // not beside the fixtures
			there, _ := openCounted(t, here)
			file := source.NewFile()
			defer file.Close()
			at, err := format.WriteBeside(context.Background(), file, there.Stored.Index())
			if err != nil || !strings.HasPrefix(at, from) {
				t.Fatal(at, err)
			}
			away, to := moved(t, here, from)
			copied, reads := openCounted(t, away)
			x = copied.Stored.Index()
			if reads > 3*int64(x.Files())+2 { // the header of the index, and all of it
				t.Errorf("%d reads of %d files: it was indexed again", reads, x.Files())
			}
			if copied.digest != first.digest || copied.N != first.N || !strings.HasPrefix(string(x.AppendPath(0, nil)), to) {
				t.Errorf("%d samples, digest %s, in %s: another dataset than that of %s", copied.N, copied.digest, x.AppendPath(0, nil), first.digest)
			}
			var s format.Sample
			if err := format.NewReader(copied.Stored, file).Read(context.Background(), copied.N-1, nil, &s); err != nil {
				t.Error(err)
			}
		})
	}
}
