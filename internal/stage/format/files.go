package format

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"path"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
)

// The life of a list of stored files that hold samples: Absolute, Stat, Settled
// around the reading of each, Describe into the index; Fresh when it is opened
// again.

// Absolute is the paths by which an index is kept.
func Absolute(paths []string) ([]string, error) {
	out := make([]string, len(paths))
	for i, p := range paths {
		var err error
		if out[i], err = source.Abs(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// InShard is an error of a source, which knows files only, as one of a file that
// holds samples.
func InShard(err error) error {
	e := *errs.From(err)
	if e.Code == errs.Bug {
		return err // of a context, or of ours
	}
	if e.Where.File != "" {
		e.Where.File, e.Where.Shard = "", e.Where.File
	}
	return &e
}

// Stat looks at every file; kind is what a user calls one ("tar file"), for the
// errors of one that is missing or a folder.
func Stat(ctx context.Context, src source.Source, paths []string, kind string) ([]source.Info, error) {
	objs := make([]source.Info, len(paths))
	lowest, first := len(paths), error(nil)
	err := source.Stats(ctx, src, paths, func(i int, st source.Info, err error) error {
		objs[i] = st
		at := errs.Where{Shard: paths[i]}
		switch {
		case err != nil && errs.CodeOf(err) == errs.NotFound:
			err = errs.New(errs.NotFound, "there is no %s %q", kind, paths[i]).At(at).Because(errs.From(err).Cause)
		case err != nil:
			err = InShard(err)
		case st.Dir:
			err = errs.New(errs.Config, "%q is a folder, not a %s", paths[i], kind).At(at).
				Try("for the files in it write %s/*%s", strings.TrimRight(paths[i], "/"), path.Ext(paths[i]))
		}
		if err != nil && i < lowest {
			lowest, first = i, err // the error that a user sees does not depend on timing
		}
		return nil
	})
	if e := (*errs.Error)(nil); errors.As(first, &e) && e.Code == errs.NotFound {
		first = e.Try("%s", pattern.Suggest(ctx, src, paths[lowest]))
	}
	return objs, cmp.Or(first, err)
}

// Mark is a version as a number, for a column of a format's own; 0 if there is none.
func Mark(version string) int64 {
	switch len(version) {
	case 0:
		return 0
	case 8: // a local file's: the number that it was made of
		return int64(binary.LittleEndian.Uint64([]byte(version)))
	}
	return int64(xxhash.Sum64String(version))
}

// pinned says whether every read of an object is held against a version that is more than
// a time: then what was read is one object's, and no second look is needed.
func pinned(obj source.Info) bool { return obj.Version != "" && obj.Time == 0 }

// Settled calls read once the file's time is old enough to be a witness, and fails if
// the file was written to in the meantime: what read found would be half of the old
// file and half of the new one.
func Settled(ctx context.Context, src source.Source, obj source.Info, read func() error) error {
	if err := source.Settle(ctx, obj); err != nil {
		return err
	}
	if err := read(); err != nil || pinned(obj) {
		return err
	}
	now, err := src.Stat(ctx, obj.Name)
	if err != nil {
		return InShard(err)
	}
	if now.Size != obj.Size || now.Version != obj.Version {
		return errs.New(errs.Changed, "the file is being written to").
			At(errs.Where{Shard: obj.Name}).Try("wait until the dataset is complete")
	}
	return nil
}

// Describe adds the columns of files to an index, with the deepest folder that
// holds all of them as its root.
func Describe(b *index.Builder, objs []source.Info) {
	paths := make([]string, len(objs))
	for i, o := range objs {
		paths[i] = o.Name
	}
	root := Folder(paths)
	var names index.Texts
	sizes, versions := make([]int64, len(objs)), make([]string, len(objs))
	for i, o := range objs {
		name := paths[i][len(root):]
		if root != "" {
			name = strings.TrimPrefix(name, "/")
		}
		names.AppendString(name)
		sizes[i], versions[i] = o.Size, o.Version
	}
	b.Meta.Root = root
	b.Strings(index.FileName, &names, index.Identity)
	b.Int64s(index.FileSize, sizes, index.Identity)
	b.Versions(versions)
}

// Folder returns the deepest folder that holds all paths, or "" if there is none.
func Folder(paths []string) string {
	dir := paths[0][:strings.LastIndexByte(paths[0], '/')+1]
	for _, p := range paths[1:] {
		for !strings.HasPrefix(p, dir) {
			dir = dir[:strings.LastIndexByte(strings.TrimSuffix(dir, "/"), '/')+1]
		}
	}
	if len(dir) > 1 && !strings.HasSuffix(dir, "//") {
		dir = strings.TrimSuffix(dir, "/")
	}
	return dir
}

// Fresh says whether the files are those of the index, by name, size and version.
func Fresh(ctx context.Context, src source.Source, paths []string, x *index.Index) bool {
	if x.Files() != len(paths) {
		return false
	}
	for i := range paths {
		if string(x.AppendPath(i, nil)) != paths[i] {
			return false
		}
	}
	stale := errs.New(errs.Changed, "stale")
	return source.Stats(ctx, src, paths, func(i int, st source.Info, err error) error {
		if err != nil {
			return err
		}
		if size, version := x.Stamp(i); st.Size != size || st.Version != version {
			return stale
		}
		return nil
	}) == nil
}

// Read is n bytes of a file at off, for a build; n is checked against the file's
// size before it is allocated.
func Read(ctx context.Context, src source.Source, obj source.Info, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > obj.Size || n > obj.Size-off {
		return nil, errs.New(errs.Damaged, "the file ends at byte %d, and %d bytes should be at %d", obj.Size, n, off).
			At(errs.Where{Shard: obj.Name, Offset: errs.Known(max(off, 0))}).Try("fetch or write the file again")
	}
	p := make([]byte, n)
	if err := src.ReadAt(ctx, obj, p, off); err != nil {
		return nil, InShard(err)
	}
	return p, nil
}
