package watch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// locked is the file by which a doctor's folder says that its doctor lives: the kernel
// gives its lock back when the last descriptor of that goes, however the process ended.
// A PID would not do, since another process may have it by now.
const locked = "lock"

// hold locks a folder that is ours. The file has its name only once it is locked, so
// that nobody finds it free before. On a file system without locks there is none, and
// the folder of a doctor that is killed stays.
func hold(dir string) (*os.File, error) {
	path := filepath.Join(dir, locked)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return f, nil
	}
	if err = os.Rename(path+".new", path); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes what doctors of this user left in a folder when they were killed. What
// has no lock, or one that somebody holds, stays; where it fails, nothing is lost but
// room.
func sweep(parent string) {
	found, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range found {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		if s, ok := info.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != os.Geteuid() {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, locked), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = f.Close()
	}
}
