package source

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Browser is the source of one opening of a dataset, between those who open it and the
// source that is read later. Opening asks for the same names again and again, reads a
// little here and there, and reads shards from beginning to end to index them: over a
// store each of these is a request. A Browser asks for what a folder holds once, and
// answers from that listing what it is asked of names in it; it reads long ranges ahead
// of whoever reads in order (see ahead). So everything that one opening sees of a folder
// is of one moment.
//
// Names of local files are passed on as they are: their source costs less than this
// does. After End, every call is.
type Browser struct {
	// Believe says that an index is taken as true: nobody asks whether what it describes is
	// still what is stored. A read of an object that changed finds it.
	Believe bool

	src   Source
	tell  func(names int64) // of names that were listed; may be nil
	ended atomic.Bool
	ahead *ahead

	mu      sync.Mutex
	heads   map[string][]byte
	looked  map[string]look    // what Stat said, by name without a slash at its end
	folders map[string]*folder // by name without a slash at its end
	named   map[string][]Info  // what Names said, where that is less than a listing says
	room    int                // names that may still be remembered
	listed  int64
	told    int64
}

// look is an answer of Stat.
type look struct {
	info Info
	err  error
}

// folder is the beginning of a listing.
type folder struct {
	all  []Info         // in the order in which they came
	at   map[string]int // in all, by name
	done bool           // that is everything
	upto string         // objects with names up to this one are all there
	gone error          // what Stat said of a name that is not in it; nil: not asked
	keys bool           // a store's: what is not among its keys is not there
}

// covers says whether what has that name, a folder too, would be in the listing. Keys below
// a folder come after "name/" and before "name0".
func (f *folder) covers(name string) bool { return f.done || name+"0" <= f.upto }

const (
	// mostNames is how many names of listings a Browser remembers, a hundred bytes each or
	// two. What is beyond is asked for again.
	mostNames = 200_000
	// mostHeads is how many beginnings of objects it remembers, of headBytes each.
	mostHeads, headBytes = 64, 4096
	// fewNames of a folder are looked at one by one: nothing says how long its listing is.
	fewNames = 3
	// A listing that is read for n names is given up after listFor*n + pageNames names: by
	// then it has cost more than looking at each. A page of a listing has pageNames in most
	// stores.
	listFor   = 64
	pageNames = 1000
	// tellNames is how often progress of listings is told, in names.
	tellNames = 1000
)

// NewBrowser makes a Browser of a source. Reads ahead end with ctx. tell hears of every
// thousand names that were listed, one call at a time; it may be nil.
func NewBrowser(ctx context.Context, src Source, tell func(names int64)) *Browser {
	return &Browser{
		src: src, tell: tell, ahead: newAhead(ctx, src),
		heads: map[string][]byte{}, looked: map[string]look{}, folders: map[string]*folder{}, named: map[string][]Info{}, room: mostNames,
	}
}

// Believed says whether an index of what is in src is taken as true.
func Believed(src Source) bool {
	b, ok := src.(*Browser)
	return ok && b.Believe
}

// Direct is src for reads that are few and far apart, and not the beginning of more.
func Direct(src Source) Source {
	if b, ok := src.(*Browser); ok {
		return b.src
	}
	return src
}

// End forgets everything, and ends what is being read ahead.
func (b *Browser) End() {
	if b.ended.Swap(true) {
		return
	}
	b.ahead.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heads, b.looked, b.folders, b.named, b.room = nil, nil, nil, nil, 0
}

// passes says whether a name is none that is remembered.
func (b *Browser) passes(name string) bool {
	return b.ended.Load() || len(name) > 0 && name[0] == '/' || SchemeOf(Bare(name)) == ""
}

// key is a name as it is remembered.
func key(name string) string { return strings.TrimRight(name, "/") }

// ReadAt is Source's.
func (b *Browser) ReadAt(ctx context.Context, obj Info, p []byte, off int64) error {
	if b.passes(obj.Name) {
		return b.src.ReadAt(ctx, obj, p, off)
	}
	return b.ahead.readAt(ctx, obj, p, off)
}

// Stat is Source's.
func (b *Browser) Stat(ctx context.Context, name string) (Info, error) {
	if b.passes(name) {
		return b.src.Stat(ctx, name)
	}
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	if st, err, known := b.recall(name); known {
		return st, err
	}
	st, err := b.src.Stat(ctx, name)
	if err == nil || errs.CodeOf(err) == errs.NotFound && ctx.Err() == nil {
		b.remember(name, st, err)
	}
	return st, err
}

