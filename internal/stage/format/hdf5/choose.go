package hdf5

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format/hdf5/tree"
)

// chooser finds the datasets that are the fields of samples.
type chooser struct {
	file  string
	group string
	items []tree.Item
	names []string // of the chosen ones, below group
}

func (c *chooser) fail(hint, what string, a ...any) error {
	return errs.New(errs.Config, "%s", fmt.Sprintf(what, a...)).At(errs.Where{Shard: c.file, Offset: -1, Sample: -1}).Try("%s", hint)
}

// below is the path of an item below the group.
func (c *chooser) below(path string) (string, bool) {
	if c.group == "" {
		return path, true
	}
	return strings.CutPrefix(path, c.group+"/")
}

// choose is the chosen datasets, in the order of columns, or of their paths. have
// is the fields of the first file: all others give the same.
func (c *chooser) choose(columns []string, have []field) ([]*tree.Dataset, error) {
	if columns == nil {
		for _, f := range have {
			columns = append(columns, f.Name)
		}
	}
	var out []*tree.Dataset
	var err error
	if columns == nil {
		out, err = c.common()
	} else {
		out, err = c.named(columns)
	}
	if err != nil {
		return nil, err
	}
	for i, d := range out {
		switch {
		case len(d.Dims) == 0:
			return nil, c.fail("choose datasets of one dimension or more", "the dataset %q has no rows: it is a single value", c.names[i])
		case d.Dims[0] != out[0].Dims[0]:
			return nil, c.fail("choose datasets that have a row for every sample", "the dataset %q has %d rows, and %q %d", c.names[i], d.Dims[0], c.names[0], out[0].Dims[0])
		}
	}
	return out, nil
}

// named looks up columns, through links.
func (c *chooser) named(columns []string) (out []*tree.Dataset, err error) {
	for _, column := range columns {
		name := strings.Trim(column, "/")
		if slices.Contains(c.names, name) {
			return nil, c.fail("name every dataset once", "the column %q is there twice", name)
		}
		d, err := c.lookup(name)
		if err != nil {
			return nil, err
		}
		c.names, out = append(c.names, name), append(out, d)
	}
	if len(out) == 0 {
		return nil, c.fail("leave columns out, or name a dataset", "the list of columns is empty")
	}
	return out, nil
}

func (c *chooser) lookup(name string) (*tree.Dataset, error) {
	path := name
	if c.group != "" {
		path = c.group + "/" + name
	}
	for range 16 {
		i := slices.IndexFunc(c.items, func(i tree.Item) bool { return i.Path == path })
		switch {
		case i < 0:
			return nil, c.missing(name, path)
		case c.items[i].Outside:
			return nil, errs.New(errs.Unsupported, "%q is a link to another file, %s", name, c.items[i].Target).
				At(errs.Where{Shard: c.file, Offset: -1, Sample: -1}).Try("give the file that it leads to")
		case c.items[i].Dataset != nil:
			return c.items[i].Dataset, nil
		case c.items[i].Target == "":
			return nil, c.fail("name a dataset; those there are: "+c.shown(), "%q is no dataset", name)
		}
		path = c.items[i].Target
	}
	return nil, c.missing(name, path)
}

func (c *chooser) missing(name, path string) error {
	hint := "the datasets are " + c.shown()
	if near := errs.Nearest(name, c.all()); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	if path != name && c.group == "" {
		return c.fail(hint, "there is no %q, to which %q leads", path, name)
	}
	return c.fail(hint, "there is no dataset %q", name)
}

// all is the names of all datasets.
func (c *chooser) all() (out []string) {
	for _, i := range c.items {
		if name, ok := c.below(i.Path); ok && i.Dataset != nil {
			out = append(out, name)
		}
	}
	return out
}

// shown is the names of the first datasets, for people.
func (c *chooser) shown() string {
	all := c.all()
	if len(all) == 0 {
		return "none"
	}
	return brief(all)
}

func brief(names []string) string {
	if len(names) > 20 {
		names = append(slices.Clone(names[:20]), "...")
	}
	return strings.Join(names, ", ")
}

// common is every dataset whose first dimension has the most common length.
func (c *chooser) common() (out []*tree.Dataset, err error) {
	count := make(map[int64]int)
	most := 0
	for _, i := range c.items {
		if _, ok := c.below(i.Path); ok && i.Dataset != nil && len(i.Dataset.Dims) > 0 {
			count[i.Dataset.Dims[0]]++
			most = max(most, count[i.Dataset.Dims[0]])
		}
	}
	byLength := make(map[int64][]string)
	var lengths []int64
	for _, i := range c.items {
		name, ok := c.below(i.Path)
		if !ok || i.Dataset == nil || len(i.Dataset.Dims) == 0 || count[i.Dataset.Dims[0]] != most {
			continue
		}
		n := i.Dataset.Dims[0]
		if byLength[n] == nil {
			lengths = append(lengths, n)
		}
		byLength[n] = append(byLength[n], name)
		c.names, out = append(c.names, name), append(out, i.Dataset)
	}
	switch {
	case len(lengths) == 0:
		return nil, c.fail("stoker inspect shows what there is", "there is no dataset with rows in %q", "/"+c.group)
	case len(lengths) > 1:
		a, b := lengths[0], lengths[1]
		return nil, c.fail("name those that are the fields of samples: columns=[...], or the group they are in: group=...",
			"there are as many datasets of %d rows (%s) as of %d (%s)", a, brief(byLength[a]), b, brief(byLength[b]))
	}
	return out, nil
}
