package source

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// where copies the name: the caller's is valid only during the call.
func where(name string, off int64) errs.Where {
	return errs.Where{File: strings.Clone(name), Offset: errs.Known(off)}
}

// ErrNowhere is why a name that is there was not found.
var ErrNowhere = errors.New("it is a link that leads nowhere")

// ErrNoStore is why a name was not found if there is nothing of what it is in: no such
// repository, whose own error says best what to try.
var ErrNoStore = errors.New("there is no such store")

// notRegular is the mode of what was found where a file should be.
type notRegular uint32

func (m notRegular) Error() string { return "it is " + m.kind() }

func (m notRegular) kind() string {
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFIFO:
		return "a named pipe"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

// failed turns what the system said into an error with its place.
func failed(name string, off int64, err error) error {
	at := where(name, off)
	var kind notRegular
	if errors.Is(err, unix.ENXIO) { // what opening a socket says
		err = notRegular(unix.S_IFSOCK)
	}
	switch {
	case err == ErrNowhere:
		return errs.New(errs.NotFound, "there is no such file or folder").At(at).Because(err).
			Try("restore the file that the link points to, or remove the link")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENAMETOOLONG):
		return errs.New(errs.NotFound, "there is no such file or folder").At(at).Because(err).
			Try("if it was there when the dataset was indexed, it was removed or renamed since, or the file system that it is on is not mounted")
	case errors.As(err, &kind):
		e := errs.New(errs.Unreadable, "this is not a file that can be read").At(at).Because(err)
		if kind&unix.S_IFMT == unix.S_IFDIR {
			return e
		}
		return e.Try("samples are read in random order, which a pipe, socket or device does not allow: write its contents to a file")
	case errors.Is(err, fs.ErrPermission):
		return errs.New(errs.Unreadable, "reading is not allowed").At(at).Because(err).
			Try("give the user who runs this the right to read it (chmod, chown)")
	case errors.Is(err, unix.ELOOP):
		return errs.New(errs.Unreadable, "its symbolic links form a loop").At(at).Because(err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return errs.New(errs.Unreadable, "no further file can be opened").At(at).Because(err).
			Try("raise the limit of open files (ulimit -n)")
	}
	return errs.New(errs.Unreadable, "reading failed").At(at).Because(err).
		Try("see the system's log for errors of the disk or the network file system")
}

func changed(name, format string, a ...any) error {
	return errs.New(errs.Changed, "the file is not the one that was indexed: "+format, a...).At(where(name, -1)).
		Try("do not write to a dataset that is being read; open it again to index what changed")
}
