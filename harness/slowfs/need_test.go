package slowfs_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stoker-data/stoker/harness/slowfs"
)

// stoker bench --need says of storage that limits whether it is slow to begin or slow to go on.
func TestNeedOfSlowStorage(t *testing.T) {
	of := t.TempDir()
	const samples, each = 1024, 64 * 64 * 3
	header := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 64, 64, 3), }", samples)
	array := fmt.Appendf([]byte("\x93NUMPY\x01\x00\x76\x00"), "%-117s\n", header)
	write(t, filepath.Join(of, "a.npy"), append(array, noise(1, samples*each)...))
	mounted := map[string]string{}
	for name, d := range map[string]slowfs.Delays{"latency": {Read: 10 * time.Millisecond}, "bandwidth": {BytesPerSecond: 12 << 20}} {
		mounted[name], _ = mount(t, of, slowfs.Options{Delays: d})
	}
	// Not imported: loaders need modules that the harness does without.
	stoker := filepath.Join(t.TempDir(), "stoker")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", stoker, "./cmd/stoker")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	for name, c := range map[string]struct {
		change  string // the first
		tooSlow bool
	}{"latency": {"larger reads", false}, "bandwidth": {"faster storage", true}} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(stoker, "bench", filepath.Join(mounted[name], "a.npy"), "--samples", fmt.Sprint(samples/2), "--need", "100000", "--json").Output()
			if err != nil {
				t.Fatal(err)
			}
			var r struct {
				Need struct {
					Bound     string
					ReadBytes float64 `json:"read_bytes_per_sample"`
					Storage   float64 `json:"storage_bytes_per_second"`
					TooSlow   bool    `json:"storage_too_slow"`
					Gives     float64
					Changes   []struct{ Name string }
				}
			}
			if err := json.Unmarshal(out, &r); err != nil {
				t.Fatal(err)
			}
			n := r.Need
			if n.Bound != "read" || n.ReadBytes != each || len(n.Changes) == 0 || n.Changes[0].Name != c.change {
				t.Errorf("limited by %q, and %v help: %s", n.Bound, n.Changes, out)
			}
			if much := n.Storage > 1.5*n.Gives*each; much == c.tooSlow || !n.TooSlow {
				t.Errorf("the storage gave %g, and the run read %g: %s", n.Storage, n.Gives*each, out)
			}
		})
	}
}
