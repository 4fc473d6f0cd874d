package script

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/files"
	"github.com/stoker-data/stoker/internal/stage/format/folder"
)

// Classes is the form of pictures in one folder per class.
func Classes(d spec.Dataset, c Contents) Lines {
	return Lines{Made: made(c.Class, call{Quoted(d.Path[0]), "transform=" + chain}), Loop: "images, labels"}
}

// pictures is what batches of pictures are unpacked into.
func pictures(labels bool) string {
	if labels {
		return "images, labels"
	}
	return "images,"
}

// Files is the form of files that are a sample each: those of a list, or those that a
// table names.
func Files(d spec.Dataset, c Contents) Lines {
	var args call
	if d.Manifest == "" {
		labels := d.Label == "folder"
		args.add(quotedAll(d.Path))
		if !labels {
			args.add("labels=None")
		}
		args.add("transform=" + chain)
		return Lines{Made: made(c.Class, args), Loop: pictures(labels)}
	}
	args.add(Quoted(d.Manifest))
	args.add("path=" + Quoted(c.pathColumn(d)))
	args.word("label", c.labelColumn(d))
	args.word("root", d.Root)
	args.add("transform=" + chain)
	return Lines{Made: made("Table", args), Loop: pictures(c.labelColumn(d) != "")}
}

// pathColumn is the column of a manifest that has the paths: the one that was named, or
// the one that the format takes by default.
func (c *Contents) pathColumn(d spec.Dataset) string {
	if d.PathColumn != "" {
		return d.PathColumn
	}
	for _, name := range files.PathColumns() {
		if slices.Contains(c.Stored, name) {
			return name
		}
	}
	return "path"
}

// labelColumn is the column of the labels, likewise; "": there is none.
func (c *Contents) labelColumn(d spec.Dataset) string {
	if d.Label != "" {
		return strings.TrimSuffix(d.Label, "none")
	}
	for _, name := range files.LabelColumns() {
		if slices.Contains(c.Stored, name) {
			return name
		}
	}
	return ""
}

// Rows is the form of tables, whose batches are unpacked by their columns.
func Rows(d spec.Dataset, c Contents) Lines {
	args := call{quotedAll(d.Path)}
	args.word("label", d.Label)
	return Lines{Made: made(c.Class, args), Loop: c.variables()}
}

// Arrays is the form of NumPy files. The files of a dataset are all of one kind.
func Arrays(d spec.Dataset, c Contents) Lines {
	l := Lines{Made: made(c.Class, c.arrays(d)), Loop: c.variables()}
	switch {
	case strings.EqualFold(path.Ext(c.First), ".npz"): // its arrays have names
		l.Loop = "batch"
	case len(c.Delivered) == 1:
		l.Loop = strings.TrimSuffix(l.Loop, ",")
	}
	return l
}

func (c *Contents) arrays(d spec.Dataset) (args call) {
	switch {
	case len(d.Path) > 1 && len(c.Delivered) == 1: // parts of one array
		args.add(c.Delivered[0].Name + "=" + quotedAll(d.Path))
	case len(d.Path) > 0:
		for _, p := range d.Path {
			args.add(Quoted(p))
		}
	default:
		for _, c := range d.Columns {
			args.add(c.Name + "=" + quotedAll(c.Path))
		}
		return args
	}
	var fields []string
	for _, c := range d.Columns {
		text := Quoted(c.Name)
		if c.From != "" {
			text = fmt.Sprintf("stoker.Field(%s, source=%s)", text, Quoted(c.From))
		}
		fields = append(fields, text)
	}
	if fields != nil {
		args.add("fields=[" + strings.Join(fields, ", ") + "]")
	}
	return args
}

// Windows is the form of files of tokens.
func Windows(d spec.Dataset, c Contents) Lines {
	args, loop := call{quotedAll(d.Path)}, "x, y"
	if d.Window.Documents {
		args.add("documents=True")
		loop = "tokens,"
	} else {
		args.add(strconv.FormatInt(d.Window.Length, 10))
	}
	if d.Window.Stride > 0 {
		args.add("stride=" + strconv.FormatInt(d.Window.Stride, 10))
	}
	if d.Window.Random > 0 {
		args.add("random=" + strconv.FormatInt(d.Window.Random, 10))
	}
	args.word("dtype", d.DType)
	if d.Window.EOS != nil {
		args.add("eos=" + strconv.FormatInt(*d.Window.EOS, 10))
	}
	return Lines{Made: made(c.Class, args), Loop: loop}
}

// Members is the form of tar shards, a chain of calls. All pictures are one field; the
// other fields that every sample has follow.
func Members(d spec.Dataset, c Contents) Lines {
	var images, names, vars, transforms []string
	for _, f := range c.Checked {
		if f.Kind == "image" {
			images = append(images, f.Name)
		}
	}
	if len(images) > 0 {
		names, vars, transforms = []string{Quoted(strings.Join(images, ";"))}, []string{"images"}, []string{chain}
	}
	for _, f := range c.Checked {
		if f.Kind == "image" || f.Some {
			continue
		}
		name := map[string]string{"cls": "labels", "txt": "texts", "json": "infos"}[f.Name]
		if name == "" {
			name = "rest" + strconv.Itoa(len(vars))
		}
		names, vars = append(names, Quoted(f.Name)), append(vars, name)
		if len(images) > 0 {
			transforms = append(transforms, "None")
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "train = stoker.%s(%s).shuffle(10_000).decode(\"pil\")\n", c.Class, quotedAll(d.Path))
	fmt.Fprintf(&b, "train = train.to_tuple(%s)", strings.Join(names, ", "))
	if len(transforms) > 0 {
		fmt.Fprintf(&b, ".map_tuple(%s)", strings.Join(transforms, ", "))
	}
	b.WriteString("\n")
	return Lines{Made: b.String(), Loop: tuple(vars), Unordered: true}
}

// PicturePath finds the column of a row that has the path of a picture, and returns the
// column and the path. A column with a usual name is preferred.
func PicturePath(s *format.Sample) (column, file string) {
	usual := files.PathColumns()
	for i := range s.Fields {
		f := &s.Fields[i]
		name := strings.ToLower(string(f.Data))
		if f.IsInt || !slices.ContainsFunc(folder.Extensions(), func(ext string) bool { return strings.HasSuffix(name, ext) }) {
			continue
		}
		if column == "" || slices.Contains(usual, f.Name) && !slices.Contains(usual, column) {
			column, file = f.Name, string(f.Data)
		}
	}
	return column, file
}
