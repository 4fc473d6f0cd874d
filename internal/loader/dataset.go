package loader

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/folder"
	"github.com/stoker-data/stoker/internal/stage/format/tar"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// openPart opens one dataset. To add a format: a package below format, a name
// here, and a row in sniff.
func openPart(ctx context.Context, src source.Source, d Dataset, opt Options) (*part, error) {
	if d.Format == "synthetic" {
		return openSynthetic(d)
	}
	if err := local(d.Path); err != nil {
		return nil, err
	}
	paths, err := source.Expand(d.Path)
	if err != nil {
		return nil, err
	}
	kind, paths, err := sniff(d.Format, paths)
	if err != nil {
		return nil, err
	}
	if err := d.meaningless(kind); err != nil {
		return nil, err
	}
	progress := index.Progress(opt.Progress)
	var ds format.Dataset
	switch kind {
	case "folder":
		ds, err = folder.Open(ctx, src, paths[0], folder.Options{Extensions: d.Extensions, AllowEmpty: d.AllowEmpty, Progress: progress})
	case "tar":
		ds, err = tar.Open(ctx, src, paths, tar.Options{Progress: progress})
	}
	if err != nil {
		return nil, err
	}
	x := ds.Index()
	return &part{spec: d, ds: ds, n: x.Len(), digest: x.Digest(), format: x.Meta().Format}, nil
}

// checker is a dataset that can say, before anything is read, that no sample
// has a field.
type checker interface {
	Check(fields []string) error
}

// local refuses what lies elsewhere: other sources are not built.
func local(paths []string) error {
	for _, p := range paths {
		if scheme, _, ok := strings.Cut(p, "://"); ok {
			return errs.New(errs.Config, "%s lies behind %s://, and stoker reads local files only", p, scheme).
				Try("copy or mount the data, and give its path")
		}
	}
	return nil
}

// meaningless names keys of a dataset that its format has no use for.
func (d Dataset) meaningless(kind string) error {
	var p problems
	if kind != "folder" && (d.Extensions != nil || d.AllowEmpty) {
		p.addf("dataset.extensions and dataset.allow_empty are of folders, and this is %s", kind)
	}
	if kind != "synthetic" && (d.Samples != 0 || d.Shape != nil) {
		p.addf("dataset.samples and dataset.shape are of synthetic datasets, and this is %s", kind)
	}
	return p.err()
}

// sniff decides the format of expanded paths. A folder that holds nothing but
// shards stands for them.
func sniff(name string, paths []string) (string, []string, error) {
	if name != "" && name != "auto" {
		if name == "folder" && len(paths) != 1 {
			return "", nil, errs.New(errs.Config, "a folder dataset has one root, and %d paths were given", len(paths)).
				Try("give the folder that holds one folder per class")
		}
		return name, paths, nil
	}
	if len(paths) == 1 {
		if st, err := os.Stat(paths[0]); err == nil && st.IsDir() {
			if shards := shardsIn(paths[0]); len(shards) > 0 {
				return "tar", shards, nil
			}
			return "folder", paths, nil
		}
	}
	for _, p := range paths {
		if !strings.HasSuffix(strings.ToLower(p), ".tar") {
			return "", nil, errs.New(errs.Config, "the format of %s is not known", p).
				Try("datasets are folders of images (one folder per class) or .tar shards; pass format= where the name does not say")
		}
	}
	return "tar", paths, nil
}

