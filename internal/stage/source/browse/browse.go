// Package browse sits between a source and the code that opens a dataset in it: a Browser
// asks for each thing once, for many names together, and ahead of sequential readers. Reads
// after the opening go to the source itself.
package browse

import (
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Browser is the source of one opening of a dataset, between those who open it and the
// source that is read later. Opening asks for the same names again and again, reads a
// little here and there, and reads shards from beginning to end to index them: over a
// store each of these is a request. A Browser asks for what a folder holds once, and
// answers questions about names in it from that listing; it reads long ranges ahead
// for sequential readers (see ahead). So everything that one opening sees of a folder
// is of one moment.
//
// Names of local files are passed on as they are: their source costs less than this
// does. After End, every call is.
type Browser struct {
	// Believe says that an index is trusted: nobody checks whether what it describes is
	// still what is stored. A changed object is found when it is read.
	Believe bool

	src   source.Source
	tell  func(names int64) // of names that were listed; may be nil
	ended atomic.Bool
	ahead *ahead

	mu      sync.Mutex
	heads   map[string][]byte
	looked  map[string]look          // what Stat said, by name without a slash at its end
	folders map[string]*folder       // by name without a slash at its end
	named   map[string][]source.Info // what Names said, where that is less than a listing says
	room    int                      // names that may still be remembered
	listed  int64
	told    int64
}

// look is an answer of Stat.
type look struct {
	info source.Info
	err  error
}

// folder is the beginning of a listing.
type folder struct {
	all  []source.Info  // in the order in which they came
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
	// tellNames is how often progress of listings is told, in names.
	tellNames = 1000
)

// New makes a Browser of a source. Reads ahead end with ctx. tell hears of every
// thousand names that were listed, one call at a time; it may be nil.
func New(ctx context.Context, src source.Source, tell func(names int64)) *Browser {
	return &Browser{
		src: src, tell: tell, ahead: newAhead(ctx, src),
		heads: map[string][]byte{}, looked: map[string]look{}, folders: map[string]*folder{}, named: map[string][]source.Info{}, room: mostNames,
	}
}

// Believed says whether an index of data in src is trusted.
func Believed(src source.Source) bool {
	b, ok := src.(*Browser)
	return ok && b.Believe
}

// Direct is src for reads that are few and far apart, and not the beginning of more.
func Direct(src source.Source) source.Source {
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

// passes says whether a name is not one to remember.
func (b *Browser) passes(name string) bool {
	return b.ended.Load() || len(name) > 0 && name[0] == '/' || source.SchemeOf(source.Bare(name)) == ""
}

// key is a name in the form in which it is remembered: a/ is a, but a// is a folder in a.
func key(name string) string { return strings.TrimSuffix(name, "/") }

// ReadAt is Source's.
func (b *Browser) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if b.passes(obj.Name) {
		return b.src.ReadAt(ctx, obj, p, off)
	}
	return b.ahead.readAt(ctx, obj, p, off)
}

// Stat is Source's.
func (b *Browser) Stat(ctx context.Context, name string) (source.Info, error) {
	if b.passes(name) {
		return b.src.Stat(ctx, name)
	}
	if err := ctx.Err(); err != nil {
		return source.Info{}, err
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
		return source.Head(ctx, b.src, name, p)
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
			return 0, source.NoFile(name)
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

// recall returns what is known of a name.
func (b *Browser) recall(name string) (st source.Info, err error, known bool) { //nolint:revive,staticcheck // known is about both
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key(name)
	if l, ok := b.looked[k]; ok {
		l.info.Name = name
		return l.info, l.err, true
	}
	if b.nowhere(k) {
		return source.Info{}, errs.New(errs.NotFound, "there is no such object or folder").At(errs.Where{File: strings.Clone(name)}).
			Try("check the name; if it existed when the dataset was indexed, it has been removed"), true
	}
	f := b.around(k)
	if f == nil {
		return source.Info{}, nil, false
	}
	if at, ok := f.at[k]; ok {
		st = f.all[at]
		st.Name = strings.Clone(name)
		return st, nil, whole(st)
	}
	if f.gone == nil || !f.covers(k) {
		return source.Info{}, nil, false // the source says it better, once
	}
	e := *errs.From(f.gone)
	e.Where.File = strings.Clone(name)
	return source.Info{}, &e, true
}

// around is the listing of the folder that has a key; nil: there is none. Buckets that are
// not listed may be there.
func (b *Browser) around(k string) *folder {
	dir := source.Dir(k)
	if strings.HasSuffix(dir, "://") {
		return nil
	}
	return b.folders[key(dir)]
}

// nowhere says that the keys of a store, as far as they were listed, do not have a name, nor
// the folder that it is in. Folders without a name are in no listing. b.mu is held.
func (b *Browser) nowhere(k string) bool {
	for dir := source.Dir(k); !strings.HasSuffix(dir, "//") && dir != k; dir = source.Dir(k) {
		if f := b.folders[key(dir)]; f != nil {
			_, there := f.at[k]
			return f.keys && !there && f.covers(k)
		}
		k = dir
	}
	return false
}

// whole says whether an entry of a listing is all that Stat would say.
func whole(i source.Info) bool { return i.Dir || i.Version != "" && i.Other == "" }

func (b *Browser) remember(name string, st source.Info, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key(name)
	if err != nil {
		if f := b.around(k); f != nil && f.gone == nil && f.covers(k) {
			f.gone = err
		}
	}
	if b.room > 0 {
		b.room--
		b.looked[strings.Clone(k)] = look{st, err}
	}
}

// List is Source's.
func (b *Browser) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	if b.passes(prefix) {
		return b.src.List(ctx, prefix)
	}
	return func(yield func(source.Info, error) bool) {
		b.mu.Lock()
		f := b.folders[key(prefix)]
		b.mu.Unlock()
		if f == nil || !f.done {
			_, keys := source.Flat(ctx, b.src, prefix)
			b.list(ctx, prefix, keys && !source.Can(b.src, prefix).Names, b.src.List(ctx, prefix), yield)
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
func (b *Browser) list(ctx context.Context, prefix string, keys bool, all iter.Seq2[source.Info, error], yield func(source.Info, error) bool) {
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
func (b *Browser) Names(ctx context.Context, prefix string) (all []source.Info, err error) {
	if b.passes(prefix) {
		return source.Names(ctx, b.src, prefix)
	}
	b.mu.Lock()
	f, all := b.folders[key(prefix)], b.named[key(prefix)]
	b.mu.Unlock()
	if all != nil {
		return all, nil
	}
	if (f == nil || !f.done) && source.Can(b.src, prefix).Names {
		if all, err = source.Names(ctx, b.src, prefix); err != nil {
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

// Keep is Keeper's.
func (b *Browser) Keep(all []string) ([]string, error) {
	if k, ok := b.src.(source.Keeper); ok {
		return k.Keep(all)
	}
	return all, nil
}

// Begin is Prefixer's. What it yields is remembered one by one, since it does not list the
// whole folder.
func (b *Browser) Begin(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	all := b.counted(source.Begin(ctx, b.src, prefix))
	if b.passes(prefix) {
		return all
	}
	return func(yield func(source.Info, error) bool) {
		for it, err := range all {
			if err == nil && whole(it) {
				b.remember(it.Name, it, nil)
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// Can is Able's. A part of a folder whose listing is there is taken from it.
func (b *Browser) Can(prefix string) source.Abilities {
	can := source.Can(b.src, prefix)
	if can.Begin && !b.passes(prefix) {
		b.mu.Lock()
		defer b.mu.Unlock()
		f := b.folders[key(folderOf(prefix))]
		can.Begin = f == nil || !f.done
	}
	return can
}

// folderOf is the folder of a prefix that ends within a name.
func folderOf(prefix string) string { return prefix[:strings.LastIndexByte(prefix, '/')+1] }

// Walk is Walker's.
func (b *Browser) Walk(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return b.counted(source.Walk(ctx, b.src, prefix))
}

func (b *Browser) counted(all iter.Seq2[source.Info, error]) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		for it, err := range all {
			b.count(1)
			if !yield(it, err) {
				return
			}
		}
	}
}

// Link is Linked's.
func (b *Browser) Link(name string) (source.Link, bool) { return source.LinkOf(b.src, name) }
