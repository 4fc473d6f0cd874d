package index

import (
	"os"
	"path/filepath"
	"testing"
)

// An index is whole only with its header, which comes last: that it cannot be written is
// an error, as it is of all that comes before it.
func TestWritesThatFail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.idx")
	for name, flags := range map[string]int{
		"nothing can be written": os.O_RDONLY,
		"only the header cannot": os.O_RDWR | os.O_APPEND, // Go refuses to write such a file at a place
	} {
		f, err := os.OpenFile(path, flags|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := small().write(f); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
