package source

import (
	"context"
	"encoding/binary"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// File is the local file system; names are paths. A read of all of a file (one
// sample) opens it and closes it again: one openat, pread, fstat and close, and no
// heap. Files that are read in parts (shards) stay open, up to keepOpen() of them,
// if they are watched (Info.Version).
type File struct {
	paths sync.Pool // *[]byte: room for a path and its zero
	open  descriptors
	// untold: here is a file system that does not tell what is in memory.
	untold atomic.Bool
}

// keepOpen is how many descriptors are kept: an eighth of what the process may
// have, since it may be the trainer's too, and no more than a dataset of some
// hundred shards needs for a full shuffle.
func keepOpen() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 64
	}
	return int(min(max(limit.Cur/8, 16), 1024))
}

// NewFile makes a File; Close gives its descriptors back.
func NewFile() *File {
	return &File{
		paths: sync.Pool{New: func() any { b := make([]byte, 0, 256); return &b }},
		open:  descriptors{limit: keepOpen(), byName: make(map[string]*descriptor)},
	}
}

// Close closes what is kept open. Reads that are under way end well; later ones
// open their files anew.
func (f *File) Close() error {
	f.open.drop()
	return nil
}

// ReadAt is Source's.
func (f *File) ReadAt(ctx context.Context, obj Info, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := f.read(obj, p, off, coldly)
	return err
}

// ReadHot is Hot's. Opening a file may wait all the same.
func (f *File) ReadHot(ctx context.Context, obj Info, p []byte, off int64, wait bool) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if wait {
		return f.read(obj, p, off, hotFirst)
	}
	return f.read(obj, p, off, hotOnly)
}

// manner is how a file is read.
type manner uint8

const (
	coldly   manner = iota // without asking whether that waits
	hotFirst               // without waiting if that goes
	hotOnly                // without waiting, or not at all
)

func (f *File) read(obj Info, p []byte, off int64, how manner) (hot bool, err error) {
	if all := off == 0 && int64(len(p)) == obj.Size; obj.Version != "" && !all {
		return f.readKept(obj, p, off, how)
	}
	fd, err := f.openat(obj.Name)
	if err != nil {
		return false, failed(obj.Name, off, err)
	}
	hot, err = f.pread(fd, obj, p, off, how)
	// After the read, which finds what was written before it and while it went on.
	if c := check(fd, obj); c != nil {
		hot, err = false, c
	}
	_ = unix.Close(fd)
	return hot, err
}

// readKept reads through the descriptors that are kept, and holds the file
// against obj after the read, which finds what was written before it and while
// it went on. What was open may have been removed or replaced since; then the
// name is opened again, and it is the new file that has to be obj.
func (f *File) readKept(obj Info, p []byte, off int64, how manner) (bool, error) {
	if d := f.open.get(obj.Name); d != nil {
		hot, err := f.pread(d.fd, obj, p, off, how)
		var st unix.Stat_t
		if fstat(d.fd, &st) == nil && st.Nlink > 0 {
			if c := compare(&st, obj.Name, stampOf(obj)); c != nil {
				err = c
			}
			f.open.put(d, err != nil)
			return hot, err
		}
		f.open.put(d, true)
	}
	fd, err := f.openat(obj.Name)
	if err != nil {
		return false, failed(obj.Name, off, err)
	}
	d := f.open.add(obj.Name, fd)
	hot := false
	if err = check(d.fd, obj); err == nil {
		if hot, err = f.pread(d.fd, obj, p, off, how); err == nil {
			err = check(d.fd, obj)
		}
	}
	f.open.put(d, err != nil)
	return hot, err
}

