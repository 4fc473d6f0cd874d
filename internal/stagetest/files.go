package stagetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// TB is the part that helpers need of a *testing.T, *testing.B, *testing.F or
// *rapid.T.
type TB interface {
	Helper()
	Fatalf(format string, a ...any)
}

// Must ends a test if err is not nil.
func Must(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Memory is a source of objects by name; it lists nothing.
type Memory map[string][]byte

// Stat implements source.Source.
func (m Memory) Stat(_ context.Context, name string) (source.Info, error) {
	data, ok := m[name]
	if !ok {
		return source.Info{}, errs.New(errs.NotFound, "there is no such file").At(errs.Where{File: strings.Clone(name)})
	}
	return source.Info{Name: name, Size: int64(len(data)), Version: "1"}, nil
}

// ReadAt implements source.Source.
func (m Memory) ReadAt(_ context.Context, obj source.Info, p []byte, off int64) error {
	data := m[obj.Name]
	at := errs.Where{File: strings.Clone(obj.Name), Offset: errs.Known(off)} // names are not kept
	switch {
	case int64(len(data)) != obj.Size:
		return errs.New(errs.Changed, "the object was changed").At(at)
	case off < 0 || off > obj.Size || int64(len(p)) > obj.Size-off:
		return errs.New(errs.Bug, "%d bytes at %d of %d", len(p), off, len(data)).At(at)
	}
	copy(p, data[off:])
	return nil
}

// List implements source.Source.
func (m Memory) List(context.Context, string) iter.Seq2[source.Info, error] {
	return func(func(source.Info, error) bool) {}
}

// Bytes is a source in which every name is an object with these bytes.
type Bytes []byte

// Stat implements source.Source.
func (b Bytes) Stat(_ context.Context, name string) (source.Info, error) {
	return Memory{name: b}.Stat(context.Background(), name)
}

// ReadAt implements source.Source.
func (b Bytes) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	return Memory{obj.Name: b}.ReadAt(ctx, obj, p, off)
}

// List implements source.Source.
func (b Bytes) List(context.Context, string) iter.Seq2[source.Info, error] {
	return Memory{}.List(context.Background(), "")
}

// Unzipped returns the contents of a fixture that is stored as gzip.
func Unzipped(t TB, path string) []byte {
	t.Helper()
	packed, err := os.ReadFile(path)
	Must(t, err)
	r, err := gzip.NewReader(bytes.NewReader(packed))
	Must(t, err)
	data, err := io.ReadAll(r)
	Must(t, err)
	return data
}

// Put writes a file and the folders above it, and dates it an hour back, so that an
// index need not wait for the clock.
func Put(t TB, path string, data []byte) string {
	t.Helper()
	Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Must(t, os.WriteFile(path, data, 0o644))
	past := time.Now().Add(-time.Hour)
	Must(t, os.Chtimes(path, past, past))
	return path
}

// OwnCache runs a package's tests with an index cache of their own, so that the
// user's is not touched. It returns the exit status.
func OwnCache(m *testing.M) int {
	cache, err := os.MkdirTemp("", "stoker-cache-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(cache)
	_ = os.Setenv("STOKER_CACHE", cache)
	return m.Run()
}