// Head is Header's. What it reads is remembered, of a few objects: detection looks at the
// same files several times.
func (b *Browser) Head(ctx context.Context, name string, p []byte) (int, error) {
	if b.passes(name) || len(p) > headBytes {
		return Head(ctx, b.src, name, p)
	}
	b.mu.Lock()
	head, known := b.heads[name]
	b.mu.Unlock()
	if !known {
		st, err := b.Stat(ctx, name)
		if err != nil {
			return 0, err
		}
		if st.Dir {
			return 0, isFolder(name)
		}
		head = make([]byte, min(headBytes, st.Size))
		if err := b.src.ReadAt(ctx, st, head, 0); err != nil {
			return 0, err
		}
		b.mu.Lock()
		if len(b.heads) < mostHeads && b.heads != nil {
			b.heads[strings.Clone(name)] = head
		}
		b.mu.Unlock()
	}
	return copy(p, head), nil
}

// recall is what is known of a name.
func (b *Browser) recall(name string) (st Info, err error, known bool) { //nolint:revive,staticcheck // known is about both
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key(name)
	if l, ok := b.looked[k]; ok {
		l.info.Name = name
		return l.info, l.err, true
	}
	if b.nowhere(k) {
		return Info{}, errs.New(errs.NotFound, "there is no such object or folder").At(where(name, -1)).
			Try("check the name; if it was there when the dataset was indexed, it was removed since"), true
	}
	f := b.folders[Dir(k)]
	if f == nil {
		return Info{}, nil, false
	}
	if at, ok := f.at[k]; ok {
		st = f.all[at]
		st.Name = strings.Clone(name)
		return st, nil, st.whole()
	}
	if f.gone == nil || !f.covers(k) {
		return Info{}, nil, false // the source says it better, once
	}
	e := *errs.From(f.gone)
	e.Where.File = strings.Clone(name)
	return Info{}, &e, true
}

// nowhere says that the keys of a store, as far as they were listed, do not have a name, nor
// the folder that it is in. b.mu is held.
func (b *Browser) nowhere(k string) bool {
	for ; !strings.HasSuffix(Dir(k), "://") && Dir(k) != k; k = Dir(k) {
		if f := b.folders[Dir(k)]; f != nil {
			_, there := f.at[k]
			return f.keys && !there && f.covers(k)
		}
	}
	return false
}

// whole says whether an entry of a listing is all that Stat would say.
func (i Info) whole() bool { return i.Dir || i.Version != "" && i.Other == "" }

func (b *Browser) remember(name string, st Info, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key(name)
	if err != nil {
		if f := b.folders[Dir(k)]; f != nil && f.gone == nil && f.covers(k) {
			f.gone = err
		}
	}
	if b.room > 0 {
		b.room--
		b.looked[strings.Clone(k)] = look{st, err}
	}
}

// List is Source's.
func (b *Browser) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	if b.passes(prefix) {
		return b.src.List(ctx, prefix)
	}
	return func(yield func(Info, error) bool) {
		b.mu.Lock()
		f := b.folders[key(prefix)]
		b.mu.Unlock()
		if f == nil || !f.done {
			_, keys := Flat(ctx, b.src, prefix)
			b.list(ctx, prefix, keys && !namesOnly(b.src, prefix), b.src.List(ctx, prefix), yield)
			return
		}
		for _, it := range f.all {
			if !yield(it, nil) {
				return
			}
		}
	}
}

// list passes on what a listing of a folder yields, and remembers it. keys: it is a store's.
func (b *Browser) list(ctx context.Context, prefix string, keys bool, all iter.Seq2[Info, error], yield func(Info, error) bool) {
	f := &folder{at: map[string]int{}, keys: keys}
	fits, stopped := true, false
	for it, err := range all {
		if err != nil {
			yield(it, err)
			stopped = true
			break
		}
		b.count(1)
		if fits = fits && b.take(); fits {
			k := key(it.Name)
			f.at[k] = len(f.all)
			f.all = append(f.all, it)
			if !it.Dir && k > f.upto {
				f.upto = k
			}
		}
		if !yield(it, nil) {
			stopped = true
			break
		}
	}
	f.done = fits && !stopped && ctx.Err() == nil
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.folders != nil && (b.folders[key(prefix)] == nil || f.done) {
		b.folders[key(prefix)] = f
	}
}

