package loader

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/base/jsontext"
)

// Folders whose names differ in a byte that is not UTF-8 are two datasets, by way of
// a Spec as JSON and of the kept index too; so are classes.
func TestNamesThatAreNotUTF8(t *testing.T) {
	s := ground(t)
	top := t.TempDir()
	for root, classes := range map[string][]string{"d\xff": {"x\xfe", "x\xff"}, "d\xfe": {"y"}, "d\ufffd": {"z"}} {
		for _, c := range classes {
			dir := filepath.Join(top, root, c)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Skip("this file system takes UTF-8 only")
			}
			if err := os.WriteFile(filepath.Join(dir, "1\xfd.ppm"), picture(1), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second time by the index that was kept
			text, err := json.Marshal(imageSpec(filepath.Join(top, root)))
			if err != nil {
				t.Fatal(err)
			}
			var spec Spec
			if err := jsontext.UnmarshalNames(text, &spec); err != nil {
				t.Fatal(err)
			}
			l := open(t, s, spec)
			if !slices.Equal(l.Classes(), classes) || l.Len() != int64(len(classes)) {
				t.Errorf("%q: %q, %d samples", root, l.Classes(), l.Len())
			}
			if _, err := end(t, l); err != io.EOF {
				t.Errorf("%q: %v", root, err)
			}
		}
	}
}
