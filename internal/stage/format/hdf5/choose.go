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
	// unread says why a dataset cannot be read; "": it can.
	unread func(d *tree.Dataset) (why string, err error)
	names  []string // of the chosen ones, below group
	left   []left
}

// left is a dataset that is not a field, since nothing asked for it.
type left struct {
	Name    string `json:"name"`
	Why     string `json:"why"`
	Damaged bool   `json:"damaged,omitempty"`
}

// spoilt is a dataset that is left out because reading it failed with err.
func spoilt(name string, err error) left {
	return left{name, errs.From(err).Error(), errs.CodeOf(err) == errs.Damaged}
}

// ofData says whether an error is about the contents of the file: about one dataset,
// and not about reading all of them.
func ofData(err error) bool {
	code := errs.CodeOf(err)
	return code == errs.Damaged || code == errs.Unsupported
}

// shownLeft is how many of them are named.
const shownLeft = 10

// leftOut is all of them, as they are kept.
type leftOut struct {
	Shown []left `json:"shown"`
	Count int    `json:"count"`
}

func (c *chooser) fail(hint, what string, a ...any) error {
	return errs.New(errs.Config, "%s", fmt.Sprintf(what, a...)).At(errs.Where{Shard: c.file}).Try("%s", hint)
}

// below is the path of an item below the group.
func (c *chooser) below(path string) (string, bool) {
	if c.group == "" {
		return path, true
	}
	return strings.CutPrefix(path, c.group+"/")
}

// choose is the chosen datasets, in the order of columns, or of their paths. have is
// the fields of the first file: all other files must give the same.
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
		if i := slices.Index(out, d); i >= 0 {
			return nil, c.fail("name it once", "the columns %q and %q are two names of one dataset", c.names[i], name)
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
	i, led := c.follow(path)
	switch {
	case i < 0:
		if err := c.hidden(led); err != nil {
			return nil, err
		}
		return nil, c.missing(name, led)
	case c.items[i].Err != nil:
		return nil, c.items[i].Err
	case c.items[i].Outside:
		return nil, errs.New(errs.Unsupported, "%q is a link to another file, %s", name, c.items[i].Target).
			At(errs.Where{Shard: c.file}).Try("give the file that it leads to")
	case c.items[i].Dataset == nil:
		return nil, c.fail("name one of the datasets: "+c.shown(), "%q is not a dataset", name)
	}
	return c.items[i].Dataset, nil
}

// hidden is why the contents of a group that path goes through are not known; nil:
// they are.
func (c *chooser) hidden(path string) error {
	for _, i := range c.items {
		if i.Err != nil && strings.HasPrefix(path, i.Path+"/") {
			return i.Err
		}
	}
	return nil
}

// follow is the item that a path leads to, through links within the file, and the
// path under which it was listed first; -1: it leads to no item.
func (c *chooser) follow(path string) (int, string) {
	for range 16 {
		i := slices.IndexFunc(c.items, func(i tree.Item) bool { return i.Path == path })
		switch {
		case i < 0:
			led, ok := c.through(path)
			if !ok {
				return -1, path
			}
			path = led
		case c.items[i].Target != "" && !c.items[i].Outside:
			path = c.items[i].Target
		case c.items[i].Again:
			path = c.items[i].Same
		default:
			return i, path
		}
	}
	return -1, path
}

// through is path where it goes through a link to a group, or through a name that
// the group's contents are not listed under, and leads on from there; false: it
// goes through none.
func (c *chooser) through(path string) (string, bool) {
	for _, i := range c.items {
		rest, ok := strings.CutPrefix(path, i.Path+"/")
		switch {
		case !ok || i.Path == "" || i.Outside:
		case i.Target != "":
			return i.Target + "/" + rest, true
		case i.Group && i.Again:
			return strings.TrimPrefix(i.Same+"/"+rest, "/"), true
		}
	}
	return "", false
}

// astray is the links that lead to nothing here: to another file, or to a path that
// is not there.
func (c *chooser) astray() (out []left) {
	for _, i := range c.items {
		name, ok := c.below(i.Path)
		if !ok || i.Target == "" {
			continue
		}
		if i.Outside {
			out = append(out, left{Name: name, Why: "a link to another file, " + i.Target})
		} else if at, _ := c.follow(i.Path); at < 0 {
			out = append(out, left{Name: name, Why: "a link to " + i.Target + ", which does not exist"})
		}
	}
	return out
}

