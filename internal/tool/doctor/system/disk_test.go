package system

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The queue of a disk says whether it turns, also for its partitions.
func TestRotational(t *testing.T) {
	var s unix.Stat_t
	data := t.TempDir()
	if err := unix.Stat(data, &s); err != nil {
		t.Fatal(err)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev))
	for _, c := range []struct {
		disk string // below /sys/block
		says string
		want bool
	}{{"sda", "1\n", true}, {"sda/sda1", "1\n", true}, {"nvme0n1/p2", "0\n", false}, {"sda", "", false}} {
		root := t.TempDir()
		at := filepath.Join(root, "sys/block", c.disk)
		queue := filepath.Join(root, "sys/block", filepath.Dir(c.disk+"/x"), "queue")
		if d := filepath.Dir(c.disk); d != "." {
			queue = filepath.Join(root, "sys/block", d, "queue")
		}
		for _, dir := range []string{at, queue, filepath.Join(root, "sys/dev/block")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if c.says != "" {
			if err := os.WriteFile(filepath.Join(queue, "rotational"), []byte(c.says), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(at, filepath.Join(root, "sys/dev/block", number)); err != nil {
			t.Fatal(err)
		}
		if got := Rotational(root, data); got != c.want {
			t.Errorf("%s says %q: %v", c.disk, c.says, got)
		}
	}
	if Rotational(t.TempDir(), data) || Rotational("/", filepath.Join(data, "nothing")) {
		t.Error("what is not known turns")
	}
}
