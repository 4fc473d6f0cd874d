package source

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a file that stoker keeps beside the data, such as an index or a
// manifest, for reading. What is not a regular file is refused: os.Open would wait
// for the writer of a FIFO for ever. Errors are *fs.PathError, as those of os.Open.
func Open(name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := unix.Open(name, flags, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(name, flags, 0)
	}
	if errors.Is(err, unix.ENXIO) { // what opening a socket says
		err = notRegular(unix.S_IFSOCK)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err = fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = notRegular(st.Mode)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// ReadFile is os.ReadFile of what Open opens.
func ReadFile(name string) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
