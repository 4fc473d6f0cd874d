package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/format/files"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// chain is what the lines do with pictures.
const chain = "T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])"

// pythonLines load the dataset, as a person would write them.
func pythonLines(d spec.Dataset, r *Report) string {
	var b strings.Builder
	b.WriteString("import stoker\n")
	made, loop, shuffle := r.constructor(d)
	if strings.Contains(made, "T.") {
		b.WriteString("from stoker import transforms as T\n")
	}
	fmt.Fprintf(&b, "\n%s", made)
	if shuffle {
		b.WriteString("loader = stoker.DataLoader(train, batch_size=64, shuffle=True)\n")
	} else {
		b.WriteString("loader = stoker.DataLoader(train, batch_size=64)\n")
	}
	fmt.Fprintf(&b, "for %s in loader:\n    ...\n", loop)
	return b.String()
}

// constructor is the lines that make the dataset, what its batches are unpacked
// into, and whether the loader shuffles it.
func (r *Report) constructor(d spec.Dataset) (lines, loop string, shuffle bool) {
	var args call
	pictures := func(labels bool) string {
		if labels {
			return "images, labels"
		}
		return "images,"
	}
	switch r.Format {
	case "folder":
		return fmt.Sprintf("train = stoker.ImageFolder(%s, transform=%s)\n", quoted(d.Path[0]), chain), "images, labels", true
	case "tar":
		lines, loop = r.webDataset(d)
		return lines, loop, false
	case "files":
		if d.Manifest == "" {
			args.add(quotedAll(d.Path))
			if d.Label != "folder" {
				args.add("labels=None")
			}
			args.add("transform=" + chain)
			return "train = stoker.files" + args.String() + "\n", pictures(d.Label == "folder"), true
		}
		args.add(quoted(d.Manifest))
		args.add("path=" + quoted(r.pathColumn(d)))
		args.word("label", r.labelColumn(d))
		args.word("root", d.Root)
		args.add("transform=" + chain)
		return "train = stoker.Table" + args.String() + "\n", pictures(r.labelColumn(d) != ""), true
	case "table":
		args.add(quotedAll(d.Path))
		args.word("label", d.Label)
		return "train = stoker.Table" + args.String() + "\n", r.variables(), true
	case "npy":
		r.arrays(d, &args)
		loop = r.variables()
		switch {
		case r.zipped:
			loop = "batch"
		case len(r.delivered) == 1:
			loop = strings.TrimSuffix(loop, ",")
		}
		return "train = stoker.NpyDataset" + args.String() + "\n", loop, true
	case "tokens":
		r.windows(d, &args)
		loop = "x, y"
		if d.Window.Documents {
			loop = "tokens,"
		}
		return "train = stoker.TokenDataset" + args.String() + "\n", loop, true
	}
	if r.kind.Python == "" {
		return fmt.Sprintf("train = ...  # the Python package has no class for the format %s\n", r.Format), "batch", true
	}
	args.add(quotedAll(d.Path))
	args.word("database", d.Database)
	args.word("values", d.Values)
	args.word("label", d.Label)
	args.word("group", d.Group)
	if d.Pictures {
		args.add("pictures=True")
	}
	var columns []string
	for _, c := range d.Columns {
		columns = append(columns, quoted(c.Name))
	}
	if columns != nil {
		args.add("columns=[" + strings.Join(columns, ", ") + "]")
	}
	if fields := r.wanted(); fields != "" {
		args.add("fields=" + fields)
	}
	return "train = stoker." + r.kind.Python + args.String() + "\n", "batch", true
}

// call is the arguments of a call.
type call []string

func (c *call) add(arg string) { *c = append(*c, arg) }

// word adds a keyword with a text, unless that is empty.
func (c *call) word(name, text string) {
	if text != "" {
		c.add(name + "=" + quoted(text))
	}
}

func (c call) String() string { return "(" + strings.Join(c, ", ") + ")" }

