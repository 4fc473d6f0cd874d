// Package script writes the lines of Python that load a dataset, as a person would write
// them: a general form, and one for each format whose class takes its own arguments.
package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Contents is what is known of a dataset.
type Contents struct {
	Class     string   // of the Python package; "": it has none
	Stored    []string // names of what samples have
	First     string   // name of the first stored file
	Delivered []Field  // the fields of batches, if the user chooses none
	Checked   []Field  // the fields of the samples that were read
}

// Field is one field.
type Field struct {
	Name string
	Kind string // image, number, text, json, array or bytes
	Some bool   // not all samples that were read have it
}

// Lines are lines of Python.
type Lines struct {
	Made      string // make the dataset "train"
	Loop      string // what its batches are unpacked into
	Unordered bool   // the loader must not shuffle it: the lines in Made do
}

// Func writes the lines for a dataset of one format, from the keys of its Spec.
type Func func(d spec.Dataset, c Contents) Lines

// chain is the transform that the lines give to pictures.
const chain = "T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])"

// Whole is the script around the lines.
func (l Lines) Whole() string {
	var b strings.Builder
	b.WriteString("import stoker\n")
	if strings.Contains(l.Made, "T.") {
		b.WriteString("from stoker import transforms as T\n")
	}
	fmt.Fprintf(&b, "\n%s", l.Made)
	shuffle := ", shuffle=True"
	if l.Unordered {
		shuffle = ""
	}
	fmt.Fprintf(&b, "loader = stoker.DataLoader(train, batch_size=64%s)\n", shuffle)
	fmt.Fprintf(&b, "for %s in loader:\n    ...\n", l.Loop)
	return b.String()
}

// Any is the general form: the class with the paths, and with those keys that are
// keywords of the same name.
func Any(d spec.Dataset, c Contents) Lines {
	var args call
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
		columns = append(columns, Quoted(c.Name))
	}
	if columns != nil {
		args.add("columns=[" + strings.Join(columns, ", ") + "]")
	}
	if fields := c.wanted(); fields != "" {
		args.add("fields=" + fields)
	}
	return Lines{Made: made(c.Class, args), Loop: "batch"}
}

func made(class string, args call) string { return "train = stoker." + class + args.String() + "\n" }

// call is the arguments of a call.
type call []string

func (c *call) add(arg string) { *c = append(*c, arg) }

// word adds a keyword with a text, unless that is empty.
func (c *call) word(name, text string) {
	if text != "" {
		c.add(name + "=" + Quoted(text))
	}
}

func (c call) String() string { return "(" + strings.Join(c, ", ") + ")" }

// wanted is the list of fields if the default is not enough: pictures get transforms, and
// fields that some samples lack are left out. "": the default is enough.
func (c *Contents) wanted() string {
	var out []string
	said := false
	for _, f := range c.Delivered {
		if slices.ContainsFunc(c.Checked, func(have Field) bool { return have.Name == f.Name && have.Some }) {
			said = true
			continue
		}
		text := Quoted(f.Name)
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
func (c *Contents) variables() string {
	var out []string
	for i, f := range c.Delivered {
		name := map[string]string{"image": "images", "label": "labels", "text": "texts"}[f.Name]
		if name == "" {
			name = "rest" + strconv.Itoa(i)
		}
		out = append(out, name)
	}
	return tuple(out)
}

// tuple writes names as the target of an unpacking in Python.
func tuple(names []string) string {
	if len(names) == 1 {
		return names[0] + ","
	}
	return strings.Join(names, ", ")
}

// Quoted writes a text as a Python literal; a byte that is not UTF-8 is as os.fsdecode
// returns it.
func Quoted(s string) string {
	if utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	text, _ := jsontext.Name(s).MarshalJSON() // whose escapes are Python's too
	return string(text)
}

func quotedAll(paths []string) string {
	if len(paths) == 1 {
		return Quoted(paths[0])
	}
	var out []string
	for _, p := range paths {
		out = append(out, Quoted(source.Clean(p)))
	}
	return "[" + strings.Join(out, ", ") + "]"
}
