package index

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Columns that every index has; each row is one stored file, in order.
const (
	FileName    = "file.name"    // strings: path relative to Meta.Root
	FileSize    = "file.size"    // int64: bytes
	FileMTime   = "file.mtime"   // int64: versions of 8 bytes, as numbers (Unix nanoseconds of local files); 0, or left out: not watched
	FileVersion = "file.version" // strings: versions, in place of file.mtime, where one has another length
	ClassName   = "class.name"   // strings, where samples have classes: name of each
	SampleClass = "sample.class" // int32, beside class.name: number of the class of each sample
)

// Index is an open index; safe for concurrent use. What it returns as slices are
// views of the mapping: valid until Close, and not to be written to.
type Index struct {
	path  string // "": an index without a name
	dev   uint64
	ino   uint64
	data  []byte
	meta  Meta
	parts map[string]part

	names    Strings
	sizes    []int64
	mtimes   []int64
	versions Strings
	note     string
	once     sync.Once
}

// Open maps the index at path and checks it whole. Errors: not_found, unreadable,
// damaged.
func Open(path string) (*Index, error) {
	f, err := source.Open(path)
	if err != nil {
		code := errs.Unreadable
		if errors.Is(err, fs.ErrNotExist) {
			code = errs.NotFound
		}
		return nil, errs.New(code, "the index cannot be opened").At(in(path)).Because(err)
	}
	defer f.Close()
	return openFile(f, path)
}

func in(path string) errs.Where { return errs.Where{File: path} }

// openFile maps f, which the caller goes on to own.
func openFile(f *os.File, path string) (*Index, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, errs.New(errs.Unreadable, "the index cannot be opened").At(in(path)).Because(err)
	}
	damaged := func(err error) error {
		return errs.New(errs.Damaged, "the index is damaged").At(in(path)).Because(err).Try("remove the file; it is built again when it is missing")
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, damaged(errors.New("it is not a regular file"))
	}
	if st.Size < headerLen || st.Size != int64(int(st.Size)) {
		return nil, damaged(errors.New("it is too short for a header"))
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errs.New(errs.Unreadable, "the index cannot be mapped").At(in(path)).Because(err)
	}
	x, err := view(data)
	if err != nil {
		_ = unix.Munmap(data)
		return nil, damaged(err)
	}
	x.path, x.dev, x.ino = path, st.Dev, st.Ino
	return x, nil
}

// view makes an Index of the bytes of a file, or says what is wrong with them.
func view(data []byte) (*Index, error) {
	m, parts, err := parse(data)
	if err != nil {
		return nil, err
	}
	x := &Index{data: data, meta: m.Meta, parts: parts}
	x.names, x.sizes, x.mtimes = x.Strings(FileName), x.Int64s(FileSize), x.Int64s(FileMTime)
	x.versions = x.Strings(FileVersion)
	switch {
	case m.Samples < 0:
		return nil, errors.New("a negative number of samples")
	case len(x.sizes) != x.names.Len(), x.mtimes != nil && len(x.mtimes) != len(x.sizes),
		x.versions.Len() > 0 && (x.versions.Len() != len(x.sizes) || x.mtimes != nil):
		return nil, errors.New("the columns of its files differ in length")
	}
	for _, n := range x.sizes {
		if n < 0 {
			return nil, errors.New("a negative size of a file")
		}
	}
	return x, nil
}

// Len is the number of samples.
func (x *Index) Len() int64 { return x.meta.Samples }

// Files is the number of stored files.
func (x *Index) Files() int { return len(x.sizes) }

// AppendPath appends the absolute path of a stored file.
func (x *Index) AppendPath(file int, dst []byte) []byte {
	if x.meta.Root != "" {
		dst = append(dst, x.meta.Root...)
		if dst[len(dst)-1] != '/' {
			dst = append(dst, '/')
		}
	}
	return append(dst, x.names.At(file)...)
}

