package index

import (
	"strings"
	"testing"
)

// With right checksums too, a description that is not one is refused.
func TestMetaThatIsNoJSON(t *testing.T) {
	for _, meta := range []string{`{"samples": "many"}`, `{"samples": 1`, `[]`, ""} {
		if _, err := view(seal([]byte(meta), nil)); err == nil || !strings.Contains(err.Error(), "meta") {
			t.Errorf("%q: %v", meta, err)
		}
	}
}

// Columns that are not in the file, or of a kind that there is not, are refused: no
// index is opened without them.
func TestForgedColumns(t *testing.T) {
	for i, f := range forgeries()[4:14] {
		if _, err := view(seal(f[0], f[1])); err == nil || !strings.Contains(err.Error(), "column") {
			t.Errorf("forgery %d: %v", 4+i, err)
		}
	}
}
