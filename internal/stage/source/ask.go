package source

import (
	"context"
	"errors"
	"io"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// What is asked of a source beside reading: these work over every source, and cost
// less over one that can do more than it must.

// Header is a source that reads the beginning of an object without being told its
// size, in one request where a Stat and a ReadAt would be two.
type Header interface {
	// Head reads the first bytes of an object into p and says how many there are.
	Head(ctx context.Context, name string, p []byte) (int, error)
}

// Namer is a source that lists names without looking at what has them.
type Namer interface {
	// Names is what is directly below prefix, in byte order: Name, Dir and Other of
	// each, nothing else. Links are not followed: they have Symlink for Other.
	Names(ctx context.Context, prefix string) ([]Info, error)
}

// Statter is a source that looks at many names for less than a Stat each.
type Statter interface {
	// Stats calls got with what Stat says of each name, in any order, one call at a time.
	// It ends with the first error that got returns, or ctx's.
	Stats(ctx context.Context, names []string, got func(i int, st Info, err error) error) error
}

// Prefixer is a source that lists a part of a folder.
type Prefixer interface {
	// Begin yields what List of the folder in prefix does, but only what begins with
	// prefix, which ends within a name. Where there is nothing, it yields nothing.
	Begin(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// Keeper is a source that keeps the secrets of names to itself.
type Keeper interface {
	// Keep takes the secrets of names and returns the names without them (see Shown), by
	// which the source knows them from then on.
	Keep(names []string) ([]string, error)
}

// Symlink is Info.Other of a link that was not followed.
const Symlink = "a link"

// Head reads the first bytes of an object into p and says how many there are. It
// never waits for a writer of a FIFO: what is not an object is an error.
func Head(ctx context.Context, src Source, name string, p []byte) (int, error) {
	if h, ok := src.(Header); ok {
		return h.Head(ctx, name, p)
	}
	st, err := src.Stat(ctx, name)
	if err != nil {
		return 0, err
	}
	if st.Dir {
		return 0, NoFile(name)
	}
	n := min(int64(len(p)), st.Size)
	return int(n), src.ReadAt(ctx, st, p[:n], 0)
}

// Names is what is directly below prefix, as Namer says.
func Names(ctx context.Context, src Source, prefix string) (all []Info, err error) {
	if n, ok := src.(Namer); ok {
		return n.Names(ctx, prefix)
	}
	for it, err := range src.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, it)
	}
	return all, nil
}

// Stats is what Stat says of names, as Statter says.
func Stats(ctx context.Context, src Source, names []string, got func(i int, st Info, err error) error) error {
	if s, ok := src.(Statter); ok {
		return s.Stats(ctx, names, got)
	}
	all := make([]int, len(names))
	for i := range all {
		all[i] = i
	}
	return StatEach(ctx, src, names, all, got)
}

// statRun is how many local files one goroutine looks at in one go: a look takes about as
// long as taking turns does.
const statRun = 64

// StatEach looks at some of names, which are their numbers, one by one.
func StatEach(ctx context.Context, src Source, names []string, which []int, got func(i int, st Info, err error) error) error {
	if len(which) == 0 {
		return ctx.Err()
	}
	run, first := statRun, names[which[0]]
	if _, waits := LinkOf(src, first); waits {
		run = 1
	}
	type answer struct {
		st  Info
		err error
	}
	var mu sync.Mutex
	return Each(ctx, Width(src, first), (len(which)+run-1)/run, func(r int) error {
		part := which[r*run : min((r+1)*run, len(which))]
		answers := make([]answer, len(part))
		for n, i := range part {
			answers[n].st, answers[n].err = src.Stat(ctx, names[i])
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for n, i := range part {
			if err := got(i, answers[n].st, answers[n].err); err != nil {
				return err
			}
		}
		return nil
	})
}

// Abilities are which listings a source makes for less than those that stand in for them.
type Abilities struct {
	Begin bool // Prefixer: a part of a folder
	Walk  bool // Walker: all depths at once
	Names bool // Namer: names alone
}

// Able is a source that has methods of Prefixer, Walker or Namer and not always what they
// promise: one of several others can do what the source of a name can.
type Able interface {
	Can(prefix string) Abilities
}

// Can is what a source can do with a name.
func Can(src Source, prefix string) (can Abilities) {
	if a, ok := src.(Able); ok {
		return a.Can(prefix)
	}
	_, can.Begin = src.(Prefixer)
	_, can.Walk = src.(Walker)
	_, can.Names = src.(Namer)
	return can
}

// Begin yields what begins with prefix in a folder, as Prefixer says.
func Begin(ctx context.Context, src Source, prefix string) iter.Seq2[Info, error] {
	if p, ok := src.(Prefixer); ok {
		return p.Begin(ctx, prefix)
	}
	return func(yield func(Info, error) bool) {
		for it, err := range src.List(ctx, prefix[:strings.LastIndexByte(prefix, '/')+1]) {
			switch {
			case errs.CodeOf(err) == errs.NotFound && !errors.Is(err, ErrNoStore):
				return
			case err == nil && !strings.HasPrefix(it.Name, prefix):
			case !yield(it, err):
				return
			}
		}
	}
}

// Flat is Walk; false: it would cost a listing for each folder.
func Flat(ctx context.Context, src Source, prefix string) (iter.Seq2[Info, error], bool) {
	if !Can(src, prefix).Walk {
		return nil, false
	}
	return Walk(ctx, src, prefix), true
}

// Walk yields all objects below prefix at any depth, as Walker says. Links to folders are
// not followed, so that it ends.
func Walk(ctx context.Context, src Source, prefix string) iter.Seq2[Info, error] {
	if w, ok := src.(Walker); ok {
		return w.Walk(ctx, prefix)
	}
	return func(yield func(Info, error) bool) { walk(ctx, src, prefix, yield) }
}

// walk reports whether the walk is to go on. Names of folders sort as if they ended in a
// slash, which is how the names below them sort among the others.
func walk(ctx context.Context, src Source, prefix string, yield func(Info, error) bool) bool {
	var all []Info
	links := map[string]bool{}
	if n, ok := src.(Namer); ok { // only such a source has any
		names, err := n.Names(ctx, prefix)
		if err != nil {
			return yield(Info{}, err)
		}
		for _, it := range names {
			links[it.Name] = it.Other == Symlink
		}
	}
	for it, err := range src.List(ctx, prefix) {
		if err != nil {
			return yield(Info{}, err)
		}
		if !it.Dir || !links[it.Name] {
			all = append(all, it)
		}
	}
	key := func(i Info) string {
		if i.Dir {
			return i.Name + "/"
		}
		return i.Name
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(key(a), key(b)) })
	for _, it := range all {
		if it.Dir && !walk(ctx, src, it.Name, yield) || !it.Dir && !yield(it, nil) {
			return false
		}
	}
	return true
}

// Base is the last part of the name.
func (i Info) Base() string { return path.Base(i.Name) }

// Exists says whether there is something of that name, be it something that cannot
// be read. What only a failure keeps from being known is an error.
func Exists(ctx context.Context, src Source, name string) (bool, error) {
	_, err := src.Stat(ctx, name)
	switch {
	case err == nil, errors.Is(err, ErrNowhere):
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errs.CodeOf(err) == errs.NotFound:
		return false, nil
	case errs.CodeOf(err) == errs.Unreadable:
		return true, nil
	}
	return false, err
}

// IsDir says whether a name is that of a folder; false also where that is not known.
func IsDir(ctx context.Context, src Source, name string) bool {
	st, err := src.Stat(ctx, name)
	return err == nil && st.Dir
}

// ReadAll is all of an object, which may have most bytes.
func ReadAll(ctx context.Context, src Source, name string, most int64) ([]byte, error) {
	st, err := src.Stat(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case st.Dir:
		return nil, NoFile(name)
	case st.Size > most:
		return nil, errs.New(errs.Unreadable, "the file has %d bytes, more than the %d that such a file may have", st.Size, most).At(where(name, -1)).
			Try("check that this is the file that was meant")
	}
	p := make([]byte, st.Size)
	return p, src.ReadAt(ctx, st, p, 0)
}

// Reader reads an object from beginning to end, or in parts. obj is what Stat said.
func Reader(ctx context.Context, src Source, obj Info) *io.SectionReader {
	return io.NewSectionReader(readerAt{ctx, src, obj}, 0, obj.Size)
}

// readerAt is an object as an io.ReaderAt.
type readerAt struct {
	ctx context.Context
	src Source
	obj Info
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), max(r.obj.Size-off, 0)))
	if err := r.src.ReadAt(r.ctx, r.obj, p[:n], off); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// NoFile is the error of reading a folder.
func NoFile(name string) error {
	return errs.New(errs.Unreadable, "this is a folder, not a file").At(where(name, -1)).
		Try("give the name of a file in %s", strings.Clone(name))
}