// Name is the name of a stored file below the root, a view.
func (x *Index) Name(file int) []byte { return x.names.At(file) }

// Stamp is the size in bytes and the version ("": not watched) that a stored file had
// when it was indexed. The version is a view.
func (x *Index) Stamp(file int) (size int64, version string) {
	switch {
	case x.mtimes != nil && x.mtimes[file] != 0:
		version = unsafe.String((*byte)(unsafe.Pointer(&x.mtimes[file])), 8)
	case x.versions.Len() > 0:
		v := x.versions.At(file)
		version = unsafe.String(unsafe.SliceData(v), len(v))
	}
	return x.sizes[file], version
}

// Watched says whether the index has a column of versions.
func (x *Index) Watched() bool {
	return len(x.mtimes) == x.Files() || x.versions.Len() == x.Files()
}

// Int64s is the column of that name; nil where there is none of this kind.
func (x *Index) Int64s(name string) []int64 {
	if p := x.parts[name]; p.Kind == kindInt64 {
		return int64s(p.data)
	}
	return nil
}

// Int32s is the column of that name; nil where there is none of this kind.
func (x *Index) Int32s(name string) []int32 {
	if p := x.parts[name]; p.Kind == kindInt32 {
		return int32s(p.data)
	}
	return nil
}

// Bytes is the column of that name; nil where there is none of this kind.
func (x *Index) Bytes(name string) []byte {
	if p := x.parts[name]; p.Kind == kindBytes {
		return p.data
	}
	return nil
}

// Strings is the column of that name; one without rows where there is none of
// this kind.
func (x *Index) Strings(name string) Strings {
	if p := x.parts[name]; p.Kind == kindStrings {
		return Strings{off: int64s(p.data), text: p.text}
	}
	return Strings{}
}

// Strings is a column of texts.
type Strings struct {
	off  []int64 // one more than there are rows; nil: no rows
	text []byte
}

// Len is the number of rows.
func (s Strings) Len() int { return max(len(s.off)-1, 0) }

// At is row i, a view.
func (s Strings) At(i int) []byte {
	return s.text[s.off[i]:s.off[i+1]:s.off[i+1]]
}

// Classes are the names of the classes in order of their numbers, as a copy; nil
// where the format has none.
func (x *Index) Classes() []string {
	c := x.Strings(ClassName)
	if c.Len() == 0 {
		return nil
	}
	names := make([]string, c.Len())
	for i := range names {
		names[i] = string(c.At(i))
	}
	return names
}

// Digest names the contents of the dataset, 32 hex digits: equal on every machine
// that has the same files below whatever path. See Builder.
func (x *Index) Digest() string { return x.meta.Digest }

// Meta is what the index says of itself.
func (x *Index) Meta() Meta { return x.meta }

// Path is where the index is kept; "" where it could not be kept.
func (x *Index) Path() string { return x.path }

// Note is what the user should know of the dataset (Meta.Note) and of how the
// index was come by ("the cache folder is not writable, so ..."); "" as a rule.
func (x *Index) Note() string {
	if x.note != "" && x.meta.Note != "" {
		return x.meta.Note + "; " + x.note
	}
	return x.meta.Note + x.note
}

// Invalidate removes the stored index, so that the next one to open the dataset
// builds it anew; one that somebody else has put in its place since stays. The
// open mapping stays whole.
func (x *Index) Invalidate() error {
	if x.path == "" {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(x.path, &st); err != nil || st.Dev != x.dev || st.Ino != x.ino {
		return nil //nolint:nilerr // gone already, which is what was wanted
	}
	if err := os.Remove(x.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.Unreadable, "the stale index cannot be removed").At(in(x.path)).Because(err)
	}
	return nil
}

// Close unmaps the index. Nothing that came out of it may be used afterwards; a
// second Close does nothing.
func (x *Index) Close() error {
	var err error
	x.once.Do(func() { err = unix.Munmap(x.data) })
	return err
}