func (c *chooser) missing(name, path string) error {
	hint := "the datasets are " + c.shown()
	if near := errs.Nearest(name, c.all()); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	if path != name && c.group == "" {
		return c.fail(hint, "%q does not exist; %q leads to it", path, name)
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

// common is every dataset that can be read and whose first dimension has the most
// common length; all others are left out. Datasets that cannot be read count too when
// that length is determined: three tables of a thousand rows next to a mean of five
// numbers do not make a dataset of five samples. A dataset that has several names is
// called by the first.
func (c *chooser) common() (out []*tree.Dataset, err error) {
	found, err := c.candidates()
	if err != nil {
		return nil, err
	}
	lost, err := c.lost(found)
	if err != nil {
		return nil, err
	}
	rows, err := c.rows(found)
	if err != nil {
		return nil, err
	}
	var unread, other, single []left
	for _, f := range found {
		switch {
		case f.rows < 0:
			single = append(single, left{Name: f.name, Why: "a single value"})
		case f.why != "":
			unread = append(unread, left{f.name, f.why, f.damaged})
		case f.rows == 0 && rows > 0:
			other = append(other, left{Name: f.name, Why: "it has no rows"})
		case f.rows != rows:
			other = append(other, left{Name: f.name, Why: fmt.Sprintf("%d rows instead of %d", f.rows, rows)})
		default:
			c.names, out = append(c.names, f.name), append(out, f.d)
		}
	}
	c.left = slices.Concat(lost, unread, other, c.astray(), single)
	return out, nil
}

// candidate is a dataset below the group.
type candidate struct {
	name    string
	d       *tree.Dataset
	rows    int64  // -1: a single value
	why     string // it cannot be read
	damaged bool   // that is why
}

func (c *chooser) candidates() (out []candidate, err error) {
	seen := make(map[*tree.Dataset]bool)
	for _, i := range c.items {
		name, ok := c.below(i.Path)
		if !ok || i.Dataset == nil || seen[i.Dataset] {
			continue
		}
		seen[i.Dataset] = true
		f := candidate{name: name, d: i.Dataset, rows: -1}
		if len(f.d.Dims) > 0 {
			f.rows = f.d.Dims[0]
			if f.why, err = c.unread(f.d); err != nil {
				if !ofData(err) {
					return nil, err
				}
				one := spoilt(name, err)
				f.why, f.damaged = one.Why, one.Damaged
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// lost is the datasets below the group whose length cannot be read. They are left
// out if they cannot change which length is the most common, and an error
// otherwise, as is a group whose contents cannot be listed.
func (c *chooser) lost(found []candidate) (out []left, err error) {
	for _, i := range c.items {
		name, ok := c.below(i.Path)
		if i.Err == nil || i.Again {
			continue
		}
		inside := c.group != "" && strings.HasPrefix(c.group+"/", i.Path+"/")
		switch {
		case !ok && !inside:
		case i.Group || inside:
			return nil, c.doubt(i)
		default:
			out = append(out, spoilt(name, i.Err))
			err = c.doubt(i)
		}
	}
	count := make(map[int64]int)
	first, second := 0, 0
	for _, f := range found {
		if f.rows > 0 {
			count[f.rows]++
		}
	}
	for _, n := range count {
		if n > first {
			first, second = n, first
		} else {
			second = max(second, n)
		}
	}
	if first > second+len(out) {
		return out, nil
	}
	return out, err
}

// doubt is the error of an item without which it is not known what a sample is.
func (c *chooser) doubt(i tree.Item) error {
	e := *errs.From(i.Err)
	e.Hint = "if the others are sound, name the datasets to load: columns=[...]; or " + e.Hint
	return &e
}

// rows is the length that is most common among datasets, and that one which can
// be read has.
func (c *chooser) rows(found []candidate) (int64, error) {
	count, readable := make(map[int64]int), make(map[int64][]string)
	var unread []string
	most := 0
	for _, f := range found {
		if f.rows > 0 {
			count[f.rows]++
			most = max(most, count[f.rows])
		}
		if f.rows >= 0 && f.why == "" {
			readable[f.rows] = append(readable[f.rows], f.name)
		}
	}
	if most == 0 && readable[0] != nil {
		return 0, nil // of several files one may be empty
	}
	var lengths []int64
	for _, f := range found {
		switch {
		case f.rows <= 0 || count[f.rows] != most:
		case f.why != "":
			unread = append(unread, fmt.Sprintf("%q (%s)", f.name, f.why))
		case !slices.Contains(lengths, f.rows):
			lengths = append(lengths, f.rows)
		}
	}
	const choose = "name the datasets that are the fields of samples: columns=[...], or the group that holds them: group=..."
	switch {
	case len(lengths) == 1:
		return lengths[0], nil
	case len(lengths) > 1:
		a, b := lengths[0], lengths[1]
		return 0, c.fail(choose, "there are as many datasets of %d rows (%s) as of %d (%s)", a, brief(readable[a]), b, brief(readable[b]))
	case unread != nil:
		return 0, errs.New(errs.Unsupported, "none of the datasets in %q that have as many rows as most can be read: %s", "/"+c.group, brief(unread)).
			At(errs.Where{Shard: c.file}).Try("write them as arrays of numbers; or %s", choose)
	}
	return 0, c.fail("stoker inspect shows what there is", "there is no dataset with rows in %q", "/"+c.group)
}
