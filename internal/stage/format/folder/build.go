package folder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The columns beside those that every index has. A sample is a file, so that
// the columns of files are those of samples.
const (
	dirName  = "dir.name"  // strings: every folder below the root, "" is the root
	dirMTime = "dir.mtime" // int64: its version when it was listed (format.Mark: the time of a local folder); 0: it has none
)

func build(ctx context.Context, src source.Source, root string, opt Options, b *index.Builder) error {
	ext := opt.Extensions
	if len(ext) == 0 {
		ext = Extensions()
	}
	w := &walker{src: src, ext: ext, progress: opt.Progress}
	top, err := w.walk(ctx, root)
	if err != nil {
		return err
	}
	var (
		names, classes, dirs index.Texts
		sizes, marks         []int64
		versions             []string
		class                []int32
		empty                []string
		others               []other
	)
	dirs.AppendString("")
	marks = append(marks, top.mark)
	for _, c := range top.subs {
		classes.AppendString(c.rel)
		before := len(sizes)
		for _, d := range c.flatten() {
			dirs.AppendString(d.rel)
			marks = append(marks, d.mark)
			others = append(others, d.others...)
			slices.SortFunc(d.files, func(a, b file) int { return comparePython(a.name, b.name) })
			for _, f := range d.files {
				names.AppendString(join(d.rel, f.name))
				sizes, versions = append(sizes, f.size), append(versions, f.version)
				class = append(class, c.class)
			}
		}
		if len(sizes) == before {
			empty = append(empty, c.rel)
		}
	}
	if err := complaint(root, top, len(sizes), empty, ext, opt.AllowEmpty); err != nil {
		return err
	}
	b.Meta.Root, b.Meta.Samples, b.Meta.Fields = root, int64(len(sizes)), slices.Clone(all)
	if len(others) > 0 {
		b.Meta.Skipped = int64(len(others))
		b.Meta.Note = fmt.Sprintf("%s in %s and left out (the first is %s, %s): only files hold pictures",
			count(len(others), "pipe, socket or device was found", "pipes, sockets or devices were found"), root, others[0].rel, others[0].kind)
	}
	b.Strings(index.FileName, &names, index.Identity)
	b.Int64s(index.FileSize, sizes, index.Identity)
	b.Int32s(index.SampleClass, class, index.Identity)
	b.Strings(index.ClassName, &classes, index.Identity)
	b.Strings(dirName, &dirs, index.Aside)
	b.Int64s(dirMTime, marks, index.Aside)
	b.Versions(versions)
	return nil
}

// complaint is what is wrong with what was found, or nil.
func complaint(root string, top *dir, samples int, empty, ext []string, allowEmpty bool) error {
	at := errs.Where{File: root}
	switch {
	case len(top.subs) == 0 && top.loose > 0:
		return errs.New(errs.Empty, "%q has no class folder", root).At(at).
			Try("%s directly in it: put them in one folder per class, such as %s/cat/1.jpg", count(top.loose, "image is", "images are"), root)
	case len(top.subs) == 0:
		return errs.New(errs.Empty, "%q has no class folder", root).At(at).
			Try("a dataset of this kind is a folder with one folder of images per class, such as %s/cat/1.jpg", root)
	case samples == 0:
		return errs.New(errs.Empty, "there is no image below %q", root).At(at).
			Try("%s looked through; files count that end in %s", count(len(top.subs), "class folder was", "class folders were"), strings.Join(ext, ", "))
	case len(empty) > 0 && !allowEmpty:
		shown := empty
		if len(shown) > 10 {
			shown = append(slices.Clone(shown[:10]), "...")
		}
		return errs.New(errs.Empty, "%s without an image: %s", count(len(empty), "class", "classes"), strings.Join(shown, ", ")).At(at).
			Try("pass allow_empty=true if that is meant, or remove the folders; files count that end in %s", strings.Join(ext, ", "))
	}
	return nil
}

// valid reports whether the columns fit together. An index that is whole but was not
// written by this package, in spite of its checksums, is rebuilt and does no harm.
func valid(x *index.Index) bool {
	class, classes := x.Int32s(index.SampleClass), x.Strings(index.ClassName).Len()
	if int64(x.Files()) != x.Len() || len(class) != x.Files() || !x.Watched() || len(x.Int64s(dirMTime)) != x.Strings(dirName).Len() {
		return false
	}
	for _, c := range class {
		if uint32(c) >= uint32(classes) {
			return false
		}
	}
	return x.Len() > 0
}

// fresh says whether every folder still has the version that it had: a file that is
// added, removed or renamed gives its folder a new one. Folders of a store that gives
// them no versions have to be listed again.
func fresh(ctx context.Context, src source.Source, root string, x *index.Index) bool {
	names, marks := x.Strings(dirName), x.Int64s(dirMTime)
	const run = 256 // folders looked at by one goroutine in one go
	err := format.Each(ctx, (len(marks)+run-1)/run, func(i int) error {
		path := append([]byte(root), '/')
		for j := i * run; j < min((i+1)*run, len(marks)); j++ {
			path = append(path[:len(root)+1], names.At(j)...)
			st, err := src.Stat(ctx, strings.TrimSuffix(string(path), "/"))
			if err != nil {
				return err
			}
			if !st.Dir || st.Version == "" || format.Mark(st.Version) != marks[j] {
				return errs.New(errs.Changed, "stale")
			}
		}
		return nil
	})
	return err == nil
}
