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
