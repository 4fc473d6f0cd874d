package transform

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// viewsOp is the name of what makes several pictures of one. It is not an operation of
// a program: each view has a program of its own, and so a column and keys.
const viewsOp = "Views"

// mostViews bounds the views of a picture.
const mostViews = 256

// Views returns the operations of each view of a field whose list ends in Views,
//
//	[..., {"op": "Views", "transforms": [[...], [...]]}]
//
// which are those before it and then the view's own; nil if the list does not end in
// it. What comes before must not draw: torchvision draws once for all views there, and
// here every view has keys of its own.
func Views(ops []Op) ([][]Op, error) {
	if len(ops) == 0 || ops[len(ops)-1].Name != viewsOp {
		return nil, nil
	}
	before, op := ops[:len(ops)-1], ops[len(ops)-1]
	a := &arguments{op: op}
	a.checkNames([]string{"transforms"})
	var each [][]Op
	if a.required("transforms", "a list with the operations of each view") {
		raw := op.Args["transforms"]
		var e *errs.Error
		if err := json.Unmarshal(raw, &each); errors.As(err, &e) {
			return nil, e
		} else if err != nil {
			a.wrong("write [[...], [...]]", "transforms must be a list with the operations of each view, not %s", shown(raw))
		} else if len(each) == 0 || len(each) > mostViews {
			a.wrong("", "there are %d views: there can be 1 to %d", len(each), mostViews)
		}
	}
	if name := random(catalog(), before); name != "" {
		a.wrong("begin each view with it: every view draws for itself", "%s comes before the views, and draws", name)
	}
	for i := range a.problems {
		a.problems[i].where = fmt.Sprintf("transform %d of %d (%s)", len(ops), len(ops), viewsOp)
	}
	if err := report(a.problems); err != nil {
		return nil, err
	}
	for i, own := range each {
		each[i] = append(before[:len(before):len(before)], own...)
	}
	return each, nil
}

// random is the first of these operations that draws; "": none does.
func random(all []descriptor, ops []Op) string {
	for _, op := range ops {
		for i := range all {
			if all[i].name == op.Name && all[i].draws {
				return op.Name
			}
		}
		var held struct{ Transforms []Op }
		if op.Name == "Compose" && json.Unmarshal(op.Args["transforms"], &held.Transforms) == nil {
			if name := random(all, held.Transforms); name != "" {
				return name
			}
		}
	}
	return ""
}
