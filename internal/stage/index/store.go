package index

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Progress is told how far a build is, from any goroutine, one call at a time.
// total is 0 where it is not known; what names the unit ("files", "bytes").
type Progress func(done, total int64, what string)

// Store is the folder in which indexes are kept.
type Store struct {
	Dir string // "": none, every index is built for one use
}

// DefaultStore is the user's: $STOKER_CACHE, else stoker below $XDG_CACHE_HOME,
// else below ~/.cache.
func DefaultStore() Store {
	if dir := os.Getenv("STOKER_CACHE"); dir != "" {
		return Store{filepath.Join(dir, "index")}
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return Store{filepath.Join(dir, "stoker", "index")}
	}
	if home, err := os.UserHomeDir(); err == nil {
		return Store{filepath.Join(home, ".cache", "stoker", "index")}
	}
	return Store{}
}

// Key says what an index is of; equal keys share one file.
type Key struct {
	Format  string
	Options string   // of the format, in a canonical text
	Paths   []string // absolute
}

// Path is the file that holds the index of k.
func (s Store) Path(k Key) string {
	h := sha256.New()
	fmt.Fprintf(h, "layout %d\n%q %q\n", layoutVersion, k.Format, k.Options)
	for _, p := range k.Paths {
		fmt.Fprintf(h, "%q\n", p)
	}
	return filepath.Join(s.Dir, hex.EncodeToString(h.Sum(nil)[:16])+".idx")
}

// Plan is how one index comes to be.
type Plan struct {
	Key Key
	// Fresh says whether a stored index still describes what is there. It sees
	// only whole indexes.
	Fresh func(x *Index) bool
	// Build fills b. old is a whole index that is not fresh, or nil.
	Build func(ctx context.Context, old *Index, b *Builder) error
	// Beside is an index that may be stored with the data; the zero value: none.
	Beside Beside
	// Progress may be nil.
	Progress Progress
}

// Load opens the index of p.Key, building it where there is none, or one that is
// damaged or not fresh. Of any number of processes that ask at once one builds;
// the others wait for it and then use what it built. Where nothing can be kept,
// the index lives in an unnamed file and says so in its Note.
func (s Store) Load(ctx context.Context, p Plan) (*Index, error) {
	if s.Dir == "" {
		return s.unnamed(ctx, p, nil, errors.New("no home folder is known"))
	}
	path := s.Path(p.Key)
	x, old := s.stored(path, p)
	if x != nil {
		return x, nil
	}
	defer func() { closeOld(old) }()
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return s.unnamed(ctx, p, old, err)
	}
	unlock, err := lock(ctx, path+".lock", p.Progress)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return s.unnamed(ctx, p, old, err)
	}
	defer unlock()
	closeOld(old)
	if x, old = s.stored(path, p); x != nil {
		return x, nil // built by the one we waited for
	}
	keep := func(b *Builder) (*Index, error) {
		if err := replace(path, b); err != nil {
			return b.unnamed(err)
		}
		return Open(path)
	}
	if x := adopt(ctx, p, keep); x != nil {
		return x, nil
	}
	b, err := build(ctx, p, old)
	if err != nil {
		return nil, err
	}
	return keep(b)
}

func closeOld(x *Index) {
	if x != nil {
		_ = x.Close()
	}
}

// stored is the index at path: fresh, or whole but old, or neither.
func (s Store) stored(path string, p Plan) (fresh, old *Index) {
	x, err := Open(path)
	switch {
	case err != nil:
		return nil, nil
	case x.meta.Format != p.Key.Format || x.meta.Options != p.Key.Options:
		_ = x.Close()
		return nil, nil
	case p.Fresh(x):
		return x, nil
	}
	return nil, x
}

func build(ctx context.Context, p Plan, old *Index) (*Builder, error) {
	b := &Builder{Meta: Meta{Format: p.Key.Format, Options: p.Key.Options}}
	if err := p.Build(ctx, old, b); err != nil {
		return nil, err
	}
	return b, nil
}

// replace puts the index at path, whole or not at all, at any instant of a power
// cut: written beside it, flushed, renamed, and the rename flushed.
func replace(path string, b *Builder) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	tmp := f.Name()
	if err = b.write(f); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	sweep(path)
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}

// sweep removes what builders of this index that were killed left behind. The
// caller holds the lock, or there are no locks here and leftovers stay until
// they are an hour old.
func sweep(path string) {
	left, _ := filepath.Glob(path + ".*.tmp")
	for _, tmp := range left {
		if fi, err := os.Stat(tmp); err == nil && time.Since(fi.ModTime()) > time.Hour {
			_ = os.Remove(tmp)
		}
	}
}

// unnamed builds an index for one use.
func (s Store) unnamed(ctx context.Context, p Plan, old *Index, why error) (*Index, error) {
	keep := func(b *Builder) (*Index, error) { return b.unnamed(why) }
	if x := adopt(ctx, p, keep); x != nil {
		return x, nil
	}
	b, err := build(ctx, p, old)
	if err != nil {
		return nil, err
	}
	return keep(b)
}

func (b *Builder) unnamed(why error) (*Index, error) {
	f, err := unnamedFile()
	if err != nil {
		return nil, failed(os.TempDir(), err)
	}
	defer f.Close()
	if err := b.write(f); err != nil {
		return nil, failed(os.TempDir(), err)
	}
	x, err := openFile(f, "")
	if err != nil {
		return nil, err
	}
	x.note = fmt.Sprintf("the index could not be kept and is built anew every time: %v; set STOKER_CACHE to a folder that can be written to", why)
	return x, nil
}

// unnamedFile is a file that vanishes with its last user: in the folder for
// temporary files, or in memory where that cannot be written to either.
func unnamedFile() (*os.File, error) {
	if f, err := os.CreateTemp("", "stoker-*.idx"); err == nil {
		_ = os.Remove(f.Name())
		return f, nil
	}
	fd, err := unix.MemfdCreate("stoker-index", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "stoker-index"), nil
}

// lock takes the lock of a build and returns how to give it back. The kernel
// gives it back when its holder dies. The file stays: removing it would let two
// builders hold locks on two files of one name. A file system without locks
// gives none: then two may build, and the last rename wins.
func lock(ctx context.Context, path string, progress Progress) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	wait := time.Millisecond
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil, errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return func() { _ = f.Close() }, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			_ = f.Close()
			return nil, err
		}
		if progress != nil {
			progress(0, 0, "waiting for another process that is indexing the same data")
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, 100*time.Millisecond)
	}
}
