package gather

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// A loop that took less than a second has its share of the script's time, too: what
// comes after its first batch, and that first one not.
func TestTheShareOfAShortLoop(t *testing.T) {
	const lines = `{"v":1,"pid":10,"t":101.5,"started":100,"loaders":[{"id":1,"workers":0,"passes":1,"batches":1,"wait":0.5,"wait_first":0.5,"step":0,"epochs":[{"begin":101,"first":0.5,"end":null,"batches":1}]}]}
{"v":1,"pid":10,"t":102.5,"started":100,"loaders":[{"id":1,"workers":0,"passes":1,"batches":20,"wait":0.7,"wait_first":0.5,"step":0.2,"epochs":[{"begin":101,"first":0.5,"end":102,"batches":20}]}]}
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "10.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	f := NewFolder(dir)
	if _, err := f.Poll(); err != nil {
		t.Fatal(err)
	}
	l := Loops(f, system.NewWatched(dir))[0]
	if !l.Spent.Known() || math.Abs(l.Spent.Value-0.4) > 1e-9 || !l.Elapsed.Known() || math.Abs(l.Elapsed.Value-0.5) > 1e-9 {
		t.Errorf("%+v of %+v", l.Spent, l.Elapsed)
	}
}
