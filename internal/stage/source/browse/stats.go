package browse

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// What Stat says of many names comes from listings of their folders, where that is less
// than a request for each.

const (
	// fewNames of a folder are looked at one by one: nothing says how long its listing is.
	fewNames = 3
	// A listing that is read for n names is given up after listFor*n + pageNames names: by
	// then it has cost more than looking at each. A page of a listing has pageNames in most
	// stores.
	listFor   = 64
	pageNames = 1000
	// dirsAtOnce is how many folders are listed at the same time.
	dirsAtOnce = 16
)

// Stats is Statter's. Of names in one folder that are more than a few it lists the
// folder, as far as that pays, and looks only at those of which the listing does not say
// everything.
func (b *Browser) Stats(ctx context.Context, names []string, got func(i int, st source.Info, err error) error) error {
	var (
		near []int            // of local files
		of   map[string][]int // the others, by folder
		dirs []string
	)
	for i, name := range names {
		if b.passes(name) {
			near = append(near, i)
			continue
		}
		if of == nil {
			of = map[string][]int{}
		}
		dir := source.Dir(key(name))
		if len(of[dir]) == 0 {
			dirs = append(dirs, dir)
		}
		of[dir] = append(of[dir], i)
	}
	if err := source.StatEach(ctx, b, names, near, got); err != nil || len(dirs) == 0 {
		return err
	}
	var mu sync.Mutex
	tell := func(i int, st source.Info, err error) error {
		mu.Lock()
		defer mu.Unlock()
		return got(i, st, err)
	}
	left := make([][]int, len(dirs))
	err := source.Each(ctx, dirsAtOnce, len(dirs), func(d int) (err error) {
		left[d], err = b.statIn(ctx, dirs[d], names, of[dirs[d]], tell)
		return err
	})
	if err != nil {
		return err
	}
	return source.StatEach(ctx, b, names, slices.Concat(left...), got)
}

// Expect says that Stat will be asked for these names one by one: a Browser looks at those
// that wait together, and remembers. What goes wrong is for Stat to say.
func Expect(ctx context.Context, src source.Source, names []string) {
	b, ok := src.(*Browser)
	if !ok {
		return
	}
	names = slices.DeleteFunc(slices.Clone(names), b.passes)
	_ = b.Stats(ctx, names, func(int, source.Info, error) error { return nil })
}

// statIn tells of the names (which: their numbers) that a listing of their folder says
// everything about, and returns the others.
func (b *Browser) statIn(ctx context.Context, dir string, names []string, which []int, tell func(int, source.Info, error) error) (left []int, err error) {
	for _, i := range which {
		st, e, known := b.recall(names[i])
		if !known {
			left = append(left, i)
		} else if err := tell(i, st, e); err != nil {
			return nil, err
		}
	}
	if len(left) < fewNames || strings.HasSuffix(dir, "://") || source.Can(b.src, dir).Names {
		return left, nil
	}
	wanted, last := make(map[string][]int, len(left)), ""
	for _, i := range left {
		k := key(names[i])
		wanted[k] = append(wanted[k], i)
		last = max(last, k)
	}
	left = left[:0]
	seen, limit := 0, listFor*len(wanted)+pageNames
	all, flat := source.Flat(ctx, b.src, source.Below(dir))
	if flat {
		all = direct(dir, atMost(limit, all))
	} else {
		all = b.src.List(ctx, dir)
	}
	b.list(ctx, dir, flat, all, func(it source.Info, e error) bool {
		if e != nil {
			return false // looking at each says why
		}
		k := key(it.Name)
		for _, i := range wanted[k] {
			if !whole(it) {
				left = append(left, i)
				continue
			}
			st := it
			st.Name = names[i]
			if err = tell(i, st, nil); err != nil {
				return false
			}
		}
		delete(wanted, k)
		seen++
		return seen <= limit && (it.Dir || k <= last+"0") && len(wanted) > 0
	})
	if err != nil {
		return nil, err
	}
	for _, more := range wanted { // those that are not there, or were not reached
		left = append(left, more...)
	}
	return left, ctx.Err()
}

// direct makes what is directly below a folder of a listing of all objects below it. It
// comes page by page, so whoever looks for a few names can stop early.
func direct(dir string, all iter.Seq2[source.Info, error]) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		last := ""
		for it, err := range all {
			if err == nil {
				first, _, deeper := strings.Cut(strings.TrimPrefix(it.Name, source.Below(dir)), "/")
				if deeper && (first == last || first == "") { // a folder without a name is in no listing
					continue
				}
				if deeper {
					last, it = first, source.Info{Name: source.Below(dir) + first, Dir: true}
				}
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// errEnough ends a listing that costs more than it can save.
var errEnough = errs.New(errs.Bug, "the listing goes on")

// atMost is the first n objects of a listing, and errEnough if there are more.
func atMost(n int, all iter.Seq2[source.Info, error]) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		left := n
		for it, err := range all {
			if left--; left < 0 {
				yield(source.Info{}, errEnough)
				return
			}
			if !yield(it, err) {
				return
			}
		}
	}
}
