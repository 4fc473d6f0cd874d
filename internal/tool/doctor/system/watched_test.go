package system_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// Of a process that is watched for long, the first sighting and the last are kept, most
// of the last ones, and fewer the older they are: all of them of a short run.
func TestSightingsAreThinnedOut(t *testing.T) {
	root := t.TempDir()
	process(t, root, 10)
	stat := "10 (python) S 1 10 10 0 -1 0 0 0 0 0 7 3 0 0 20 0 1 0 500 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0\n"
	if err := os.WriteFile(filepath.Join(root, "proc", "10", "stat"), []byte(stat), 0o644); err != nil {
		t.Fatal(err)
	}
	w := system.NewWatched(root)
	for n := 1; n <= 700; n++ {
		w.Look(10, float64(n))
		seen := w.Pids[10]
		if n <= 100 && len(seen) != n || n > 100 && (len(seen) < 50 || len(seen) > 150) {
			t.Fatalf("seen %d times, and %d are kept", n, len(seen))
		}
		if seen[0].T != 1 || seen[len(seen)-1].T != float64(n) {
			t.Fatalf("seen %d times, from %g to %g", n, seen[0].T, seen[len(seen)-1].T)
		}
		for i := range seen[1:] {
			if gap := seen[i+1].T - seen[i].T; gap <= 0 || gap > 2 && seen[i].T >= float64(n-50) {
				t.Fatalf("seen %d times, and not between %g and %g", n, seen[i].T, seen[i+1].T)
			}
		}
	}
	if a, b, ok := w.Between(10, 350); !ok || a.T < 350 || a.T > 600 || b.T != 700 {
		t.Errorf("since 350: %g to %g", a.T, b.T)
	}
	if a, b, ok := w.Span(350); !ok || a.T < 350 || a.T > 600 || b.T != 700 {
		t.Errorf("the machine since 350: %g to %g", a.T, b.T)
	}
}
