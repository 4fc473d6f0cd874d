package tree

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Item is what a path of a file leads to.
type Item struct {
	Path string // without the first slash; "": the file itself
	// Group, Dataset and Target: one of them says what it is; all empty: a named
	// type.
	Group      bool
	Dataset    *Dataset
	Target     string // of a link: a path of the file, or FILE:PATH
	Outside    bool   // the target is in another file
	Attributes []Attribute
	// Again says that the object was listed before, and Same under which name. What
	// is in a group is listed below that.
	Again bool
	Same  string
	// Err is why it cannot be read, or, of a group, why it is not known what is in it;
	// such an item lacks what could not be read. nil: it can. What the source could
	// not read is an error of Items instead.
	Err error
}

// maxItems bounds what is listed of a file, maxDeep how deep its groups go.
const (
	maxItems = 1 << 20
	maxDeep  = 64
)

// link is an entry of a group.
type link struct {
	name    string
	address uint64
	target  string // of a soft link, or of one to another file
	outside bool
}

// Items is everything that is in the file, groups before what is in them, in the
// byte order of names. An object that has several names is listed under each of
// them. Attributes are read if they are asked for. One object that is damaged does
// not keep the others from being listed, unless it is the root.
func (f *File) Items(attributes bool) ([]Item, error) {
	w := &listing{f: f, known: make(map[uint64]int), attributes: attributes}
	if err := w.visit("", f.root, 0); err != nil {
		return nil, err
	}
	return w.items, nil
}

type listing struct {
	f          *File
	items      []Item
	known      map[uint64]int // of objects: into items
	attributes bool
}

func (w *listing) visit(path string, address uint64, deep int) error {
	if len(w.items) >= maxItems || deep > maxDeep {
		return w.f.Unsupported(-1, "split the file", "the file has more than %d objects, or groups that are %d deep", maxItems, maxDeep)
	}
	if first, again := w.known[address]; again {
		item := w.items[first]
		item.Path, item.Same, item.Again = path, item.Path, true
		w.items = append(w.items, item)
		return nil
	}
	no := len(w.items)
	w.known[address] = no
	w.items = append(w.items, Item{Path: path})
	o, err := w.f.object(address)
	if err == nil {
		err = w.look(&w.items[no], o)
	}
	if err == nil && w.items[no].Group {
		err = w.group(path, o, deep)
	}
	if path == "" || err == nil || !ofData(err) {
		return err
	}
	w.items[no].Err = err
	return nil
}

// ofData says whether an error is about the contents of the file, and not about
// reading it.
func ofData(err error) bool {
	code := errs.CodeOf(err)
	return code == errs.Damaged || code == errs.Unsupported
}

// look fills in what an object is.
func (w *listing) look(item *Item, o *object) (err error) {
	switch {
	case o.first(msgSymbols) != nil || o.first(msgLinks) != nil || o.first(msgLink) != nil || item.Path == "":
		item.Group = true
	case o.first(msgLayout) != nil || o.first(msgSpace) != nil:
		if item.Dataset, err = w.f.dataset(item.Path, o); err != nil {
			return err
		}
	}
	if w.attributes {
		item.Attributes, err = w.f.attributes(o)
	}
	return err
}

// group lists what is in a group.
func (w *listing) group(path string, o *object, deep int) error {
	links, err := w.f.links(o)
	if err != nil {
		return err
	}
	slices.SortFunc(links, func(a, b link) int { return cmp.Compare(a.name, b.name) })
	for i, l := range links {
		if i > 0 && l.name == links[i-1].name || l.name == "" || strings.ContainsAny(l.name, "/\x00") {
			return w.f.Damaged(o.off, "the group %q has the name %q twice, or the name is not valid", path, l.name)
		}
	}
	for _, l := range links {
		full := l.name
		if path != "" {
			full = path + "/" + l.name
		}
		if l.target != "" {
			if !l.outside {
				l.target = resolve(path, l.target)
			}
			w.items = append(w.items, Item{Path: full, Target: l.target, Outside: l.outside})
			continue
		}
		if err := w.visit(full, l.address, deep+1); err != nil {
			return err
		}
	}
	return nil
}