// shardsIn is the shards of a folder that has no folder in it.
func shardsIn(dir string) (shards []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != index.BesideDir {
			return nil
		}
		if strings.HasSuffix(strings.ToLower(e.Name()), ".tar") {
			shards = append(shards, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(shards)
	return shards
}

// openSynthetic makes the one ready sample that every row is a copy of.
func openSynthetic(d Dataset) (*part, error) {
	size := 1
	for _, n := range d.Shape {
		if n <= 0 || size > 1<<30/n {
			return nil, errs.New(errs.Config, "a synthetic sample of shape %v", d.Shape)
		}
		size *= n
	}
	p := &part{spec: d, synthetic: make([]byte, size), n: d.Samples, digest: "synthetic", format: "synthetic"}
	for i := range p.synthetic {
		p.synthetic[i] = byte(i * 31)
	}
	return p, nil
}

// Classes are the names of the classes, where the dataset has them.
func (l *Loader) Classes() []string { return l.data.classes() }

// Format is the name of the dataset's format; of a mixture, its members'.
func (l *Loader) Format() string {
	var names []string
	for _, p := range l.data.parts {
		if !slices.Contains(names, p.format) {
			names = append(names, p.format)
		}
	}
	return strings.Join(names, ", ")
}

// imageFields are the stored names that hold images in shards.
var imageFields = []string{"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "webp", "gif", "bmp", "tif", "tiff"}

// defaultFields are what a dataset delivers when the Spec names nothing: images
// decoded, classes as numbers, the rest by its extension.
func defaultFields(ds format.Dataset) []Field {
	if ds.Index().Meta().Format == "folder" {
		return []Field{{Name: folder.Image, Decode: "rgb"}, {Name: folder.Label, Decode: "int"}}
	}
	var out []Field
	for _, name := range ds.Index().Meta().Fields {
		f := Field{Name: name, Decode: "bytes"}
		switch {
		case slices.Contains(imageFields, name):
			f.Decode = "rgb"
		case name == "cls" || name == "cls2" || name == "index":
			f.Decode = "int"
		case name == "txt" || name == "text":
			f.Decode = "text"
		case name == "json" || name == "jsn":
			f.Decode = "json"
		case strings.HasPrefix(name, "__"):
			continue
		}
		out = append(out, f)
	}
	return out
}

// hold keeps the dataset open until letGo; false: it is closed already.
func (l *Loader) hold() bool {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	if !l.closed {
		l.inflight++
	}
	return !l.closed
}

func (l *Loader) letGo() {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	l.inflight--
	l.shared.changed.Broadcast()
}

// Notes are lines that the user should see once.
func (l *Loader) Notes() (notes []string) {
	for _, p := range l.data.parts {
		if p.ds != nil && p.ds.Index().Note() != "" {
			notes = append(notes, p.ds.Index().Note())
		}
	}
	return notes
}

// fileName is a path as JSON: a byte that is no UTF-8 becomes the lone surrogate
// that Python's file functions take for it (PEP 383).
type fileName string

// MarshalJSON writes the name as one JSON string.
func (n fileName) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	out := []byte{'"'}
	for rest := string(n); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if r == utf8.RuneError && size == 1 {
			out = fmt.Appendf(out, `\udc%02x`, rest[0])
		} else {
			part, err := json.Marshal(rest[:size])
			if err != nil {
				return nil, err
			}
			out = append(out, part[1:len(part)-1]...)
		}
		rest = rest[size:]
	}
	return append(out, '"'), nil
}

// Table is columns of the dataset, a row a sample: "label" (the number of its
// class) and "path" (of the file or shard it lies in).
func (l *Loader) Table(names []string) (map[string]any, error) {
	if !l.hold() {
		return nil, errs.New(errs.Config, "the loader is closed")
	}
	defer l.letGo()
	out := map[string]any{}
	for _, name := range names {
		labels := l.data.labels()
		switch {
		case !l.data.stored():
			return nil, errs.New(errs.Config, "a synthetic dataset has no column %q", name)
		case name == "label" && labels != nil:
			out[name] = labels
		case name == "path":
			out[name] = l.paths()
		default:
			return nil, errs.New(errs.Config, "a %s dataset has no column %q", l.Format(), name).Try("there are \"path\", and \"label\" where samples have classes")
		}
	}
	return out, nil
}

// paths is the file or shard that each sample lies in.
func (l *Loader) paths() []fileName {
	out := make([]fileName, l.data.n)
	var extents []format.Extent
	var text []byte
	for _, p := range l.data.parts {
		for id := range p.n {
			if p.ds == nil {
				continue
			}
			extents = p.ds.Extents(id, nil, extents[:0])
			if len(extents) > 0 {
				text = p.ds.Index().AppendPath(extents[0].File, text[:0])
				out[p.first+id] = fileName(text)
			}
		}
	}
	return out
}
