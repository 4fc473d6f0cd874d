package dataset

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// finder resolves the names of a Spec, for one Open.
type finder struct {
	ctx context.Context
	src source.Source
	all []Format
}

// sniff decides the format of expanded paths. A folder that contains only files of one
// format, and no folder, is replaced by its files.
func (f finder) sniff(name string, paths []string) (*Format, []string, error) {
	known, all := f.all, f.all
	if name != "" && name != "auto" {
		kind := &all[slices.IndexFunc(all, func(f Format) bool { return f.Name == name })]
		if kind.Root && len(paths) != 1 {
			return kind, nil, errs.New(errs.Config, "a %s dataset has one root, and %d paths were given", name, len(paths)).
				Try("give the folder that holds all of it")
		}
		if len(paths) == 1 && kind.List != nil && f.isDir(paths[0]) {
			files, err := kind.List(f.ctx, f.src, paths[0])
			return kind, files, err
		}
		if len(paths) == 1 && !kind.Root && f.isDir(paths[0]) {
			only := []Format{*kind}
			files, err := f.filesIn(paths[0], only)
			if err == nil && len(files) == 0 {
				if _, files, err = f.inner(paths[0], only); err != nil {
					return kind, nil, err
				}
			}
			if err == nil && len(files) > 0 {
				paths = files[0].paths
			}
		}
		return kind, paths, nil
	}
	all = slices.DeleteFunc(slices.Clone(all), func(f Format) bool { return f.Named || f.Made })
	if len(paths) == 1 && f.isDir(paths[0]) {
		return f.sniffFolder(paths[0], all)
	}
	var kind *Format
	last := ""
	for _, p := range paths {
		ext := path.Ext(source.Unquery(p))
		if kind != nil && ext == last && ext != "" {
			continue // like the file before it
		}
		head, err := f.headOf(p)
		if err != nil {
			return kind, nil, err
		}
		i := kindOf(all, p, head)
		if i < 0 {
			i = kindByName(all, p) // damaged, and its format says where
		}
		switch {
		case len(paths) > 1 && f.isDir(p):
			return kind, nil, errs.New(errs.Config, "%d paths were given, and one of them, %s, is a folder", len(paths), p).
				At(errs.Where{File: p}).Try("give one folder, or files of one format")
		case i < 0 && len(paths) > 1 && f.isEmpty(p):
			continue // the others say what it is one of
		case i < 0:
			return nil, nil, unknown(known, p)
		case kind != nil && kind.Name != all[i].Name:
			return kind, nil, errs.New(errs.Config, "%s is %s, and %s is %s", paths[0], kind.Name, p, all[i].Name).
				Try("one dataset has one format: make a mixture of two, or pass format=")
		}
		kind, last = &all[i], ext
	}
	if kind == nil {
		return nil, nil, unknown(known, paths[0])
	}
	return kind, paths, nil
}

func unknown(all []Format, name string) error {
	if isArrow(name) {
		return errs.New(errs.Unsupported, "%s is a file of Arrow tables, which stoker does not read", name).At(errs.Where{File: name}).
			Try("write it as Parquet once (pyarrow.parquet.write_table), and load that: stoker.ParquetDataset(\"data.parquet\")")
	}
	words, rest := called(all)
	return errs.New(errs.Config, "the format of %s is not known", name).
		Try("a dataset is %s, or files of one of the formats %s; pass format= if the name does not say", strings.Join(words, ", "), strings.Join(rest, ", "))
}

// called returns what datasets of stored formats are called: words for some, the names of
// the other formats.
func called(all []Format) (words, rest []string) {
	for _, f := range all {
		switch {
		case f.Made:
		case f.Words != "":
			words = append(words, f.Words)
		default:
			rest = append(rest, f.Name)
		}
	}
	return words, rest
}

func (f finder) isEmpty(name string) bool {
	st, err := f.src.Stat(f.ctx, name)
	return err == nil && !st.Dir && st.Size == 0
}

func (f finder) isDir(name string) bool { return source.IsDir(f.ctx, f.src, name) }

// headBytes is how much of a file is read to detect its format.
const headBytes = 4096

// headOf is the first bytes of a file; empty if it cannot be read, which its format will
// report. Anything but a file (a pipe, a socket, a device) is an error.
func (f finder) headOf(name string) ([]byte, error) {
	head := make([]byte, headBytes)
	n, err := source.Head(f.ctx, f.src, name, head)
	if err == nil {
		return head[:n], nil
	}
	if _, e := f.src.Stat(f.ctx, name); errs.CodeOf(e) == errs.Unreadable {
		return nil, err
	}
	return nil, f.ctx.Err()
}

