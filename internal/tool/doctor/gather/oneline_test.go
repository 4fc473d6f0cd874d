package gather

import (
	"os"
	"path/filepath"
	"testing"
)

// A function that is one line hands its parameter on as others do: the setting's line is
// the caller's, and the function's own where the caller leaves it at the default.
func TestTheLineThatSetsAValueThroughOneLine(t *testing.T) {
	const text = `workers = 1
def make(data, workers=2): return DataLoader(data, num_workers=workers)
a = make(data, workers=3)
b = make(data)
`
	path := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[int]string{3: "train.py:3", 4: "train.py:2"} {
		calls := []callLine{{path, 2, "make"}, {path, line, "<module>"}}
		if got := newSources([]string{path}).setting(calls, "num_workers"); got != want {
			t.Errorf("called in line %d: set by %q, not %q", line, got, want)
		}
	}
}
