package facts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// written is a file of n facts by itself.
func written(t testing.TB, n, version int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "below", "any.name")
	if err := WriteFile(path, "test", "things", some(0, n, version)); err != nil {
		t.Fatal(err)
	}
	return path
}

func some(from, to, version int) func(yield func(Key, []byte) bool) {
	return func(yield func(Key, []byte) bool) {
		for i := from; i < to && yield(key(i), fact(key(i), version)); i++ {
		}
	}
}

// alone opens a file by itself, and collects its notices.
func alone(t testing.TB, path string) *opened {
	t.Helper()
	st := &opened{t: t}
	s, err := OpenFile(path, "test", Options{Notice: func(text string) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.notices = append(st.notices, text)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	st.Store = s
	return st
}

// A file by itself has its facts, the last of each key, and takes no more.
func TestFileByItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "below", "any.name")
	err := WriteFile(path, "test", "things", func(yield func(Key, []byte) bool) {
		some(0, 3000, 1)(yield)
		some(100, 200, 2)(yield)
	})
	if err != nil {
		t.Fatal(err)
	}
	s := alone(t, path)
	s.has(0, 100, 1)
	s.has(100, 200, 2)
	s.has(200, 3000, 1)
	s.Ahead(key(5))
	s.Put(key(4000), fact(key(4000), 1))
	s.flush()
	if _, ok := s.Append(nil, key(4000)); ok {
		t.Error("a fact was put")
	}
	n, all := s.Counts(), 0
	for k, got := range s.All() {
		all++
		if !bytes.Equal(got, fact(k, 1)) && !bytes.Equal(got, fact(k, 2)) {
			t.Fatalf("%v: %q", k, got)
		}
	}
	if n.Found != 3000 || all != 3000 || n.Dropped != 1 || n.Files != 1 || n.Bytes != sized(t, path) || len(s.told()) > 0 {
		t.Errorf("%d: %+v, %q", all, n, s.told())
	}
	s.close()
	if _, ok := s.Append(nil, key(1)); ok {
		t.Error("it finds facts after it was closed")
	}
	s.close()
	if _, err := OpenFile(path+"x", "test", Options{}); errs.CodeOf(err) != errs.NotFound {
		t.Error(err)
	}
}

// A file that is written again takes the place of the one that somebody has open; what did
// not end is removed when it is old, and leaves no name that is one of a file.
func TestFileIsReplaced(t *testing.T) {
	path := written(t, 50, 1)
	old := alone(t, path)
	left := filepath.Join(filepath.Dir(path), "test-0123456789abcdef"+mergeExt)
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * sweepAge)
	if err := os.Chtimes(left, long, long); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, "test", "things", some(0, 60, 2)); err != nil {
		t.Fatal(err)
	}
	old.has(0, 50, 1)
	alone(t, path).has(0, 60, 2)
	if all := names(t, filepath.Dir(path), ""); len(all) != 1 {
		t.Errorf("%q", all)
	}
}

// The folder is a file, and the place is a folder.
func TestFileCannotBeWritten(t *testing.T) {
	path := written(t, 5, 1)
	if err := WriteFile(filepath.Join(path, "x"), "test", "things", some(0, 5, 1)); errs.CodeOf(err) != errs.Unreadable {
		t.Error(err)
	}
	if err := WriteFile(filepath.Dir(path), "test", "things", some(0, 5, 1)); errs.CodeOf(err) != errs.Unreadable {
		t.Error(err)
	}
	if all := names(t, filepath.Dir(filepath.Dir(path)), ""); len(all) != 1 {
		t.Errorf("%q are left", all)
	}
}

// Damage is noticed once, or an error of who names the file; and damaged facts are not found.
func TestFileIsDamaged(t *testing.T) {
	for what, harm := range map[string]func(name string){
		"of the table":    func(name string) { flip(t, name, sized(t, name)-200) },
		"cut":             func(name string) { _ = os.Truncate(name, sized(t, name)/2) },
		"something else":  func(name string) { _ = os.WriteFile(name, bytes.Repeat([]byte("else"), 50), 0o600) },
		"a folder":        func(name string) { _ = os.Remove(name); _ = os.Mkdir(name, 0o700) },
		"a later version": func(name string) { flip(t, name, 8); flip(t, name, 9) },
		"a record":        func(name string) { flip(t, name, headerLen+recordHead) },
	} {
		t.Run(what, func(t *testing.T) {
			path := written(t, 50, 1)
			harm(path)
			s := alone(t, path)
			for i := range 50 {
				if got, ok := s.Append(nil, key(i)); ok && (what != "a record" || !bytes.Equal(got, fact(key(i), 1))) {
					t.Errorf("%d: %q", i, got)
				}
			}
			if told := s.told(); len(told) != 1 || !strings.Contains(told[0], path) || strings.Contains(told[0], "cache") {
				t.Errorf("%q", told)
			}
			named, err := OpenFile(path, "test", Options{Named: true})
			if err == nil {
				_ = named.Close()
			}
			if want := what != "a record"; (err != nil) != want {
				t.Error(err)
			}
		})
	}
	s := alone(t, written(t, 5000, 1))
	if err := os.Truncate(s.d.path(s.name), 4096); err != nil { // while it is mapped
		t.Fatal(err)
	}
	for i := range 5000 {
		if got, ok := s.Append(nil, key(i)); ok && !bytes.Equal(got, fact(key(i), 1)) {
			t.Fatalf("%d: %q", i, got)
		}
	}
	if len(s.told()) != 1 {
		t.Errorf("%q", s.told())
	}
}

// How much is stored can be asked without making anything.
func TestStored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	if n, _ := Stored(dir, "test"); n != 0 {
		t.Errorf("%d facts", n)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made")
	}
	dir, name := one(t)
	if n, size := Stored(dir, "test"); n != 100 || size != sized(t, name) {
		t.Errorf("%d facts of %d bytes", n, size)
	}
	flip(t, name, sized(t, name)-60)
	if n, _ := Stored(dir, "test"); n != 0 {
		t.Errorf("%d facts in a damaged file", n)
	}
}