// resolve is the path that a soft link in a group leads to.
func resolve(group, target string) string {
	if !strings.HasPrefix(target, "/") && group != "" {
		target = group + "/" + target
	}
	var parts []string
	for p := range strings.SplitSeq(target, "/") {
		if p != "" && p != "." {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "/")
}

// links is the entries of a group, whichever way they are stored.
func (f *File) links(o *object) (out []link, err error) {
	if c := o.first(msgSymbols); c != nil {
		tree, heap := c.u64(), c.u64()
		if c.short {
			return nil, f.Damaged(o.off, "a group does not say where its names are")
		}
		return f.symbols(tree, heap)
	}
	for i := range o.all {
		if o.all[i].kind != msgLink {
			continue
		}
		c := o.all[i].cursor
		l, err := f.link(&c)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	c := o.first(msgLinks)
	if c == nil {
		return out, nil
	}
	c.skip(1)
	if flags := c.u8(); flags&1 != 0 {
		c.skip(8)
	}
	heap, names := c.u64(), c.u64()
	if c.short {
		return nil, f.Damaged(o.off, "a group does not say where its links are")
	}
	if heap == undefined {
		return out, nil
	}
	h, err := f.heap(heap)
	if err != nil {
		return nil, err
	}
	err = f.records(names, func(kind uint8, c *cursor) error {
		if kind != 5 {
			return f.Damaged(c.off, "a tree of kind %d where the names of a group are", kind)
		}
		c.skip(4)
		body, err := h.get(c)
		if err != nil {
			return err
		}
		l, err := f.link(body)
		out = append(out, l)
		return err
	})
	return out, err
}

// link reads a link message.
func (f *File) link(c *cursor) (link, error) {
	start := c.here()
	version, flags := c.u8(), c.u8()
	kind := uint8(0)
	if flags&0x08 != 0 {
		kind = c.u8()
	}
	if flags&0x04 != 0 {
		c.skip(8)
	}
	if flags&0x10 != 0 {
		c.skip(1)
	}
	n := c.uint(1 << (flags & 3))
	if version != 1 || n > uint64(c.left()) {
		return link{}, f.Damaged(start, "a link of version %d with a name of %d bytes", version, n)
	}
	l := link{name: string(c.bytes(int(n)))}
	switch kind {
	case 0:
		l.address = c.u64()
	case 1:
		l.target = string(c.bytes(int(c.u16())))
	case 64:
		b := cursor{b: c.bytes(int(c.u16())), off: c.off}
		b.skip(1) // version and flags
		l.outside, l.target = true, b.text()+":"+b.text()
		c.short = c.short || b.short
	default:
		return l, f.Unsupported(start, repack, "a link of kind %d with the name %q", kind, l.name)
	}
	if c.short || kind != 0 && l.target == "" {
		return l, f.Damaged(start, "the link %q ends too early", l.name)
	}
	return l, nil
}

// symbols reads a group of the old kind: a B-tree of tables of symbols, whose names
// are stored in a heap.
func (f *File) symbols(tree, heap uint64) (out []link, err error) {
	c, err := f.marked(heap, 32, "HEAP")
	if err != nil {
		return nil, err
	}
	c.skip(4)
	size := int64(c.u64())
	c.skip(8)
	names, err := f.block(c.u64(), max(size, 0))
	if err != nil {
		return nil, err
	}
	name := func(at uint64) string {
		n := *names
		n.at = int(min(at, uint64(len(n.b))))
		return n.text()
	}
	seen := make(map[uint64]bool)
	var visit func(address uint64, level int) error
	visit = func(address uint64, level int) error {
		if seen[address] {
			return f.Damaged(f.base+int64(address), "the names of a group form a cycle")
		}
		seen[address] = true
		if level == -1 {
			return f.table(address, name, &out)
		}
		c, err := f.marked(address, 24, "TREE")
		if err != nil {
			return err
		}
		kind, here, used := c.u8(), int(c.u8()), int(c.u16())
		if kind != 0 || level >= 0 && here != level {
			return f.Damaged(c.off, "a page of kind %d at level %d among the names of a group", kind, here)
		}
		if c, err = f.block(address, int64(24+16*used+8)); err != nil {
			return err
		}
		c.skip(24)
		for range used {
			c.skip(8)
			if err := visit(c.u64(), here-1); err != nil {
				return err
			}
		}
		return nil
	}
	return out, visit(tree, -2)
}

// table reads one table of symbols.
func (f *File) table(address uint64, name func(uint64) string, out *[]link) error {
	c, err := f.marked(address, 8, "SNOD")
	if err != nil {
		return err
	}
	c.skip(2)
	n := int(c.u16())
	if c, err = f.block(address, int64(8+40*n)); err != nil {
		return err
	}
	c.skip(8)
	for range n {
		l := link{name: name(c.u64()), address: c.u64()}
		kind := c.u32()
		c.skip(4)
		if value := uint64(c.u32()); kind == 2 {
			if l.target = name(value); l.target == "" {
				return f.Damaged(c.here(), "the link %q leads nowhere", l.name)
			}
		}
		c.skip(12)
		*out = append(*out, l)
	}
	return nil
}
