package suffix_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format/suffix"
)

// Go and Python take the same fields for the same kinds: both read this file, see
// python/tests/test_suffixes.py.
func TestSuffixes(t *testing.T) {
	b, err := os.ReadFile("../../../../testdata/suffixes.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]struct {
		Read   suffix.Kind `json:"read"`
		Number bool        `json:"written as a number"`
	}
	if err := json.Unmarshal(b, &golden); err != nil || len(golden) < 40 {
		t.Fatalf("%d fields: %v", len(golden), err)
	}
	seen := map[suffix.Kind]bool{}
	for field, want := range golden {
		if got := suffix.Of(field); got != want.Read {
			t.Errorf("%q is read as %s, want %s", field, got, want.Read)
		}
		if got := suffix.WritesNumber(field); got != want.Number {
			t.Errorf("%q is written as a number: %v", field, got)
		}
		seen[want.Read] = true
	}
	if len(seen) != 8 {
		t.Errorf("the golden has %d of 8 kinds", len(seen))
	}
}
