package npy

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// want is what a dataset is to be made of.
type want struct {
	fields []Field
	// every is a list of .npz files of which every array is a field.
	every []string
	// grouped says that fields are called after their files: one that cannot be read
	// is left out beside others that can.
	grouped bool
}

// files are the stored files, each once, in order.
func (w want) files() (out []string) {
	seen := make(map[string]bool)
	add := func(paths []string) {
		for _, p := range paths {
			if !seen[p] {
				seen[p] = true
				out = append(out, p)
			}
		}
	}
	for _, f := range w.fields {
		add(f.Paths)
	}
	add(w.every)
	return out
}

// text is the options that decide what the index holds.
func (w want) text(opt Options) string {
	type one struct {
		Name, Array string
		Files       []int
	}
	files := w.files()
	var all []one
	for _, f := range w.fields {
		o := one{Name: f.Name, Array: f.Array}
		for _, p := range f.Paths {
			o.Files = append(o.Files, slices.Index(files, p))
		}
		all = append(all, o)
	}
	b, _ := json.Marshal(struct {
		Fields   []one
		Every    int
		Unpacked int64
		Version  int // 2: checksums of zip files were compared
	}{all, len(w.every), opt.UnpackedBytes, 2})
	return string(b)
}

func zipped(p string) bool { return strings.HasSuffix(strings.ToLower(source.Unquery(p)), ".npz") }

// plan settles what the user asked for, without looking at any file.
func plan(paths []string, opt Options) (w want, err error) {
	switch {
	case opt.UnpackedBytes < 0:
		return w, errs.New(errs.Config, "%d bytes for compressed arrays", opt.UnpackedBytes).Try("leave it out for a gigabyte")
	case len(paths) > 0 && opt.Fields != nil:
		return w, errs.New(errs.Config, "paths and fields are both given").Try("give paths alone, or fields with the paths of each")
	case opt.Fields != nil:
		return named(opt.Fields)
	case len(paths) == 0:
		return w, errs.New(errs.Config, "the list of NumPy files is empty").Try("give at least one .npy or .npz file")
	}
	if paths, err = format.Absolute(paths); err != nil {
		return w, err
	}
	inZip := 0
	for _, p := range paths {
		if zipped(p) {
			inZip++
		}
	}
	switch inZip {
	case 0:
		w.grouped = true
		w.fields, err = group(paths, opt.Sharded)
		return w, err
	case len(paths):
		if twice, ok := again(paths); ok {
			return w, errs.New(errs.Config, "%s is given twice", twice).Try("to see samples more often, take more epochs")
		}
		w.every = paths
		return w, nil
	}
	return w, errs.New(errs.Config, "%d of the %d files are .npz, the others .npy", inZip, len(paths)).Try("give files of one kind, or name the fields, each with its paths: columns: [{name: x, path: x.npy}]")
}

func named(fields []Field) (w want, err error) {
	seen := make(map[string]bool)
	for _, f := range fields {
		switch {
		case !nameable(f.Name):
			return w, unnamed(f.Name)
		case seen[f.Name]:
			return w, errs.New(errs.Config, "the field %q is given twice", f.Name).Try("give all paths of a field as one list")
		case len(f.Paths) == 0:
			return w, errs.New(errs.Config, "the field %q has no file", f.Name).Try("give at least one .npy or .npz file")
		}
		seen[f.Name] = true
		if f.Array == "" {
			f.Array = f.Name
		}
		if f.Paths, err = format.Absolute(f.Paths); err != nil {
			return w, err
		}
		w.fields = append(w.fields, f)
	}
	if len(w.fields) == 0 {
		return w, errs.New(errs.Config, "the list of fields is empty").Try("give at least one, with its paths")
	}
	return w, nil
}

// nameable says whether a field of that name can be asked for: ; parts alternatives.
func nameable(name string) bool {
	return name != "" && !strings.Contains(name, ";") && utf8.ValidString(name)
}

func unnamed(name string) error {
	return errs.New(errs.Config, "%s is not a name of a field", clip(name)).Try("name the fields, each with its paths: columns: [{name: x, path: x.npy}]; take letters, digits and underscores")
}

func again(paths []string) (string, bool) {
	sorted := slices.Sorted(slices.Values(paths))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return sorted[i], true
		}
	}
	return "", false
}

// group makes fields of .npy files by their names; sharded says that one number is
// enough.
func group(paths []string, sharded bool) ([]Field, error) {
	enough := 2
	if sharded {
		enough = 1
	}
	type key struct{ dir, base string }
	shards := make(map[key]int)
	for _, p := range paths {
		base, no := numbered(stem(p))
		if no != "" {
			shards[key{source.Dir(p), base}]++
		}
	}
	var out []Field
	var numbers [][]string // of the files of each field
	at := make(map[string]int)
	for _, p := range paths {
		name, no := stem(p), ""
		if base, n := numbered(name); shards[key{source.Dir(p), base}] >= enough && n != "" {
			name, no = base, n
		}
		i, known := at[name]
		switch {
		case !nameable(name):
			return nil, unnamed(name)
		case !known:
			i = len(out)
			at[name], out, numbers = i, append(out, Field{Name: name}), append(numbers, nil)
		case no == "" || numbers[i][0] == "" || source.Dir(p) != source.Dir(out[i].Paths[0]) || slices.Contains(numbers[i], no):
			return nil, errs.New(errs.Config, "%s and %s would both be the field %q", out[i].Paths[0], p, name).
				Try("name the fields, each with its paths: columns: [{name: x, path: x.npy}]")
		}
		out[i].Paths, numbers[i] = append(out[i].Paths, p), append(numbers[i], no)
	}
	for i := range out {
		if len(numbers[i]) >= enough && len(numbers[0]) >= enough && !slices.Equal(numbers[i], numbers[0]) {
			return nil, errs.New(errs.Config, "the files of the fields %q and %q are numbered %s and %s", out[0].Name, out[i].Name, strings.Join(numbers[0], ", "), strings.Join(numbers[i], ", ")).
				Try("give the files of every field in the same order, or name the fields, each with its paths: columns: [{name: x, path: x.npy}]")
		}
	}
	return out, nil
}

// stem is the name of a file without its folders and .npy.
func stem(p string) string {
	name := path.Base(source.Unquery(p))
	if s := len(name) - len(".npy"); s > 0 && strings.EqualFold(name[s:], ".npy") {
		return name[:s]
	}
	return name
}

// numbered splits a stem from the number at its end, after - or _ ("images-00000" or
// "images-00000-of-00010"); no begins with exactly one zero, and is "" if there is no
// number.
func numbered(stem string) (base, no string) {
	if head, _, ok := cutLast(stem, "-of-"); ok {
		if base, no = numbered(head); no != "" {
			return base, no
		}
	}
	base = strings.TrimRight(stem, "0123456789")
	if n := len(base) - 1; n > 0 && n+1 < len(stem) && (base[n] == '-' || base[n] == '_') {
		return base[:n], "0" + strings.TrimLeft(stem[n+1:], "0")
	}
	return stem, ""
}

// cutLast cuts at the last sep that only digits follow.
func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 || i+len(sep) == len(s) || strings.Trim(s[i+len(sep):], "0123456789") != "" {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
