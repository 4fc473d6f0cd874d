package dataset

import (
	"strconv"

	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// A field whose transform ends in Views becomes as many fields as there are views,
// which follow one another and read the same stored value: NAME_0, NAME_1, and so on.
// A view is a field like any other: it has a column, is explained under its name, and
// draws with the key of its number among the fields, so that view 0 of the first field
// draws what the field would draw without views.

// views replaces fields that have views, and notes the field that each view belongs to.
func (d *Part) views(p *spec.Problems) {
	var out []spec.Field
	for _, f := range d.Fields {
		each, err := transform.Views(f.Transform)
		if err != nil {
			p.Addf("field %q: %s", f.Name, withHint(err))
			continue
		}
		if each == nil {
			out = append(out, f)
			continue
		}
		if d.viewOf == nil {
			d.viewOf = map[string]string{}
		}
		for i, ops := range each {
			view := f
			view.Name, view.Transform = ViewName(f.Name, i), ops
			if view.From == "" {
				view.From = f.Name
			}
			d.viewOf[view.Name] = f.Name
			out = append(out, view)
		}
	}
	for i, f := range out {
		for _, other := range out[:i] {
			if other.Name == f.Name && (d.viewOf[f.Name] != "" || d.viewOf[other.Name] != "") {
				p.Addf("a view of field %q is called %q, and another field has that name: rename it", d.viewOf[f.Name], f.Name)
			}
		}
	}
	d.Fields = out
}

// ViewName is the name of the column of a field's view, counted from 0.
func ViewName(field string, view int) string { return field + "_" + strconv.Itoa(view) }
