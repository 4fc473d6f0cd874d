package index

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// An index may lie beside its data too, to travel with it: to another machine,
// into another folder, over a copy that gives the files new times. There it has
// no root and no times, but a fingerprint of every file, and is never used in
// place: whoever opens the dataset adopts it into its own store, with the root
// and the times that hold there, once sizes and fingerprints were compared.

// FilePrint is a column of an index beside its data: int64, for every stored file
// a fingerprint of its bytes. What it covers is the format's business.
const FilePrint = "file.print"

// BesideDir is the folder, below that of the data, which holds indexes.
const BesideDir = ".stoker"

// Beside is how the index beside the data is found and held against them.
type Beside struct {
	Path string // where it would lie
	// Stamp is the folder and the times that the index has here; false: it does
	// not describe what is there.
	Stamp func(x *Index) (root string, mtimes []int64, ok bool)
}

// BesidePath is where the index of those files below root lies: a function of
// format, options and names relative to root, and of nothing else.
func BesidePath(root, format, options string, names []string) string {
	h := sha256.New()
	fmt.Fprintf(h, "beside, layout %d\n%q %q\n", layoutVersion, format, options)
	for _, n := range names {
		fmt.Fprintf(h, "%q\n", n)
	}
	return filepath.Join(root, BesideDir, hex.EncodeToString(h.Sum(nil)[:16])+".idx")
}

// WriteBeside writes x to path as an index that can travel, with a fingerprint of
// every stored file. Errors: unreadable (the folder can not be written to).
func (x *Index) WriteBeside(path string, prints []int64) error {
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
func adopt(p Plan, keep func(*Builder) (*Index, error)) *Index {
	if p.Beside.Path == "" {
		return nil
	}
	x, err := Open(p.Beside.Path)
	if err != nil {
		return nil
	}
	defer x.Close()
	if x.meta.Format != p.Key.Format || x.meta.Options != p.Key.Options || len(x.Int64s(FilePrint)) != x.Files() {
		return nil
	}
	root, mtimes, ok := p.Beside.Stamp(x)
	if !ok {
		return nil
	}
	b, err := x.copied(root, mtimes)
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

// copied is a builder that holds the columns of x, with another root and other
// times, and without fingerprints.
func (x *Index) copied(root string, mtimes []int64) (*Builder, error) {
	m, _, err := parse(x.data)
	if err != nil {
		return nil, err
	}
	b := &Builder{Meta: m.Meta, digested: m.Digest}
	b.Meta.Root = root
	for _, c := range m.Columns {
		switch {
		case c.Name == FilePrint:
			continue
		case c.Name == FileMTime && mtimes != nil:
			b.Int64s(c.Name, mtimes, Aside)
			continue
		}
		raw := x.data[c.Off : c.Off+c.size()]
		if c.Name == FileMTime {
			raw = make([]byte, len(raw))
		}
		b.add(c, Aside, slices.Clip(raw))
	}
	return b, nil
}
