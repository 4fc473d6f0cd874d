package index

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// An index may be stored beside its data too, to travel with it: to another machine,
// into another folder or store, over a copy that gives the files new times. There it
// has no root and no versions, but a fingerprint of every file, and is never used in
// place: whoever opens the dataset reads it through the data's source and adopts it
// into its own store, with the root and the versions that hold there, once sizes and
// fingerprints were compared.

// FilePrint is a column of an index beside its data: int64, for every stored file
// a fingerprint of its bytes. What it covers is the format's business. An index that was
// adopted keeps it; one that was built has none.
const FilePrint = "file.print"

// BesideDir is the folder, below that of the data, which holds indexes.
const BesideDir = ".stoker"

// Beside is how the index beside the data is found and held against them.
type Beside struct {
	Source source.Source // of the data
	Path   string        // where it would be
	// Stamp is the folder of the data and the versions of its files, here; false: the
	// index does not describe them.
	Stamp func(x *Index) (root string, versions []string, ok bool)
}

// BesidePath is where the index of those files below root is: a function of
// format, options and names relative to root, and of nothing else.
func BesidePath(root, format, options string, names []string) string {
	h := sha256.New()
	fmt.Fprintf(h, "beside, layout %d\n%q %q\n", layoutVersion, format, options)
	for _, n := range names {
		fmt.Fprintf(h, "%q\n", n)
	}
	return source.Join(root, BesideDir, hex.EncodeToString(h.Sum(nil)[:16])+".idx")
}

// WriteBeside writes x to path as an index that can travel, with a fingerprint of
// every stored file. Errors: unsupported (the data are not local files), unreadable
// (the folder cannot be written to).
func (x *Index) WriteBeside(path string, prints []int64) error {
	if scheme := source.SchemeOf(path); scheme != "" {
		return errs.New(errs.Unsupported, "an index can be written beside local files only, and these are in %s://", scheme).At(in(path)).
			Try("write it beside a local copy of the data, and copy the folder %s to where the data are", BesideDir)
	}
	b, err := x.copied("", nil)
	if err != nil {
		return failed(path, err)
	}
	b.Int64s(FilePrint, prints, Aside)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return failed(path, err)
	}
	if err := replace(path, b); err != nil {
		return failed(path, err)
	}
	// It travels with data that others read; a temporary file is its owner's.
	if err := os.Chmod(path, 0o644); err != nil {
		return failed(path, err)
	}
	return nil
}

// adopt is the index beside the data as one of this store, kept by keep; nil:
// there is none, or none that describes what is there. It came with the data and
// is trusted as little: the format looks at it as at any other.
func adopt(ctx context.Context, p Plan, keep func(*Builder) (*Index, error)) *Index {
	if p.Beside.Path == "" {
		return nil
	}
	x, err := fetched(ctx, p.Beside.Source, p.Beside.Path)
	if err != nil {
		return nil
	}
	defer x.Close()
	if x.meta.Format != p.Key.Format || x.meta.Options != p.Key.Options || len(x.Int64s(FilePrint)) != x.Files() {
		return nil
	}
	root, versions, ok := p.Beside.Stamp(x)
	if !ok {
		return nil
	}
	b, err := x.copied(root, versions)
	if err != nil {
		return nil
	}
	mine, err := keep(b)
	if err != nil {
		return nil
	}
	if !p.Fresh(mine) {
		_ = mine.Invalidate()
		_ = mine.Close()
		return nil
	}
	return mine
}

// fetched is a stored index as a copy in memory, to be closed as any. Its errors say
// only why there is none: another is built.
func fetched(ctx context.Context, src source.Source, name string) (*Index, error) {
	st, err := src.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	var head [headerLen]byte
	if st.Dir || st.Size < headerLen || st.Size != int64(int(st.Size)) {
		return nil, fmt.Errorf("%d bytes are too few for a header", st.Size)
	}
	if err := src.ReadAt(ctx, st, head[:], 0); err != nil {
		return nil, err
	}
	if err := checkHeader(head[:], st.Size); err != nil {
		return nil, err // before room is taken for all of it
	}
	data, err := unix.Mmap(-1, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, errs.New(errs.Memory, "there is no room for the index of %d bytes", st.Size).At(in(name)).Because(err)
	}
	err = src.ReadAt(ctx, st, data, 0)
	var x *Index
	if err == nil {
		x, err = view(data)
	}
	if err != nil {
		_ = unix.Munmap(data)
		return nil, err
	}
	return x, nil
}

// copied is a builder that holds the columns of x, with another root and other
// versions (nil: none). Fingerprints stay if there are versions: they were compared, and say
// which files facts that travel with the data are about.
func (x *Index) copied(root string, versions []string) (*Builder, error) {
	m, _, err := parse(x.data)
	if err != nil {
		return nil, err
	}
	b := &Builder{Meta: m.Meta, digested: m.Digest}
	b.Meta.Root = root
	for _, c := range m.Columns {
		switch {
		case c.Name == FilePrint && versions == nil, c.Name == FileVersion, c.Name == FileMTime && versions != nil:
			continue
		}
		raw := x.data[c.Off : c.Off+c.size()]
		if c.Name == FileMTime {
			raw = make([]byte, len(raw))
		}
		b.add(c, Aside, slices.Clip(raw))
	}
	if versions != nil {
		b.Versions(versions)
	}
	return b, nil
}
