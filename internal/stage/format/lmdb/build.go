package lmdb

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// The columns in addition to those that every index has.
const (
	sampleKey  = "sample.key"  // strings: as the field shows it
	sampleFile = "sample.file" // int32
	sampleOff  = "sample.off"  // int64: of the value, bytes
	sampleSize = "sample.size" // int64: of the value, bytes
	filePage   = "file.page"   // int64: length of a page, bytes
	fileKey    = "file.key"    // int64: length of integer keys; 0: keys are bytes
	valueType  = "value.type"  // int64, four rows: valueKind, channels, height, width
)

// tick is how many samples are indexed between two reports of progress.
const tick = 1 << 16

// columns are the samples of all files so far.
type columns struct {
	keys      index.Texts
	file      []int32
	off, size []int64
	skipped   int64
}

func build(ctx context.Context, src source.Source, paths []string, opt Options, b *index.Builder) error {
	objs, err := format.Stat(ctx, src, paths, "LMDB file")
	if err != nil {
		return err
	}
	var c columns
	pages, keyLen := make([]int64, len(objs)), make([]int64, len(objs))
	for i, obj := range objs {
		err := format.Settled(ctx, src, obj, func() error {
			w := &walker{ctx: ctx, src: src, obj: obj}
			if err := w.start(); err != nil {
				return err
			}
			pages[i] = w.meta.pageSize
			from := len(c.off)
			var err error
			if keyLen[i], err = w.gather(opt, int32(i), &c); err != nil {
				return err
			}
			return c.disjoint(w, from)
		})
		if err != nil {
			return err
		}
	}
	if len(c.off) == 0 {
		return errs.New(errs.Empty, "there is no sample in %s", paths[0]).At(errs.Where{Shard: paths[0]}).
			Try("every key is a sample except those like __len__, of which there are %d", c.skipped)
	}
	t, err := judge(ctx, src, objs, &c, opt.Values)
	if err != nil {
		return err
	}
	b.Meta.Samples, b.Meta.Fields, b.Meta.Skipped = int64(len(c.off)), t.kind.fields(), c.skipped
	format.Describe(b, objs)
	b.Strings(sampleKey, &c.keys, index.Identity)
	b.Int32s(sampleFile, c.file, index.Identity)
	b.Int64s(sampleOff, c.off, index.Aside)
	b.Int64s(sampleSize, c.size, index.Identity)
	b.Int64s(filePage, pages, index.Aside)
	b.Int64s(fileKey, keyLen, index.Aside)
	b.Int64s(valueType, []int64{int64(t.kind), t.shape[0], t.shape[1], t.shape[2]}, index.Identity)
	return nil
}

// gather appends the samples of the database that is wanted, and returns the
// length of its keys where they are integers. Named databases are entries of the
// unnamed one.
func (w *walker) gather(opt Options, file int32, c *columns) (keyLen int64, err error) {
	var names []string
	subs := make(map[string]database)
	named := func(e entry) error {
		if e.flags != nodeSub || e.size != databaseLen {
			return w.damaged(e.off, "the database %q is described by %d bytes", e.key, e.size)
		}
		if name := string(e.key); len(names) < maxNames || name == opt.Database {
			names, subs[name] = append(names, name), parseDatabase(e.data)
		}
		return nil
	}
	if opt.Database != "" {
		if err := w.walk(w.meta.main, func(e entry) error {
			if e.flags&nodeSub != 0 {
				return named(e)
			}
			return nil
		}); err != nil {
			return 0, err
		}
		if db, ok := subs[opt.Database]; ok {
			return w.collect(db, file, c, nil, opt.Progress)
		}
		return 0, w.unnamed(opt.Database, names)
	}
	have, skipped := len(c.off), c.skipped
	keyLen, err = w.collect(w.meta.main, file, c, named, opt.Progress)
	switch only := have == len(c.off) && c.skipped-skipped == int64(len(names)); {
	case err != nil || !only || len(names) == 0:
		return keyLen, err
	case len(names) > 1:
		return 0, errs.New(errs.Config, "the environment has %d named databases; choose one: %s", len(names), strings.Join(names, ", ")).
			At(w.at(-1)).Try("pass database=%q", names[0])
	}
	c.skipped = skipped
	return w.collect(subs[names[0]], file, c, nil, opt.Progress)
}

