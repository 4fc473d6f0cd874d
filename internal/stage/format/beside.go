package format

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/browse"
)

// printBytes is what a fingerprint reads at the beginning, in the middle and at
// the end of a file: a copy that was cut, filled with zeros or made of another
// version differs there in all formats that keep a table at either end. What it
// does not see, the checks of every read do: a fingerprint of all bytes would
// cost what indexing costs.
const printBytes = 16 << 10

// Beside is the plan for an index that is stored with its files, given by their
// absolute paths.
func Beside(ctx context.Context, src source.Source, key index.Key) index.Beside {
	if len(key.Paths) == 0 {
		return index.Beside{}
	}
	root, names := relative(key.Paths)
	if root == "" {
		return index.Beside{}
	}
	return index.Beside{
		Source: src,
		Path:   index.BesidePath(root, key.Format, key.Options, names),
		Stamp: func(x *index.Index) (string, []string, bool) {
			if x.Files() != len(names) {
				return "", nil, false
			}
			for i, name := range names {
				if string(x.Name(i)) != name {
					return "", nil, false
				}
			}
			versions, ok := unchanged(ctx, src, key.Paths, x)
			return root, versions, ok
		},
	}
}

// BesideIn is Beside for a dataset that is given as its folder, the only path of
// the key: the names of its files are those that the index has.
func BesideIn(ctx context.Context, src source.Source, key index.Key) index.Beside {
	root := source.Clean(key.Paths[0])
	return index.Beside{
		Source: src,
		Path:   index.BesidePath(root, key.Format, key.Options, nil),
		Stamp: func(x *index.Index) (string, []string, bool) {
			paths := make([]string, x.Files())
			for i := range paths {
				name := string(x.Name(i))
				if !source.Inside(name) {
					return "", nil, false
				}
				paths[i] = source.Join(root, name)
			}
			versions, ok := unchanged(ctx, src, paths, x)
			return root, versions, ok
		},
	}
}

// unchanged is the versions of files whose sizes and fingerprints are those of an
// index beside them; false: some are not.
func unchanged(ctx context.Context, src source.Source, paths []string, x *index.Index) ([]string, bool) {
	objs, prints, err := Fingerprints(ctx, src, paths)
	if err != nil {
		return nil, false
	}
	want := x.Int64s(index.FilePrint)
	versions := make([]string, len(objs))
	for i, obj := range objs {
		size, _ := x.Stamp(i)
		if size != obj.Size || want[i] != prints[i] {
			return nil, false
		}
		versions[i] = obj.Version
	}
	return versions, true
}

// relative returns the deepest folder that holds all files, and their names below it;
// root is "" if there is none: files of two hosts, buckets or repositories of the Hub have none.
func relative(paths []string) (root string, names []string) {
	store := source.StoreOf(paths[0])
	for _, p := range paths[1:] {
		if source.StoreOf(p) != store {
			return "", nil
		}
	}
	root = Folder(paths)
	if root == "" {
		return "", nil
	}
	for _, p := range paths {
		names = append(names, strings.TrimPrefix(strings.TrimPrefix(p, root), "/"))
	}
	if !strings.HasSuffix(root, "//") { // of keys, whose folder has no name
		root = source.Clean(root)
	}
	return root, names
}

// Fingerprints stats the files and reads a little of each.
func Fingerprints(ctx context.Context, src source.Source, paths []string) ([]source.Info, []int64, error) {
	objs := make([]source.Info, len(paths))
	prints := make([]int64, len(paths))
	if err := source.Stats(ctx, src, paths, func(i int, st source.Info, err error) error {
		if objs[i] = st; err != nil {
			return InShard(err)
		}
		return nil
	}); err != nil || len(paths) == 0 {
		return objs, prints, err
	}
	err := EachOf(ctx, src, paths[0], len(paths), func(i int) error {
		obj := objs[i]
		if obj.Dir {
			return errs.New(errs.Config, "%q is a folder", paths[i])
		}
		h := xxhash.New()
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(obj.Size))
		_, _ = h.Write(size[:])
		n := min(obj.Size, printBytes)
		for _, off := range []int64{0, (obj.Size - n) / 2, obj.Size - n} {
			p, err := Read(ctx, browse.Direct(src), obj, off, n)
			if err != nil {
				return err
			}
			_, _ = h.Write(p)
		}
		prints[i] = int64(h.Sum64())
		return nil
	})
	return objs, prints, err
}

// WriteBeside writes an index next to the files that it describes, and returns
// where. Errors: config (the files have no folder in common), changed (they are
// no longer those of the index), unreadable.
func WriteBeside(ctx context.Context, src source.Source, x *index.Index) (string, error) {
	paths := make([]string, x.Files())
	for i := range paths {
		paths[i] = string(x.AppendPath(i, nil))
	}
	objs, prints, err := Fingerprints(ctx, src, paths)
	if err != nil {
		return "", err
	}
	for i, obj := range objs {
		if size, version := x.Stamp(i); obj.Size != size || version != "" && obj.Version != version {
			return "", errs.New(errs.Changed, "the file was written to after it was indexed").
				At(errs.Where{Shard: obj.Name}).Try("wait until the dataset is complete, and index it again")
		}
	}
	at := BesidePath(x)
	if at == "" {
		return "", errs.New(errs.Config, "the files have no common folder in which their index could be stored").At(errs.Where{Shard: paths[0]}).
			Try("put them below one folder")
	}
	return at, x.WriteBeside(at, prints)
}

// BesidePath is where an index is, or would be, beside its files; "" if they have no
// folder in common.
func BesidePath(x *index.Index) string {
	paths := make([]string, x.Files())
	for i := range paths {
		paths[i] = string(x.AppendPath(i, nil))
	}
	root, names := relative(paths)
	switch x.Meta().Format {
	case "folder":
		root = source.Dir(x.Meta().Root) // in a folder of classes it would be a class
	case "mds":
		root, names = source.Clean(x.Meta().Root), nil // as BesideIn looks for it
	}
	if root == "" {
		return ""
	}
	return index.BesidePath(root, x.Meta().Format, x.Meta().Options, names)
}

// LocalBesidePath is BesidePath if the files are local; "" if they are not.
func LocalBesidePath(x *index.Index) string {
	at := BesidePath(x)
	if source.SchemeOf(at) != "" {
		return ""
	}
	return at
}