// found is the files of one format in a folder.
type found struct {
	kind  *Format
	paths []string
}

// firstLooks is how many files with one ending are matched against the formats before
// the ending is taken to belong to none.
const firstLooks = 16

// sharded matches the part of a name that distinguishes the shards of a dataset: after
// their ending, or in names without one.
var sharded = regexp.MustCompile(`([-_.]\d+)?-of-\d+$|^\.?\d+$`)

// ending is the part of the name that files of one kind share: the last extension, with
// the one before it if the last only names a compression. Numbered shards without an
// extension have their name without the number.
func ending(name string) (all, packing string) {
	base := strings.ToLower(path.Base(name))
	for _, p := range []string{".gz", ".gzip", ".zst", ".zstd", ".lz4"} {
		if rest, ok := strings.CutSuffix(base, p); ok && rest != "" {
			base, packing = rest, p
			break
		}
	}
	ext := path.Ext(base)
	if e := sharded.ReplaceAllString(ext, ""); e != "" {
		return e + packing, packing
	}
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, base) + packing, packing
}

// kindOf is the index in kinds of the format that a file's name and first bytes suggest;
// -1: none.
func kindOf(kinds []Format, name string, head []byte) int {
	name = source.Unquery(name)
	return slices.IndexFunc(kinds, func(f Format) bool { return f.Sniff != nil && f.Sniff(name, head) })
}

// kindByName is the index in kinds of the format that a file's name alone suggests; -1:
// none.
func kindByName(kinds []Format, name string) int {
	name = source.Unquery(name)
	e, packing := ending(name)
	return slices.IndexFunc(kinds, func(f Format) bool {
		return slices.Contains(f.Endings, strings.TrimSuffix(e, packing)) || f.Sniff != nil && f.Sniff(name, nil)
	})
}

// filesIn is the files of a folder by format; empty if it contains a folder. A file
// whose first bytes match no format gets the format of most files with its ending, or
// the one that its ending names: it is damaged, and its format will say so.
func (f finder) filesIn(dir string, kinds []Format) (out []found, err error) {
	entries, err := source.Names(f.ctx, f.src, dir)
	if err != nil {
		return nil, err
	}
	var all []string
	of := map[string][]int{} // by ending: into all
	for _, e := range entries {
		base := e.Base()
		if strings.HasPrefix(base, ".") || slices.ContainsFunc(kinds, func(f Format) bool { return slices.Contains(f.Beside, base) }) {
			continue
		}
		name := source.Join(dir, base)
		if e.Dir || e.Other == source.Symlink && f.isDir(name) {
			return nil, nil
		}
		kind, _ := ending(name)
		of[kind] = append(of[kind], len(all))
		all = append(all, name)
	}
	// Each look at a file that is not local is a request or two: the first that says what it
	// is speaks for all with its ending.
	far := source.SchemeOf(dir) != ""
	kind := make([]int, len(all))
	for _, same := range of {
		count, most := make([]int, len(kinds)), -1
		for i, at := range same {
			if kind[at] = -1; most < 0 && i < firstLooks || most >= 0 && !far {
				head, _ := f.headOf(all[at]) // anything but a file is matched by name; its format refuses it
				kind[at] = kindOf(kinds, all[at], head)
			}
			if k := kind[at]; k >= 0 {
				count[k]++
				if most < 0 || count[k] > count[most] || count[k] == count[most] && k < most {
					most = k
				}
			}
		}
		if most < 0 {
			most = kindByName(kinds, all[same[0]])
		}
		for _, at := range same {
			if kind[at] < 0 {
				kind[at] = most
			}
		}
	}
	for i, name := range all {
		if kind[i] < 0 {
			continue
		}
		at := slices.IndexFunc(out, func(f found) bool { return f.kind.Name == kinds[kind[i]].Name })
		if at < 0 {
			at = len(out)
			out = append(out, found{kind: &kinds[kind[i]]})
		}
		out[at].paths = append(out[at].paths, name)
	}
	return out, f.ctx.Err()
}

// sniffFolder decides what a folder is.
func (f finder) sniffFolder(dir string, all []Format) (*Format, []string, error) {
	shards := slices.DeleteFunc(slices.Clone(all), func(f Format) bool { return f.Single })
	files, err := f.filesIn(dir, shards)
	if err == nil && len(files) == 0 {
		if dir, files, err = f.inner(dir, shards); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case f.ctx.Err() != nil:
		return nil, nil, f.ctx.Err()
	case err == nil && len(files) == 0 && f.isSaved(dir):
		return nil, nil, f.savedArrow(dir)
	case err != nil || len(files) == 0:
		return &all[0], []string{dir}, nil // its errors say what a folder should contain
	case len(files) > 1:
		var names []string
		for _, f := range files {
			names = append(names, path.Base(f.paths[0])+" ("+f.kind.Name+")")
		}
		return nil, nil, errs.New(errs.Config, "the format of %s is not clear: it holds %s", dir, strings.Join(names, ", ")).
			Try("give the files themselves, or pass format=")
	}
	if files[0].kind.Root {
		return files[0].kind, []string{dir}, nil
	}
	return files[0].kind, files[0].paths, nil
}

