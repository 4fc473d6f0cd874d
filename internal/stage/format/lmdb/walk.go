package lmdb

import (
	"context"
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// atOnce is how many leaves are read at once; one is at most 64 KiB.
const atOnce = 64

// walker reads one environment. Whatever its bytes are, it terminates: the depth of a
// tree is bounded, every leaf has a key, and the keys have to rise from leaf to leaf,
// so that no page is walked twice.
type walker struct {
	ctx  context.Context
	src  source.Source
	obj  source.Info
	meta meta
}

// entry is one key of a database; the slices are valid in the call only.
type entry struct {
	node
	off int64 // of the value in the file
}

func (w *walker) at(off int64) errs.Where {
	return errs.Where{Shard: w.obj.Name, Offset: errs.Known(off)}
}

func (w *walker) damaged(off int64, what string, a ...any) error {
	return errs.New(errs.Damaged, "%s", fmt.Sprintf(what, a...)).At(w.at(off)).
		Try("copy the environment again with mdb_copy or lmdb's Environment.copy, while no program writes to it")
}

func (w *walker) unsupported(off int64, hint, what string, a ...any) error {
	return errs.New(errs.Unsupported, "%s", fmt.Sprintf(what, a...)).At(w.at(off)).Try("%s", hint)
}

const convert = "write it again on this machine: mdb_dump there, mdb_load here"

// start reads both meta pages and takes the younger one.
func (w *walker) start() error {
	first, err := format.Read(w.ctx, w.src, w.obj, 0, min(w.obj.Size, metaLen))
	if err != nil {
		return err
	}
	m, ok := parseMeta(first)
	if !ok {
		return w.foreign(first)
	}
	if m.version != dataVersion {
		return w.unsupported(20, "write it with LMDB 0.9: mdb_dump with the version that made it, mdb_load with 0.9", "version %d of LMDB's data format; version 1 can be read", m.version)
	}
	if s := m.pageSize; s < minPage || s > maxPage || s&(s-1) != 0 {
		return w.damaged(40, "pages of %d bytes", s)
	}
	second, err := format.Read(w.ctx, w.src, w.obj, m.pageSize, metaLen)
	if err != nil {
		return err
	}
	n, ok := parseMeta(second)
	if !ok || n.version != m.version || n.pageSize != m.pageSize {
		return w.damaged(m.pageSize, "the second meta page is missing, or contradicts the first")
	}
	if n.txn > m.txn {
		m = n
	}
	w.meta = m
	return nil
}

// foreign says what the file is if it is not an environment of a machine like ours.
func (w *walker) foreign(b []byte) error {
	is := func(at int, m uint32) bool {
		return len(b) >= at+4 && (le.Uint32(b[at:]) == m)
	}
	const swapped = 0xDEC0EFBE
	switch {
	case is(12, magic):
		return w.unsupported(12, convert, "an environment of a 32-bit machine")
	case is(16, swapped), is(12, swapped):
		return w.unsupported(16, convert, "an environment of a big-endian machine")
	case is(24, magic):
		return w.unsupported(24, "write it with LMDB 0.9", "an environment of LMDB 1.0; 0.9 can be read")
	}
	return w.damaged(0, "this is not an LMDB environment: the magic number of a meta page is missing")
}

// page checks the head of a page that was read into b.
func (w *walker) page(b []byte, no uint64, kind uint16) error {
	off := int64(no) * w.meta.pageSize
	got := le.Uint16(b[10:]) & kindMask
	switch {
	case le.Uint64(b) != no:
		return w.damaged(off, "page %d says that it is page %d", no, le.Uint64(b))
	case got != kind:
		return w.damaged(off+10, "page %d is of kind %#x, but kind %#x belongs here", no, got, kind)
	case nodes(b) < 1:
		return w.damaged(off+12, "the pointers of page %d end at %d", no, le.Uint16(b[12:]))
	}
	return nil
}

func (w *walker) read(no uint64, kind uint16) ([]byte, error) {
	if no < 2 || no > uint64(w.obj.Size/w.meta.pageSize) {
		return nil, w.damaged(-1, "the tree leads to page %d, but the file has %d bytes, which are %d pages", no, w.obj.Size, w.obj.Size/w.meta.pageSize)
	}
	b, err := format.Read(w.ctx, w.src, w.obj, int64(no)*w.meta.pageSize, w.meta.pageSize)
	if err != nil {
		return nil, err
	}
	return b, w.page(b, no, kind)
}

// walk calls f with every entry of a database in the order of its keys, and checks
// the order and the number of keys.
func (w *walker) walk(db database, f func(e entry) error) error {
	if db.flags&dupSort != 0 {
		return w.unsupported(-1, "write it into a database without dupsort, with a key for each value", "the database has several values for a key (dupsort)")
	}
	if db.root == noPage {
		if db.entries != 0 {
			return w.damaged(-1, "a database of %d keys without a root", db.entries)
		}
		return nil
	}
	if db.depth < 1 || db.depth > maxDepth {
		return w.damaged(-1, "a tree of depth %d", db.depth)
	}
	t := &tree{walker: w, db: db, yield: f}
	if db.depth == 1 {
		b, err := w.read(db.root, isLeaf)
		if err != nil {
			return err
		}
		if err := t.leaf(b, db.root); err != nil {
			return err
		}
	} else if err := t.branch(db.root, db.depth); err != nil {
		return err
	}
	if t.count != db.entries {
		return w.damaged(-1, "the database should have %d keys, but has %d", db.entries, t.count)
	}
	return nil
}

// tree is one walk.
type tree struct {
	*walker
	db    database
	yield func(e entry) error
	last  []byte
	count uint64
}

// branch walks what is below page no, which is level pages above the leaves.
func (t *tree) branch(no uint64, level int) error {
	b, err := t.read(no, isBranch)
	if err != nil {
		return err
	}
	children := make([]uint64, nodes(b))
	for i := range children {
		n, ok := nodeAt(b, i, false)
		if !ok {
			return t.damaged(int64(no)*t.meta.pageSize, "node %d of page %d is outside the page", i, no)
		}
		children[i] = n.child
	}
	if level > 2 {
		for _, c := range children {
			if err := t.branch(c, level-1); err != nil {
				return err
			}
		}
		return nil
	}
	for len(children) > 0 {
		n := min(len(children), atOnce)
		if err := t.leaves(children[:n]); err != nil {
			return err
		}
		children = children[n:]
	}
	return nil
}

// leaves reads leaves concurrently and walks them one after the other.
func (t *tree) leaves(numbers []uint64) error {
	pages := make([][]byte, len(numbers))
	err := format.EachOf(t.ctx, t.src, t.obj.Name, len(numbers), func(i int) error {
		var err error
		pages[i], err = t.read(numbers[i], isLeaf)
		return err
	})
	if err != nil {
		return err
	}
	for i, b := range pages {
		if err := t.leaf(b, numbers[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) leaf(b []byte, no uint64) error {
	base := int64(no) * t.meta.pageSize
	for i := range nodes(b) {
		n, ok := nodeAt(b, i, true)
		if !ok {
			return t.damaged(base, "node %d of page %d is outside the page", i, no)
		}
		at := base + int64(n.at)
		switch k := len(n.key); {
		case t.db.flags&integerKey != 0 && k != 4 && k != 8, k == 0:
			return t.damaged(at+6, "a key of %d bytes", k)
		case t.count > 0 && compare(t.db.flags, t.last, n.key) >= 0:
			return t.damaged(at, "the keys are out of order: %q comes after %q", n.key, t.last)
		case t.count == t.db.entries:
			return t.damaged(at, "the database should have %d keys, but has more", t.db.entries)
		case n.flags&^(nodeBig|nodeSub) != 0:
			return t.damaged(at+4, "a value has the flags %#x", n.flags)
		}
		e := entry{node: n, off: at + nodeLen + int64(len(n.key))}
		if n.flags&nodeBig != 0 {
			var err error
			if e.off, err = t.overflow(n, at); err != nil {
				return err
			}
		}
		t.last = append(t.last[:0], n.key...)
		t.count++
		if err := t.yield(e); err != nil {
			return err
		}
	}
	return nil
}

// overflow is where a value is stored that has its own pages. What those pages say of
// themselves is read with the value.
func (t *tree) overflow(n node, at int64) (int64, error) {
	first := le.Uint64(n.data)
	have, need := t.obj.Size/t.meta.pageSize, overflows(n.size, t.meta.pageSize)
	if first < 2 || first > uint64(have) || need > have-int64(first) {
		return 0, t.damaged(at, "the value of %q has %d bytes from page %d on, but the file ends with page %d", n.key, n.size, first, have-1)
	}
	return int64(first)*t.meta.pageSize + headLen, nil
}
