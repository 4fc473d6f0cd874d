package inspect

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5/tree"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Object is a group, dataset or link of an HDF5 file.
type Object struct {
	Path       string      `json:"path"` // from the file's root, which is "/"
	Kind       string      `json:"kind"` // group, dataset, link or type
	Type       string      `json:"type,omitempty"`
	Shape      []int64     `json:"shape,omitempty"` // none: one value
	Chunk      []int64     `json:"chunk,omitempty"` // none: in one piece
	Filters    []string    `json:"filters,omitempty"`
	Target     string      `json:"target,omitempty"` // of a link; of an object with several names, the first of them
	Unreadable string      `json:"unreadable,omitempty"`
	Attributes []Attribute `json:"attributes,omitempty"`
}

// Attribute is one of an object; Value is how its first elements read.
type Attribute struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape,omitempty"`
	Value string  `json:"value,omitempty"`
}

// objects is what is in a dataset's first file, where that has a tree of them.
func objects(ctx context.Context, l *dataset.Collection) ([]Object, error) {
	ds, ok := l.Dataset().(interface {
		Objects(ctx context.Context, src source.Source) ([]tree.Item, error)
	})
	if !ok {
		return nil, nil
	}
	items, err := ds.Objects(ctx, l.Source())
	if err != nil {
		return nil, err
	}
	out := make([]Object, len(items))
	for i := range items {
		out[i] = object(&items[i])
	}
	return out, nil
}

func object(item *tree.Item) Object {
	o := Object{Path: "/" + item.Path, Kind: "type"}
	switch d := item.Dataset; {
	case item.Group:
		o.Kind = "group"
	case d != nil:
		o.Kind, o.Type, o.Shape, o.Chunk = "dataset", d.Type.Name, d.Dims, d.Layout.Chunk
		if o.Unreadable = d.Why; o.Unreadable == "" {
			o.Unreadable = d.Type.Why
		}
		for _, f := range d.Filters {
			o.Filters = append(o.Filters, f.Name)
		}
	case item.Target != "":
		o.Kind, o.Target = "link", item.Target
	}
	switch d := item.Dataset; {
	case item.Err != nil:
		if o.Unreadable = errs.From(item.Err).Error(); o.Kind == "type" {
			o.Kind = "object"
		}
	case d != nil && d.Err != nil:
		o.Unreadable = errs.From(d.Err).Error()
	}
	if item.Again {
		o.Target = "/" + item.Same
	}
	for _, a := range item.Attributes {
		o.Attributes = append(o.Attributes, Attribute(a))
	}
	return o
}

// shownObjects is how many objects the text lists.
const shownObjects = 200

// writeObjects writes the tree, attributes below what they are of.
func (r *Report) writeObjects(w io.Writer) error {
	if len(r.Objects) == 0 {
		return nil
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n  in the file\tis\n")
	for i := range r.Objects[:min(len(r.Objects), shownObjects)] {
		o := &r.Objects[i]
		deep := strings.Repeat("  ", strings.Count(strings.TrimRight(o.Path, "/"), "/"))
		name := errs.Name(o.Path[strings.LastIndexByte(o.Path, '/')+1:])
		if o.Kind == "group" {
			name += "/"
		}
		fmt.Fprintf(t, "  %s%s\t%s\n", deep, name, o.says())
		for _, a := range o.Attributes {
			fmt.Fprintf(t, "  %s  @%s\t%s\n", deep, errs.Name(a.Name), strings.TrimSpace(a.Type+shape(a.Shape)+" "+a.Value))
		}
	}
	if more := len(r.Objects) - shownObjects; more > 0 {
		fmt.Fprintf(t, "  and %d more (--json lists them)\n", more)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// says is what an object is, in words.
func (o *Object) says() string {
	switch o.Kind {
	case "link":
		return "link to " + errs.Name(o.Target)
	}
	text := o.Type + shape(o.Shape)
	if o.Kind != "dataset" {
		text = o.Kind
	}
	if o.Target != "" {
		text += ", the same as " + o.Target
	}
	if o.Chunk != nil {
		text += ", chunks of" + shape(o.Chunk)
	}
	if o.Filters != nil {
		text += ", " + strings.Join(o.Filters, ", ")
	}
	if o.Unreadable != "" {
		text += ": " + o.Unreadable
	}
	return text
}

func shape(dims []int64) string {
	if len(dims) == 0 {
		return ""
	}
	return " " + fmt.Sprint(dims)
}