// openat opens a path for reading. It never waits for a writer of a FIFO.
func (f *File) openat(name string) (int, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return -1, unix.ENOENT
	}
	buf := f.paths.Get().(*[]byte)
	*buf = append(append((*buf)[:0], name...), 0)
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	at := unix.AT_FDCWD
	dropped := false
	for {
		// By hand, because unix.Openat copies the path to the heap.
		fd, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(unsafe.SliceData(*buf))), flags, 0, 0, 0)
		switch {
		case e == 0:
			f.paths.Put(buf)
			return int(fd), nil
		case e == unix.EINTR:
		case (e == unix.EMFILE || e == unix.ENFILE) && !dropped:
			dropped = true
			f.open.drop()
		default:
			f.paths.Put(buf)
			return -1, e
		}
	}
}

func fstat(fd int, st *unix.Stat_t) error {
	for {
		err := unix.Fstat(fd, st)
		if err != unix.EINTR {
			return err
		}
	}
}

// check holds an open file against what the caller believes it to be.
func check(fd int, obj Info) error {
	var st unix.Stat_t
	if err := fstat(fd, &st); err != nil {
		return failed(obj.Name, -1, err)
	}
	return compare(&st, obj.Name, stampOf(obj))
}

// stamp is what a caller believes of a file.
type stamp struct {
	size int64 // bytes
	time int64 // Unix nanoseconds; 0: not watched
}

func stampOf(obj Info) stamp {
	s := stamp{size: obj.Size}
	if v := obj.Version; len(v) == 8 {
		for i := 7; i >= 0; i-- {
			s.time = s.time<<8 | int64(v[i])
		}
	} else if v != "" {
		s.time = -1 // not a version of ours: no file has it
	}
	return s
}

// version is the time of a file, in 8 bytes, little-endian: the index keeps a number
// of it, and gives it back without an allocation.
func version(time int64) string {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(time))
	return string(b[:])
}

func compare(st *unix.Stat_t, name string, want stamp) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return failed(name, -1, notRegular(st.Mode))
	case st.Size != want.size:
		return changed(name, "it has %d bytes, the index says %d", st.Size, want.size)
	case want.time != 0 && mtime(st) != want.time:
		return changed(name, "it was written to since it was indexed")
	}
	return nil
}

// pread fills p, and says whether it did without waiting. A file system that
// cannot tell counts as one that waits.
func (f *File) pread(fd int, obj Info, p []byte, off int64, how manner) (hot bool, err error) {
	if how != coldly && len(p) > 0 && off >= 0 && off <= obj.Size && int64(len(p)) <= obj.Size-off && !f.untold.Load() {
		n, err := preadNow(fd, p, off)
		if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
			f.untold.Store(true)
		}
		if err == nil && n == len(p) {
			return true, nil
		}
	}
	if how == hotOnly {
		return false, nil
	}
	return false, pread(fd, obj, p, off)
}

// preadNow reads what is in the page cache.
func preadNow(fd int, p []byte, off int64) (int, error) {
	iov := unix.Iovec{Base: &p[0]}
	iov.SetLen(len(p))
	n, _, e := unix.Syscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1, uintptr(off), 0, unix.RWF_NOWAIT)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// pread fills p.
func pread(fd int, obj Info, p []byte, off int64) error {
	if off < 0 || off > obj.Size || int64(len(p)) > obj.Size-off {
		return errs.New(errs.Bug, "%d bytes were asked for of a file of %d", len(p), obj.Size).At(where(obj.Name, off))
	}
	for len(p) > 0 {
		n, err := unix.Pread(fd, p, off)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return failed(obj.Name, off, err)
		case n == 0:
			return changed(obj.Name, "it ends at byte %d, the index says %d", off, obj.Size)
		default:
			p, off = p[n:], off+int64(n)
		}
	}
	return nil
}

// mtime is the time of a file. A file whose time is the beginning of time is
// watched too, and 0 says that one is not.
func mtime(st *unix.Stat_t) int64 {
	return max(st.Mtim.Nano(), 1)
}