// maxNames bounds what is kept of the names of databases.
const maxNames = 1000

// unnamed is the error of a database that does not exist.
func (w *walker) unnamed(name string, have []string) error {
	e := errs.New(errs.Config, "the environment has no database %q; it has %s", name, cmp.Or(strings.Join(have, ", "), "the unnamed one only")).At(w.at(-1))
	if near := errs.Nearest(name, have); near != "" {
		return e.Try("did you mean %q?", near)
	}
	return e.Try("leave database out for the unnamed one")
}

// collect appends the samples of one database. An entry that is a database goes to
// named; a named database cannot contain any.
func (w *walker) collect(db database, file int32, c *columns, named func(entry) error, progress index.Progress) (keyLen int64, err error) {
	var text []byte
	n := int64(0)
	err = w.walk(db, func(e entry) error {
		if n++; n%tick == 0 && progress != nil {
			progress(n, int64(db.entries), "samples")
		}
		if e.flags&nodeSub != 0 {
			if named == nil {
				return w.damaged(e.off, "a database within a named one")
			}
			c.skipped++
			return named(e)
		}
		if db.flags&integerKey != 0 {
			if keyLen != 0 && keyLen != int64(len(e.key)) {
				return w.damaged(e.off, "an integer key of %d bytes among those of %d", len(e.key), keyLen)
			}
			keyLen = int64(len(e.key))
		}
		text = appendKey(text[:0], db.flags, e.key)
		if isNote(text) {
			c.skipped++
			return nil
		}
		c.keys.Append(text)
		c.file, c.off, c.size = append(c.file, file), append(c.off, e.off), append(c.size, e.size)
		return nil
	})
	if err == nil && progress != nil {
		progress(n, n, "samples")
	}
	return keyLen, err
}

// isNote says whether a key is __like_this__.
func isNote(key []byte) bool {
	n := len(key)
	return n > 4 && key[0] == '_' && key[1] == '_' && key[n-1] == '_' && key[n-2] == '_'
}

// disjoint says whether no two values of a file overlap.
func (c *columns) disjoint(w *walker, from int) error {
	order := make([]int, len(c.off)-from)
	for i := range order {
		order[i] = from + i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(c.off[a], c.off[b]), cmp.Compare(a, b)) })
	for i := 1; i < len(order); i++ {
		a, b := order[i-1], order[i]
		if c.off[b] < c.off[a]+c.size[a] || c.off[b] == c.off[a] {
			return w.damaged(c.off[b], "the values of %q and %q overlap", c.keys.At(a), c.keys.At(b))
		}
	}
	return nil
}

// valid says whether every number of the index can be used without further checks.
func valid(x *index.Index) bool {
	d := open(x)
	n, files := int(x.Len()), x.Files()
	if n < 1 || len(d.off) != n || len(d.size) != n || len(d.file) != n || d.keys.Len() != n ||
		len(d.page) != files || len(d.keyLen) != files || !x.Watched() || !d.kind.known(d.shape) {
		return false
	}
	for i, p := range d.page {
		if k := d.keyLen[i]; k != 0 && k != 4 && k != 8 {
			return false
		}
		if p < minPage || p > maxPage || p&(p-1) != 0 {
			return false
		}
	}
	for i, f := range d.file {
		if f < 0 || int(f) >= files {
			return false
		}
		size, _ := x.Stamp(int(f))
		if d.size[i] < 0 || d.off[i] > size || d.size[i] > size-d.off[i] || d.off[i] < d.before(int64(i)) {
			return false
		}
	}
	return true
}
