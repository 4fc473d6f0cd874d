package verify

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The member after a PAX header has the name that the header gives it, and the next one
// begins after it.
func TestMemberOfALongName(t *testing.T) {
	long := strings.Repeat("folder/", 30) + "é.jpg"
	path := filepath.Join(t.TempDir(), "a.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, name := range []string{long, "b.jpg"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: 600, Mode: 0o644, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, 600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	member := func(off int64) (name string, next int64) {
		head := make([]byte, 512)
		if _, err := f.ReadAt(head, off); err != nil {
			t.Fatal(err)
		}
		return tarMember(f, head, off)
	}
	name, next := member(0)
	if second, end := member(next); name != long || second != "b.jpg" || end != next+512+1024 {
		t.Errorf("%q, then %q at %d to %d", name, second, next, end)
	}
}
