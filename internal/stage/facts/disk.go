package facts

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sealedExt = ".facts"
	partExt   = ".part"
	mergeExt  = ".tmp"
	lockExt   = ".lock"
)

// disk is the folder. Everything that changes it is done here, with names below it.
type disk struct {
	dir string
	// before is called with each change before it is made, and with each file that is to be
	// mapped ("open"), and can refuse it; nil: there is nobody to ask. Tests record what is
	// done, and break it. to is the new name of a renamed file, data what is written.
	before func(op, name, to string, data []byte) error
}

func (d disk) path(name string) string { return filepath.Join(d.dir, name) }

func (d disk) ask(op, name, to string, data []byte) error {
	if d.before == nil {
		return nil
	}
	return d.before(op, name, to, data)
}

// file is a new file, written from its beginning to its end.
type file struct {
	f    *os.File
	d    disk
	name string
}

// Write is all that is written.
func (f file) Write(p []byte) (int, error) {
	if err := f.d.ask("write", f.name, "", p); err != nil {
		return 0, err
	}
	return f.f.Write(p)
}

func (f file) sync() error {
	if err := f.d.ask("sync", f.name, "", nil); err != nil {
		return err
	}
	return f.f.Sync()
}

// create makes a file of a new name.
func (d disk) create(kind, ext string) (file, error) {
	var id [8]byte
	_, _ = rand.Read(id[:])
	name := kind + "-" + hex.EncodeToString(id[:]) + ext
	if err := d.ask("create", name, "", nil); err != nil {
		return file{}, err
	}
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return file{f, d, name}, err
}

// publish gives a file its final name.
func (d disk) publish(f file) (name string, err error) {
	name = strings.TrimSuffix(f.name, filepath.Ext(f.name)) + sealedExt
	return name, d.rename(f, name)
}

// rename gives a file a name: whole or not at all, at any instant of a power cut.
func (d disk) rename(f file, name string) error {
	if err := f.sync(); err != nil {
		return err
	}
	if err := d.ask("rename", f.name, name, nil); err != nil {
		return err
	}
	if err := os.Rename(d.path(f.name), d.path(name)); err != nil {
		return err
	}
	d.sync()
	return nil
}

// sweep removes files that nobody ends writing: their process has died, or their machine.
func (d disk) sweep(tmps []leftover) {
	for _, t := range tmps {
		if t.sweepable() {
			_ = d.remove(t.name)
		}
	}
}

// sync makes what was done to names durable. File systems that cannot are not asked twice.
func (d disk) sync() {
	if d.ask("syncdir", "", "", nil) != nil {
		return
	}
	if dir, err := os.Open(d.dir); err == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
}

func (d disk) remove(name string) error {
	if err := d.ask("remove", name, "", nil); err != nil {
		return err
	}
	if err := os.Remove(d.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// errLocked is what lock says of a file whose lock another process holds.
var errLocked = errors.New("another process holds the lock")

// lock takes the lock of a file, at once or not at all. It ends with the descriptor; the
// kernel closes that of a process that dies.
func (d disk) lock(f *os.File) error {
	if err := d.ask("lock", filepath.Base(f.Name()), "", nil); err != nil {
		return err
	}
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errLocked
		default:
			return err
		}
	}
}

// own locks a new file, if there are locks. Error: errLocked, if it is another process's by
// now, or is gone.
func (d disk) own(f file) error {
	if err := d.lock(f.f); err != nil && !noLocks(err) {
		return err
	}
	mine, err := f.f.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(d.path(f.name)); err != nil || !os.SameFile(mine, there) {
		return errLocked
	}
	return nil
}

// noLocks says whether err is a file system's that has no locks.
func noLocks(err error) bool {
	return errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// found is what is in the folder.
type found struct {
	mtime int64 // of the folder, Unix nanoseconds, before it was listed
	bytes int64 // of files of facts of all kinds, merges that are under way left out
	files []string
	parts []leftover // not sealed, of any process
	tmps  []leftover // merges that are under way, or were
}

// leftover is a file that its process may have left.
type leftover struct {
	name string
	age  time.Duration // since it was last written to
}

func (d disk) mtime() (int64, error) {
	fi, err := os.Stat(d.dir)
	if err != nil {
		return 0, err
	}
	return fi.ModTime().UnixNano(), nil
}

// list lists the folder. A list that was made while another process merged may lack both
// the merged file and those that it replaces, so two that agree are made.
func (d disk) list(kind string) (l found, err error) {
	for try := range 5 {
		before := l.files
		l = found{}
		if l.mtime, err = d.mtime(); err != nil {
			return l, err
		}
		all, err := os.ReadDir(d.dir)
		if err != nil {
			return l, err
		}
		whole := true
		for _, e := range all {
			whole = l.add(e, kind) && whole
		}
		if try > 0 && slices.Equal(before, l.files) && whole {
			break
		}
	}
	return l, nil
}

// add adds an entry; false: it is gone, or has another name by now.
func (l *found) add(e fs.DirEntry, kind string) bool {
	ext := filepath.Ext(e.Name())
	if ext != sealedExt && ext != partExt && ext != mergeExt {
		return true
	}
	fi, err := e.Info()
	if err != nil || !fi.Mode().IsRegular() {
		return err == nil
	}
	if ext != mergeExt {
		l.bytes += fi.Size()
	}
	if id, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ext), kind+"-"); !ok || len(id) != 16 {
		return true
	}
	switch ext {
	case sealedExt:
		l.files = append(l.files, e.Name())
	case partExt:
		l.parts = append(l.parts, leftover{e.Name(), time.Since(fi.ModTime())})
	default:
		l.tmps = append(l.tmps, leftover{e.Name(), time.Since(fi.ModTime())})
	}
	return true
}