// inner is the folder "data" in a folder, or the only one there, with its files, if they
// are shards and the outer one has none: data beside a README, as in most repositories of
// the Hugging Face Hub. It is dir, and no files, if that is not so.
func (f finder) inner(dir string, shards []Format) (string, []found, error) {
	entries, err := source.Names(f.ctx, f.src, dir)
	if err != nil {
		return dir, nil, nil
	}
	only, folders := "", 0
	for _, e := range entries {
		switch base := e.Base(); {
		case strings.HasPrefix(base, "."):
		case !e.Dir && kindByName(shards, e.Name) >= 0:
			return dir, nil, nil
		case e.Dir:
			if folders++; folders == 1 || base == "data" {
				only = source.Join(dir, base)
			}
		}
	}
	if folders == 0 || folders > 1 && path.Base(only) != "data" {
		return dir, nil, nil
	}
	inside, err := source.Names(f.ctx, f.src, only)
	loose := func(e source.Info) bool {
		return slices.ContainsFunc(f.all, func(k Format) bool { return k.Loose && k.Sniff(e.Name, nil) })
	}
	if err != nil || slices.ContainsFunc(inside, loose) { // pictures: the folder is a class
		return dir, nil, nil
	}
	files, err := f.filesIn(only, shards)
	if err != nil || len(files) == 0 {
		return dir, nil, nil
	}
	return only, files, oneSplit(only, inside)
}

// splits are what the parts of a dataset are called that are not to be mixed, at the
// beginning of the names of their files.
var splits = regexp.MustCompile(`^(train|test|validation|valid|val|dev|eval)[-_.]`)

// oneSplit refuses files of several splits: whoever gives the folder of a whole dataset does
// not mean to train on what is there to test.
func oneSplit(dir string, files []source.Info) error {
	first := map[string]string{} // of each split
	var names []string
	for _, e := range files {
		if m := splits.FindStringSubmatch(e.Base()); m != nil && first[m[1]] == "" {
			first[m[1]] = e.Base()
			names = append(names, m[1])
		}
	}
	if len(names) < 2 {
		return nil
	}
	give := names[0]
	if first["train"] != "" {
		give = "train"
	}
	return errs.New(errs.Config, "%s holds the splits %s", dir, strings.Join(names, ", ")).At(errs.Where{File: dir}).
		Try("give the files of one: %s", source.Join(dir, give+"*"+path.Ext(first[give])))
}

// isArrow reports whether a file's name is that of Arrow tables.
func isArrow(name string) bool {
	return slices.Contains([]string{".arrow", ".feather"}, strings.ToLower(path.Ext(name)))
}

// dictFile is the file that Hugging Face's datasets writes beside the folders of splits.
const dictFile = "dataset_dict.json"

// isSaved reports whether a folder was written by save_to_disk of Hugging Face's
// datasets: Arrow files, or a folder of them for each split. In folders of pictures it
// reads only the names.
func (f finder) isSaved(dir string) bool {
	entries, _ := source.Names(f.ctx, f.src, dir)
	return slices.ContainsFunc(entries, func(e source.Info) bool { return isArrow(e.Name) || e.Base() == dictFile })
}

// savedArrow refuses such a folder, and says how to convert it to a format that stoker
// reads.
func (f finder) savedArrow(dir string) error {
	split := ""
	if _, err := f.src.Stat(f.ctx, source.Join(dir, dictFile)); err == nil {
		entries, _ := source.Names(f.ctx, f.src, dir)
		if at := slices.IndexFunc(entries, func(e source.Info) bool { return e.Dir }); at >= 0 {
			split = fmt.Sprintf("[%q]", entries[at].Base())
		}
	}
	return errs.New(errs.Unsupported, "%s is a dataset of Hugging Face's datasets, saved as Arrow files, which stoker does not read", dir).
		At(errs.Where{File: dir}).
		Try("write it as Parquet once: datasets.load_from_disk(%q)%s.to_parquet(\"data.parquet\"); then stoker.ParquetDataset(\"data.parquet\")", dir, split)
}
