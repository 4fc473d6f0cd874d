package inspect

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/stage/format"
)

// objects is what is in a dataset's first file, where that has a tree of them.
func objects(ctx context.Context, l *dataset.Collection) ([]format.Object, error) {
	ds, ok := l.Dataset().(format.Tree)
	if !ok {
		return nil, nil
	}
	return ds.Objects(ctx, l.Source())
}

// shownObjects is how many objects the text lists.
const shownObjects = 200

// writeObjects writes the tree, each object's attributes below it.
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
		fmt.Fprintf(t, "  %s%s\t%s\n", deep, name, says(o))
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

// says describes an object in words.
func says(o *format.Object) string {
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