// wanted is the fields as a list, where something is to be said of them: pictures
// get transforms, and what some samples lack is left out; "": there is no such.
func (r *Report) wanted() string {
	var out []string
	said := false
	for _, f := range r.delivered {
		if slices.ContainsFunc(r.Fields, func(have Field) bool { return have.Name == f.Name && have.Present < r.Checked }) {
			said = true
			continue
		}
		text := quoted(f.Name)
		if f.Kind == "image" {
			said, text = true, fmt.Sprintf("stoker.Field(%s, transform=%s)", text, chain)
		}
		out = append(out, text)
	}
	if !said || out == nil {
		return ""
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// variables are what a tuple of the delivered fields is unpacked into.
func (r *Report) variables() string {
	var out []string
	for i, f := range r.delivered {
		name := map[string]string{"image": "images", "label": "labels", "text": "texts"}[f.Name]
		if name == "" {
			name = "rest" + strconv.Itoa(i)
		}
		out = append(out, name)
	}
	if len(out) == 1 {
		return out[0] + ","
	}
	return strings.Join(out, ", ")
}

// arrays are the arguments of NumPy files.
func (r *Report) arrays(d spec.Dataset, args *call) {
	switch {
	case len(d.Path) > 1 && len(r.delivered) == 1: // parts of one array
		args.add(r.delivered[0].Name + "=" + quotedAll(d.Path))
	case len(d.Path) > 0:
		for _, p := range d.Path {
			args.add(quoted(p))
		}
	default:
		for _, c := range d.Columns {
			args.add(c.Name + "=" + quotedAll(c.Path))
		}
		return
	}
	var fields []string
	for _, c := range d.Columns {
		text := quoted(c.Name)
		if c.From != "" {
			text = fmt.Sprintf("stoker.Field(%s, source=%s)", text, quoted(c.From))
		}
		fields = append(fields, text)
	}
	if fields != nil {
		args.add("fields=[" + strings.Join(fields, ", ") + "]")
	}
}

// windows are the arguments of token files.
func (r *Report) windows(d spec.Dataset, args *call) {
	args.add(quotedAll(d.Path))
	if d.Window.Documents {
		args.add("documents=True")
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
}

// pathColumn is the column of a manifest that has the paths; the format takes the
// first of these where nobody says it.
func (r *Report) pathColumn(d spec.Dataset) string {
	if d.PathColumn != "" {
		return d.PathColumn
	}
	for _, name := range files.PathColumns() {
		if slices.Contains(r.stored, name) {
			return name
		}
	}
	return "path"
}

// labelColumn is that of the labels; "": there is none.
func (r *Report) labelColumn(d spec.Dataset) string {
	if d.Label != "" {
		return strings.TrimSuffix(d.Label, "none")
	}
	for _, name := range files.LabelColumns() {
		if slices.Contains(r.stored, name) {
			return name
		}
	}
	return ""
}

// webDataset is the lines and the variables of tar shards.
func (r *Report) webDataset(d spec.Dataset) (lines, loop string) {
	var b strings.Builder
	fields, transforms := chainFields(r, chain)
	loop = strings.Join(fields.vars, ", ")
	if len(fields.vars) == 1 {
		loop += ","
	}
	fmt.Fprintf(&b, "train = stoker.WebDataset(%s).shuffle(10_000).decode(\"pil\")\n", quotedAll(d.Path))
	fmt.Fprintf(&b, "train = train.to_tuple(%s)", strings.Join(fields.names, ", "))
	if len(transforms) > 0 {
		fmt.Fprintf(&b, ".map_tuple(%s)", strings.Join(transforms, ", "))
	}
	b.WriteString("\n")
	return b.String(), loop
}

type tuple struct{ names, vars []string }

// chainFields is the tuple of a WebDataset: its pictures as one field, and what
// every sample has besides.
func chainFields(r *Report, chain string) (tuple, []string) {
	var images []string
	var t tuple
	var transforms []string
	for _, f := range r.Fields {
		if f.Kind == "image" {
			images = append(images, f.Name)
		}
	}
	if len(images) > 0 {
		t = tuple{[]string{quoted(strings.Join(images, ";"))}, []string{"images"}}
		transforms = []string{chain}
	}
	for _, f := range r.Fields {
		if f.Kind == "image" || f.Present < r.Checked {
			continue
		}
		name := map[string]string{"cls": "labels", "txt": "texts", "json": "infos"}[f.Name]
		if name == "" {
			name = "rest" + strconv.Itoa(len(t.vars))
		}
		t.names, t.vars = append(t.names, quoted(f.Name)), append(t.vars, name)
		if len(images) > 0 {
			transforms = append(transforms, "None")
		}
	}
	return t, transforms
}

// quoted is a path as Python writes it.
// quoted is a text of Python; a byte that is not UTF-8 as os.fsdecode has it.
func quoted(s string) string {
	if utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	text, _ := jsontext.Name(s).MarshalJSON() // whose escapes are Python's too
	return string(text)
}

func quotedAll(paths []string) string {
	if len(paths) == 1 {
		return quoted(paths[0])
	}
	var out []string
	for _, p := range paths {
		out = append(out, quoted(source.Clean(p)))
	}
	return "[" + strings.Join(out, ", ") + "]"
}
