package npy_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format/npy"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// Files of either order of bytes are one field, and a compressed array is turned
// round without harm to what is kept of it.
func TestBigEndian(t *testing.T) {
	s := newShelf(t)
	little, big := array("<u2", []int{2, 2}, []byte("abcdefgh")), array(">u2", []int{2, 2}, []byte("badcfehg"))
	want := []string{"abcd", "efgh"}
	d := s.open(t, s.put(t, "x-0.npy", big), s.put(t, "x-1.npy", little), s.put(t, "x-2.npy", big))
	if got := rows(t, d, s.src, "x"); !slices.Equal(got, slices.Concat(want, want, want)) || d.Plain() {
		t.Errorf("%q, plain %t", got, d.Plain())
	}
	stagetest.Dataset(t, d, s.src)
	z := s.open(t, s.put(t, "z.npz", archive(t, compressedMember("x", big), member{name: "y", data: big})))
	for range 2 {
		for _, field := range []string{"x", "y"} {
			if got := rows(t, z, s.src, field); !slices.Equal(got, want) {
				t.Errorf("%s: %q", field, got)
			}
		}
	}
	stagetest.Dataset(t, z, s.src)
	stagetest.NoHeap(t, z, s.src, nil)
}

// Of the files of a folder, one that cannot be read is left out and reported; given by
// name, or alone, it is an error.
func TestUnreadableFileBesideOthers(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, data []byte) string {
		stagetest.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		return filepath.Join(dir, name)
	}
	x, c := put("x.npy", array("|u1", []int{3}, []byte("abc"))), put("c.npy", array("<c8", []int{3}, make([]byte, 24)))
	src := source.NewFile()
	defer src.Close()
	opt := npy.Options{Store: &index.Store{}}
	d, err := npy.Open(context.Background(), src, []string{c, x}, opt)
	stagetest.Must(t, err)
	defer d.Close()
	if fields := d.Index().Meta().Fields; !slices.Equal(fields, []string{"x"}) || !strings.Contains(strings.Join(d.Notes(), " "), `"c" (its elements are complex`) {
		t.Errorf("%v, %v", fields, d.Notes())
	}
	if err := d.Check([]string{"c"}); errs.CodeOf(err) != errs.Unsupported {
		t.Error(err)
	}
	if got := rows(t, d, src, "x"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q", got)
	}
	if _, err := npy.Open(context.Background(), src, []string{c}, opt); errs.CodeOf(err) != errs.Unsupported {
		t.Error(err)
	}
	opt.Fields = []npy.Field{{Name: "x", Paths: []string{x}}, {Name: "c", Paths: []string{c}}}
	if _, err := npy.Open(context.Background(), src, nil, opt); errs.CodeOf(err) != errs.Unsupported {
		t.Error(err)
	}
}