// direct makes what is directly below a folder of a listing of all objects below it. It
// comes page by page, so whoever looks for a few names can stop early.
func direct(dir string, all iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		last := ""
		for it, err := range all {
			if err == nil {
				rest := strings.TrimPrefix(strings.TrimPrefix(it.Name, dir), "/")
				first, _, deeper := strings.Cut(rest, "/")
				if deeper && first == last {
					continue
				}
				if deeper {
					last, it = first, Info{Name: dir + "/" + first, Dir: true}
				}
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// errEnough ends a listing that has cost more than it can save.
var errEnough = errs.New(errs.Bug, "the listing goes on")

// atMost is the first n objects of a listing, and errEnough if there are more.
func atMost(n int, all iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		left := n
		for it, err := range all {
			if left--; left < 0 {
				yield(Info{}, errEnough)
				return
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// take is room for one name more.
func (b *Browser) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.room <= 0 {
		return false
	}
	b.room--
	return true
}

// count tells of names that were listed.
func (b *Browser) count(n int64) {
	if b.tell == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed += n; b.listed-b.told >= tellNames {
		b.told = b.listed
		b.tell(b.listed)
	}
}

// Names is Namer's.
func (b *Browser) Names(ctx context.Context, prefix string) (all []Info, err error) {
	if b.passes(prefix) {
		return Names(ctx, b.src, prefix)
	}
	b.mu.Lock()
	f, all := b.folders[key(prefix)], b.named[key(prefix)]
	b.mu.Unlock()
	if all != nil {
		return all, nil
	}
	if (f == nil || !f.done) && namesOnly(b.src, prefix) {
		if all, err = Names(ctx, b.src, prefix); err != nil {
			return nil, err
		}
		b.count(int64(len(all)))
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.room >= len(all) && b.named != nil {
			b.room -= len(all)
			b.named[key(prefix)] = all
		}
		return all, nil
	}
	for it, err := range b.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, it)
	}
	return all, nil
}

func (b *Browser) namesOnly(prefix string) bool { return namesOnly(b.src, prefix) }

// Keep is Keeper's.
func (b *Browser) Keep(all []string) ([]string, error) {
	if k, ok := b.src.(Keeper); ok {
		return k.Keep(all)
	}
	return all, nil
}

func (b *Browser) begin(ctx context.Context, prefix string) (iter.Seq2[Info, error], bool) {
	if !b.passes(prefix) {
		b.mu.Lock()
		f := b.folders[key(folderOf(prefix))]
		b.mu.Unlock()
		if f != nil && f.done {
			return nil, false // the listing is there
		}
	}
	all, ok := Begin(ctx, b.src, prefix)
	return b.counted(all), ok
}

func (b *Browser) flat(ctx context.Context, prefix string) (iter.Seq2[Info, error], bool) {
	all, ok := Flat(ctx, b.src, prefix)
	return b.counted(all), ok
}

// Walk is Walker's.
func (b *Browser) Walk(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return b.counted(Walk(ctx, b.src, prefix))
}

func (b *Browser) counted(all iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	if all == nil {
		return nil
	}
	return func(yield func(Info, error) bool) {
		for it, err := range all {
			b.count(1)
			if !yield(it, err) {
				return
			}
		}
	}
}

// Link is Linked's.
func (b *Browser) Link(name string) (Link, bool) { return LinkOf(b.src, name) }

// Stats is Statter's. Of names in one folder that are more than a few it lists the
// folder, as far as that pays, and looks only at those of which the listing does not say
// everything.
func (b *Browser) Stats(ctx context.Context, names []string, got func(i int, st Info, err error) error) error {
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
		dir := Dir(key(name))
		if len(of[dir]) == 0 {
			dirs = append(dirs, dir)
		}
		of[dir] = append(of[dir], i)
	}
	if err := statEach(ctx, b, names, near, got); err != nil || len(dirs) == 0 {
		return err
	}
	var mu sync.Mutex
	tell := func(i int, st Info, err error) error {
		mu.Lock()
		defer mu.Unlock()
		return got(i, st, err)
	}
	left := make([][]int, len(dirs))
	err := Each(ctx, dirsAtOnce, len(dirs), func(d int) (err error) {
		left[d], err = b.statIn(ctx, dirs[d], names, of[dirs[d]], tell)
		return err
	})
	if err != nil {
		return err
	}
	return statEach(ctx, b, names, slices.Concat(left...), got)
}

// Expect says that Stat will be asked for these names one by one: a Browser looks at those
// that wait together, and remembers. What goes wrong is for Stat to say.
func Expect(ctx context.Context, src Source, names []string) {
	b, ok := src.(*Browser)
	if !ok {
		return
	}
	names = slices.DeleteFunc(slices.Clone(names), b.passes)
	_ = b.Stats(ctx, names, func(int, Info, error) error { return nil })
}

// dirsAtOnce is how many folders are listed at the same time.
const dirsAtOnce = 16

// statIn tells of the names (which: their numbers) that a listing of their folder says
// everything about, and returns the others.
func (b *Browser) statIn(ctx context.Context, dir string, names []string, which []int, tell func(int, Info, error) error) (left []int, err error) {
	for _, i := range which {
		st, e, known := b.recall(names[i])
		if !known {
			left = append(left, i)
		} else if err := tell(i, st, e); err != nil {
			return nil, err
		}
	}
	if len(left) < fewNames || strings.HasSuffix(dir, "://") || namesOnly(b.src, dir) {
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
	all, flat := Flat(ctx, b.src, dir+"/")
	if flat {
		all = direct(dir, atMost(limit, all))
	} else {
		all = b.src.List(ctx, dir)
	}
	b.list(ctx, dir, flat, all, func(it Info, e error) bool {
		if e != nil {
			return false // looking at each says why
		}
		k := key(it.Name)
		for _, i := range wanted[k] {
			if !it.whole() {
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
