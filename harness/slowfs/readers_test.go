package slowfs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stoker-data/stoker/harness/slowfs"
)

// Where each read takes 10 ms, as many are made at once as the storage rewards, and not only
// the 16 that suffice for a disk. It takes thousands of samples: the number is found while the
// loader runs. How much faster that is depends on the machine: bench.remote measures it.
func TestReadersOfSlowStorage(t *testing.T) {
	of := t.TempDir()
	const samples, each = 12_000, 4096
	for i := range samples {
		write(t, filepath.Join(of, fmt.Sprintf("class%d", i%3), fmt.Sprintf("%06d.bin", i)), noise(byte(i), each))
	}
	at, fs := mount(t, of, slowfs.Options{Delays: slowfs.Delays{}})
	stoker := filepath.Join(t.TempDir(), "stoker")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", stoker, "./cmd/stoker")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := filepath.Join(t.TempDir(), "spec.yaml")
	if err := os.WriteFile(text, fmt.Appendf(nil, "dataset: {path: %s, format: folder, extensions: [.bin]}\nfields: [{name: image, decode: bytes}]\norder: {shuffle: full}\nbatch: {size: 64}\n", at), 0o644); err != nil {
		t.Fatal(err)
	}
	load := func(arg ...string) {
		t.Helper()
		if out, err := exec.Command(stoker, append([]string{"bench", "--spec", text, "--json"}, arg...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	load("--samples", "64") // builds the index
	fs.Set(slowfs.Delays{Read: 10 * time.Millisecond})
	load("--samples", "4000", "--connections", "16")
	if n := fs.Served().Most; n > 16 {
		t.Errorf("%d reads waited at once, where 16 were allowed", n)
	}
	fs.Set(slowfs.Delays{Read: 10 * time.Millisecond})
	before := fs.Served().Reads
	load("--samples", fmt.Sprint(samples))
	if n := fs.Served().Reads - before; n < samples {
		t.Errorf("%d reads for %d samples: some did not wait", n, samples)
	}
	if n := fs.Served().Most; n < 32 {
		t.Errorf("at most %d reads waited at once", n)
	}
}
