package spec

import (
	"fmt"
	"slices"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// Given are the names of a dataset that have secrets, as they were given. It is written
// nowhere, not even by fmt.
type Given struct{ names []string }

// String tells how many there are.
func (g Given) String() string { return fmt.Sprintf("%d names with secrets", len(g.names)) }

// GoString is String.
func (g Given) GoString() string { return g.String() }

// Equal reports whether both have the same names.
func (g Given) Equal(o Given) bool { return slices.Equal(g.names, o.names) }

// names are pointers to all names of a dataset.
func (d *Dataset) names() (all []*string) {
	for i := range d.Path {
		all = append(all, &d.Path[i])
	}
	all = append(all, &d.Manifest, &d.Root)
	for i := range d.Columns {
		for j := range d.Columns[i].Path {
			all = append(all, &d.Columns[i].Path[j])
		}
	}
	for i := range d.Origins {
		all = append(all, &d.Origins[i])
	}
	return all
}

// Hidden returns the dataset with names that may be shown and stored, without the
// signatures, tokens and passwords of URLs. It remembers those: Places has them, and
// nothing else. What a Spec is read from, and what a command line gives, passes through it
// before anything else sees it.
func (d Dataset) Hidden() Dataset {
	if d.Mixed != nil {
		d.Mixed = slices.Clone(d.Mixed)
		for i := range d.Mixed {
			d.Mixed[i] = d.Mixed[i].Hidden()
		}
	}
	if !slices.ContainsFunc(d.names(), func(n *string) bool { return source.Shown(*n) != *n }) {
		return d
	}
	d = d.apart()
	for _, n := range d.names() {
		if shown := source.Shown(*n); shown != *n {
			d.Given.names = append(d.Given.names, *n)
			*n = shown
		}
	}
	return d
}

// apart is the dataset with its own copy of the names.
func (d Dataset) apart() Dataset {
	d.Path, d.Origins, d.Given = slices.Clone(d.Path), slices.Clone(d.Origins), Given{slices.Clone(d.Given.names)}
	d.Columns = slices.Clone(d.Columns)
	for i := range d.Columns {
		d.Columns[i].Path = slices.Clone(d.Columns[i].Path)
	}
	return d
}

// AsGiven undoes Hidden, for another process of ours, which gets it through a pipe.
func (d Dataset) AsGiven() Dataset {
	if d.Mixed != nil {
		d.Mixed = slices.Clone(d.Mixed)
		for i := range d.Mixed {
			d.Mixed[i] = d.Mixed[i].AsGiven()
		}
	}
	if d.Given.names == nil {
		return d
	}
	d = d.apart()
	given := make(map[string]string, len(d.Given.names)) // the first of each name as it is shown
	for _, g := range slices.Backward(d.Given.names) {
		given[source.Shown(g)] = g
	}
	for _, n := range d.names() {
		if g, ok := given[*n]; ok {
			*n = g
		}
	}
	d.Given = Given{}
	return d
}

// ReachedAs returns the dataset as part of another one: it is reached in the same way.
func (d Dataset) ReachedAs(whole Dataset) Dataset {
	d.Storage, d.Origins, d.Given = whole.Storage, whole.Origins, whole.Given
	return d
}

// Places are the names of all datasets, as they were given, and how each is reached.
func (s Spec) Places() (all []source.Place) {
	members := s.Dataset.Mixed
	if members == nil {
		members = []Dataset{s.Dataset}
	}
	for _, d := range members {
		place := source.Place{Access: s.Access(d)}
		for _, n := range d.Given.names {
			place.Names = append(place.Names, source.OfList(n))
		}
		for _, n := range d.names() {
			if *n != "" {
				place.Names = append(place.Names, source.OfList(*n))
			}
		}
		all = append(all, place)
	}
	return all
}

// Elsewhere says whether a table, a manifest or a list may name something besides what is
// stored where it is: whether that is under the origins.
func (d Dataset) Elsewhere(name string) bool { return source.Under(d.Origins, name) }
