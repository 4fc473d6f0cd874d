package entries

import (
	"encoding/binary"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/facts"
	"github.com/stoker-data/stoker/internal/stage/index"
)

// Records travel with sharded data, beside the index that does (index.WriteBeside), in one
// sealed file. The times of a copy are others, so there a record belongs to a file of a name,
// a size and a fingerprint. Who adopts that index knows that the files are those, binds them to
// the versions that they have there, and keeps the fingerprints: so the file is used in place,
// and the records are never copied or read as a whole. An index that was not adopted has no
// fingerprints, so nothing that travels is used with it.

// besidePath is where records travel, beside an index.
func besidePath(index string) string { return strings.TrimSuffix(index, ".idx") + ".entries" }

// travelling is the File of the keys of a stored file where records travel.
func travelling(x *index.Index, file int, prints []int64) uint64 {
	size, _ := x.Stamp(file)
	var as [16]byte
	binary.LittleEndian.PutUint64(as[:8], uint64(size))
	binary.LittleEndian.PutUint64(as[8:], uint64(prints[file]))
	return FileKey(x.Name(file), string(as[:]))
}

// mark is the key of a fact that says of which dataset the others are. No picture is of 0
// bytes.
func mark(x *index.Index) facts.Key { return facts.Key{File: FileKey([]byte(x.Digest()), "dataset")} }

// prints are the fingerprints of an index; nil: it has none.
func prints(x *index.Index) []int64 {
	if all := x.Int64s(index.FilePrint); len(all) == x.Files() {
		return all
	}
	return nil
}

// openBeside opens the records that came with the data of an index, which is beside them at
// where(x), or would be; nil: there are none for this index. where is called only if there
// may be some; "": they cannot be mapped there. An error is one only if Options.Named is set.
func openBeside(x *index.Index, where func(*index.Index) string, o facts.Options) (*facts.Store, error) {
	if where == nil || prints(x) == nil {
		return nil, nil
	}
	at := where(x)
	if at == "" {
		return nil, nil
	}
	f, err := facts.OpenFile(besidePath(at), kind, o)
	if errs.CodeOf(err) == errs.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, ok := f.Append(nil, mark(x)); ok {
		return f, nil
	}
	whole := f.Counts().Files > 0 // else it was noticed
	_ = f.Close()
	if !whole {
		return nil, nil
	}
	other := errs.New(errs.Differs, "the entry points beside the data are not used: they are of another dataset, or of this one before it changed").
		At(errs.Where{File: besidePath(at)}).Try("write them again (stoker index --entries --beside), or remove the file")
	if o.Named {
		return nil, other
	}
	if o.Notice != nil {
		o.Notice(other.Error() + "; " + other.Hint)
	}
	return nil, nil
}

// join also uses the records that came with the data of an index; see openBeside.
func (s *Store) join(x *index.Index, where func(*index.Index) string, o facts.Options) error {
	f, err := openBeside(x, where, o)
	if f == nil {
		return err
	}
	s.beside, s.there = f, places(x, x)
	return nil
}

// places is, for every file of x, the File of its keys here and where records travel, by the
// index that has the fingerprints.
func places(x, printed *index.Index) map[uint64]uint64 {
	there := make(map[uint64]uint64, x.Files())
	var key uint64
	var path []byte
	all := prints(printed)
	for file := range x.Files() {
		key, path = FileOf(x, file, path)
		there[key] = travelling(printed, file, all)
	}
	return there
}

// appendRecord appends the record of k to dst, and says whether there is one. Those that were
// learned here have grown from those that came with the data.
func (s *Store) appendRecord(dst []byte, k facts.Key) ([]byte, bool) {
	dst, ok := s.facts.Append(dst, k)
	if ok || s.beside == nil {
		return dst, ok
	}
	if k.File, ok = s.there[k.File]; !ok {
		return dst, false
	}
	return s.beside.Append(dst, k)
}

// CanWriteBeside says why WriteBeside will not write beside an index: what is there is
// damaged, or of a later version.
func CanWriteBeside(at string) error {
	f, err := facts.OpenFile(besidePath(at), kind, facts.Options{What: what, Named: true})
	switch {
	case errs.CodeOf(err) == errs.NotFound:
		return nil
	case err == nil:
		err = f.Close()
	}
	return err
}

// WriteBeside writes the records of the files of x, as they are, beside an index of the same
// files that travels, and returns where. Errors: see facts.WriteFile.
func (s *Store) WriteBeside(x *index.Index, at string) (path string, err error) {
	b, err := index.Open(at)
	if err != nil {
		return "", err
	}
	defer b.Close()
	if prints(b) == nil || b.Files() != x.Files() || b.Digest() != x.Digest() {
		return "", errs.New(errs.Differs, "the index beside the data is of other data").At(errs.Where{File: at})
	}
	there := places(x, b)
	path = besidePath(at)
	return path, facts.WriteFile(path, kind, what, func(yield func(facts.Key, []byte) bool) {
		if !yield(mark(x), nil) {
			return
		}
		for k, record := range s.facts.All() {
			var ok bool
			if k.File, ok = there[k.File]; ok && !yield(k, record) {
				return
			}
		}
	})
}

// Stored is how many pictures of the data of an index have records, here and beside them, and
// the bytes of both. Nothing is made or merged. Records of files as they were before they
// changed count too: only the records themselves tell.
func Stored(x *index.Index, where func(*index.Index) string) (pictures, bytes int64) {
	if dir, _ := Folder(x, 0); dir != "" {
		pictures, bytes = facts.Stored(dir, kind)
	}
	if f, _ := openBeside(x, where, facts.Options{What: what}); f != nil {
		n := f.Counts()
		pictures, bytes = max(pictures, n.Found-1), bytes+n.Bytes
		_ = f.Close()
	}
	return pictures, bytes
}