// Stat is Source's; links are followed. What is neither a file nor a folder is
// unreadable: opening a pipe would wait for its writer, and a device has no size.
func (f *File) Stat(ctx context.Context, name string) (Info, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	var st unix.Stat_t
	if err := statat(unix.AT_FDCWD, name, &st); err != nil {
		if err == unix.ENOENT && unix.Lstat(name, &st) == nil {
			return Info{}, failed(name, -1, ErrNowhere)
		}
		return Info{}, failed(name, -1, err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return Info{}, failed(name, -1, notRegular(st.Mode))
	}
	return info(name, &st), nil
}

// Head is Header's. It never waits for a writer of a FIFO: what is not a file is an
// error, as for Stat.
func (f *File) Head(ctx context.Context, name string, p []byte) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	fd, err := f.openat(name)
	if err != nil {
		return 0, failed(name, -1, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := fstat(fd, &st); err != nil {
		return 0, failed(name, -1, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, failed(name, -1, notRegular(st.Mode))
	}
	n := 0
	for n < len(p) {
		k, err := unix.Pread(fd, p[n:], int64(n))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return n, failed(name, int64(n), err)
		case k == 0:
			return n, nil
		default:
			n += k
		}
	}
	return n, nil
}

func statat(dir int, name string, st *unix.Stat_t) error {
	for {
		err := unix.Fstatat(dir, name, st, 0)
		if err != unix.EINTR {
			return err
		}
	}
}

func info(name string, st *unix.Stat_t) Info {
	i := Info{Name: name, Size: st.Size, Time: mtime(st)}
	i.Version = version(i.Time)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		i.Dir, i.Size, i.ID = true, 0, [2]uint64{st.Dev, st.Ino}
	default:
		i.Size, i.Other = 0, notRegular(st.Mode).kind()
	}
	return i
}

// List is Source's. Links are followed; a link that leads nowhere is yielded as
// an empty file without a version, because it is there and cannot be read.
func (f *File) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		at := prefix
		if at == "" {
			at = "."
		}
		dir, err := os.OpenFile(at, unix.O_DIRECTORY, 0) // a FIFO would wait for its writer
		if err != nil {
			yield(Info{}, failed(prefix, -1, err))
			return
		}
		defer dir.Close()
		names, err := dir.Readdirnames(-1)
		if err != nil {
			yield(Info{}, failed(prefix, -1, err))
			return
		}
		slices.Sort(names)
		base := prefix
		if base != "" && base[len(base)-1] != '/' {
			base += "/"
		}
		for i, name := range names {
			if i&255 == 0 && ctx.Err() != nil {
				yield(Info{}, ctx.Err())
				return
			}
			var st unix.Stat_t
			switch err := statat(int(dir.Fd()), name, &st); err {
			case nil:
				if !yield(info(base+name, &st), nil) {
					return
				}
			case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
				if !yield(Info{Name: base + name}, nil) {
					return
				}
			default:
				if !yield(Info{}, failed(base+name, -1, err)) {
					return
				}
			}
		}
	}
}

// Names is Namer's. It asks for no more than the folder itself holds.
func (f *File) Names(ctx context.Context, prefix string) ([]Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	at, base := prefix, prefix
	if at == "" {
		at = "."
	} else if base[len(base)-1] != '/' {
		base += "/"
	}
	dir, err := os.OpenFile(at, unix.O_DIRECTORY, 0) // a FIFO would wait for its writer
	if err != nil {
		return nil, failed(prefix, -1, err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, failed(prefix, -1, err)
	}
	all := make([]Info, len(entries))
	for i, e := range entries {
		all[i] = Info{Name: base + e.Name(), Dir: e.IsDir()}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			all[i].Other = Symlink
		case !e.IsDir() && !e.Type().IsRegular():
			all[i].Other = other(e.Type())
		}
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func other(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return notRegular(unix.S_IFIFO).kind()
	case m&fs.ModeSocket != 0:
		return notRegular(unix.S_IFSOCK).kind()
	}
	return notRegular(unix.S_IFBLK).kind()
}
