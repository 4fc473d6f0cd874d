package slowfs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stoker-data/stoker/harness/slowfs"
)

// Where each read takes 10 ms, as many are made at once as the storage rewards, and not only
// the 16 that suffice for a disk. More than a few thousand samples show it: the number is found
// while the loader runs.
func TestReadersOfSlowStorage(t *testing.T) {
	of := t.TempDir()
	const samples, each = 12_000, 4096
	for i := range samples {
		write(t, filepath.Join(of, fmt.Sprintf("class%d", i%3), fmt.Sprintf("%06d.bin", i)), noise(byte(i), each))
	}
	at, fs := mount(t, of, slowfs.Options{Delays: slowfs.Delays{}})
	stoker := filepath.Join(t.TempDir(), "stoker")
	build := exec.Command("go", "build", "-o", stoker, "./cmd/stoker")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := filepath.Join(t.TempDir(), "spec.yaml")
	if err := os.WriteFile(text, fmt.Appendf(nil, "dataset: {path: %s, format: folder, extensions: [.bin]}\nfields: [{name: image, decode: bytes}]\norder: {shuffle: full}\nbatch: {size: 64}\n", at), 0o644); err != nil {
		t.Fatal(err)
	}
	rate := func(arg ...string) float64 {
		t.Helper()
		out, err := exec.Command(stoker, append([]string{"bench", "--spec", text, "--json"}, arg...)...).Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var r struct {
			Rate float64 `json:"samples_per_second"`
		}
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatal(err)
		}
		return r.Rate
	}
	rate("--samples", "64") // builds the index
	fs.Set(slowfs.Delays{Read: 10 * time.Millisecond})
	few := rate("--samples", "4000", "--connections", "16")
	before := fs.Served().Reads
	more := rate("--samples", fmt.Sprint(samples))
	if n := fs.Served().Reads - before; n < samples {
		t.Errorf("%d reads for %d samples: some did not wait", n, samples)
	}
	t.Logf("%.0f samples per second by 16 readers, %.0f by as many as pay: %.1f times", few, more, more/few)
	if more < 2*few {
		t.Errorf("%.0f samples per second by 16 readers, %.0f by as many as pay", few, more)
	}
}
