package folder

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
)

// dir is one folder of the walk.
type dir struct {
	path   string // as the source knows it
	rel    string // below the root; "" is the root
	class  int32  // -1: the root
	parent *dir
	id     [2]uint64
	mark   int64 // of its version, before it was listed and after; 0: it has none
	subs   []*dir
	files  []file
	full   bool // with what is below subs
	loose  int  // root: files that would be samples if they were in a class
	// others are pipes, sockets and devices that are called as samples are.
	others []other
}

// other is one of them: its path below the root, and what it is.
type other struct{ rel, kind string }

type file struct {
	name    string
	size    int64
	version string
}

// walker lists folders level by level, each level by a few goroutines.
type walker struct {
	src      source.Source
	ext      []string
	progress index.Progress

	mu   sync.Mutex // of progress
	seen atomic.Int64
}

// list fills d with its contents. It lists again if the folder was written to in the
// meantime, so that time and contents belong together.
func (w *walker) list(ctx context.Context, d *dir) error {
	for range 5 {
		before, err := w.src.Stat(ctx, d.path)
		if err != nil {
			return err
		}
		if err := source.Settle(ctx, before); err != nil {
			return err
		}
		if err := w.once(ctx, d); err != nil {
			return err
		}
		after, err := w.src.Stat(ctx, d.path)
		if err != nil {
			return err
		}
		if after.Version == before.Version && after.Dir {
			d.mark = format.Mark(after.Version)
			return nil
		}
	}
	return errs.New(errs.Changed, "the folder is being written to").At(errs.Where{File: d.path}).
		Try("wait until the dataset is complete")
}

func (w *walker) once(ctx context.Context, d *dir) error {
	d.subs, d.files, d.others, d.loose = nil, nil, nil, 0
	for it, err := range w.src.List(ctx, d.path) {
		if err != nil {
			return err
		}
		base := it.Name[strings.LastIndexByte(it.Name, '/')+1:]
		switch {
		case it.Dir:
			sub := &dir{path: it.Name, rel: join(d.rel, base), class: d.class, parent: d, id: it.ID}
			if up := sub.circle(); up != nil {
				return errs.New(errs.Config, "a link leads back to a folder above it, %s", up.path).
					At(errs.Where{File: sub.path}).Try("remove the link: images below it would be taken again and again")
			}
			d.subs = append(d.subs, sub)
		default:
			w.add(d, base, it)
		}
	}
	w.tell(int64(len(d.files)))
	return nil
}

// add takes in what d holds that is not a folder.
func (w *walker) add(d *dir, base string, it source.Info) {
	switch {
	case !w.sample(base):
	case it.Other != "" && d.class >= 0:
		d.others = append(d.others, other{join(d.rel, base), it.Other})
	case d.class < 0:
		d.loose++
	default:
		d.files = append(d.files, file{base, it.Size, it.Version})
	}
}

// flat fills a class with everything below it; false: the source lists folder by folder.
func (w *walker) flat(ctx context.Context, class *dir) (flat bool, err error) {
	all, flat := source.Flat(ctx, w.src, class.path+"/")
	if !flat {
		return false, nil
	}
	dirs, n := map[string]*dir{"": class}, int64(0)
	for it, err := range all {
		if err != nil {
			return true, err
		}
		below := strings.TrimPrefix(it.Name, class.path+"/")
		slash := strings.LastIndexByte(below, '/')
		w.add(w.within(dirs, class, below[:slash+1]), below[slash+1:], it)
		if n++; n%tellFiles == 0 {
			w.tell(tellFiles)
		}
	}
	w.tell(n % tellFiles)
	class.full = true
	return true, ctx.Err()
}

// tellFiles is how often the listing of a class tells its progress, in names.
const tellFiles = 1000

// within is the folder of that name below a class, with those above it. The name ends in
// a slash, so that a folder without a name is not its parent.
func (w *walker) within(dirs map[string]*dir, class *dir, below string) *dir {
	d := dirs[below]
	if d == nil {
		name := strings.TrimSuffix(below, "/")
		up := w.within(dirs, class, name[:strings.LastIndexByte(name, '/')+1])
		d = &dir{path: class.path + "/" + name, rel: class.rel + "/" + name, class: class.class, parent: up}
		dirs[below] = d
		up.subs = append(up.subs, d)
	}
	return d
}

func join(rel, base string) string {
	if rel == "" {
		return base
	}
	return rel + "/" + base
}

// circle is the folder above d that d is.
func (d *dir) circle() *dir {
	if d.id == ([2]uint64{}) {
		return nil
	}
	for up := d.parent; up != nil; up = up.parent {
		if up.id == d.id {
			return up
		}
	}
	return nil
}

func (w *walker) sample(name string) bool {
	for _, e := range w.ext {
		if len(name) >= len(e) && strings.EqualFold(name[len(name)-len(e):], e) {
			return true
		}
	}
	return false
}

func (w *walker) tell(n int64) {
	if w.progress == nil || n == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress(w.seen.Add(n), 0, "files")
}

// level lists folders side by side; the first error in their order counts.
func (w *walker) level(ctx context.Context, dirs []*dir) error {
	return format.EachOf(ctx, w.src, dirs[0].path, len(dirs), func(i int) error {
		if flat, err := w.flat(ctx, dirs[i]); flat || err != nil {
			return err
		}
		return w.list(ctx, dirs[i])
	})
}

// walk is the classes of the folder at root, each a tree, and the root itself.
func (w *walker) walk(ctx context.Context, root string) (*dir, error) {
	top := &dir{path: root, class: -1}
	st, err := w.src.Stat(ctx, root)
	if err != nil {
		return nil, w.noRoot(ctx, root, err)
	}
	if !st.Dir {
		return nil, notFolder(root)
	}
	top.id = st.ID
	if err := w.list(ctx, top); err != nil {
		return nil, err
	}
	slices.SortFunc(top.subs, func(a, b *dir) int { return comparePython(a.rel, b.rel) })
	for i, c := range top.subs {
		c.class = int32(i)
	}
	for level := top.subs; len(level) > 0; {
		if err := w.level(ctx, level); err != nil {
			return nil, err
		}
		var next []*dir
		for _, d := range level {
			if !d.full {
				next = append(next, d.subs...)
			}
		}
		level = next
	}
	return top, nil
}

// flatten is d and all folders below it, sorted by path.
func (d *dir) flatten() []*dir {
	all := []*dir{d}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].subs...)
	}
	slices.SortFunc(all, func(a, b *dir) int { return comparePython(a.rel, b.rel) })
	return all
}

func (w *walker) noRoot(ctx context.Context, root string, err error) error {
	e := errs.From(err)
	if e.Code != errs.NotFound {
		return err
	}
	return errs.New(errs.NotFound, "there is no dataset at %q", root).At(e.Where).Because(e.Cause).Try("%s", pattern.Suggest(ctx, w.src, root))
}

func notFolder(root string) error {
	e := errs.New(errs.Config, "%q is a file, not a folder with one folder per class", root).At(errs.Where{File: root})
	if strings.HasSuffix(strings.ToLower(root), ".tar") {
		return e.Try("it looks like a tar shard: open it with the format tar (WebDataset)")
	}
	return e.Try("give the folder that holds the class folders")
}

// count is a number with its word.
func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
