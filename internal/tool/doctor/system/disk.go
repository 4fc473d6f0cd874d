package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Rotational says whether a path is on a disk that turns, as the kernel sees it: that of the
// machine whose /sys is below root. false for what is on no disk of its own: a network, an
// overlay, a pool.
func Rotational(root, path string) bool {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return false
	}
	dev := filepath.Join(root, "sys/dev/block", fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev)))
	at, err := filepath.EvalSymlinks(dev)
	if err != nil {
		return false
	}
	for _, dir := range [...]string{at, filepath.Dir(at)} { // a partition has no queue, its disk has
		if b, err := os.ReadFile(filepath.Join(dir, "queue/rotational")); err == nil {
			return strings.TrimSpace(string(b)) == "1"
		}
	}
	return false
}
