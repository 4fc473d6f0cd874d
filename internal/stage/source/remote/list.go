package remote

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// List is source.Source's. Stores sort a folder among the others as if its name ended in a
// slash, so all of it is here before the first is yielded.
func (s *Source) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	dir := strings.TrimSuffix(prefix, "/")
	return byName(dir, s.pages(ctx, dir, func(ctx context.Context, token string) (Page, error) { return s.store.Page(ctx, dir, false, token) }))
}

// byName yields what is in a folder in the order of names.
func byName(dir string, pages iter.Seq2[source.Info, error]) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		var all []source.Info
		for it, err := range pages {
			if err != nil {
				yield(source.Info{}, err)
				return
			}
			if all = append(all, it); len(all) > mostHeld {
				yield(source.Info{}, endless(dir, "there are more than %d names directly in the folder", mostHeld))
				return
			}
		}
		slices.SortFunc(all, func(a, b source.Info) int { return strings.Compare(a.Name, b.Name) })
		for _, it := range all {
			if !yield(it, nil) {
				return
			}
		}
	}
}

// Walk is source.Walker's.
func (s *Source) Walk(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	dir := strings.TrimSuffix(prefix, "/")
	return s.pages(ctx, dir, func(ctx context.Context, token string) (Page, error) { return s.store.Page(ctx, dir, true, token) })
}

// Can is source.Able's: a store that is not Prefixed answers with whole folders, and the
// caller may then remember the rest.
func (s *Source) Can(string) source.Abilities {
	_, begin := s.store.(Prefixed)
	return source.Abilities{Begin: begin, Walk: true}
}

// Begin is source.Prefixer's.
func (s *Source) Begin(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	store, ok := s.store.(Prefixed)
	if !ok {
		return source.Begin(ctx, struct{ source.Source }{s}, prefix)
	}
	at := strings.LastIndexByte(prefix, '/')
	dir, letters := strings.TrimSuffix(prefix[:at+1], "/"), prefix[at+1:]
	pages := s.pages(ctx, dir, func(ctx context.Context, token string) (page Page, err error) {
		page, err = store.Begin(ctx, dir, letters, token)
		page.Folder = true // whatever is in it
		return page, err
	})
	return byName(dir, func(yield func(source.Info, error) bool) {
		for it, err := range pages {
			if err == nil && !strings.HasPrefix(it.Name, prefix) {
				continue
			}
			if !yield(it, err) {
				return
			}
		}
	})
}

// pages yields the entries of all pages of a listing. Listings are data: what is not
// below the folder, not in order or a page without end is an error. Where a store has an
// order of its own (Page.Loose), entries are yielded when all pages are here.
func (s *Source) pages(ctx context.Context, dir string, of func(ctx context.Context, token string) (Page, error)) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		last, token, any, folder, empty := "", "", false, false, 0
		var held [][]source.Info // pages in an order of the store's own
		entries := 0             // of these
		for {
			var page Page
			err := s.try(ctx, request{name: dir, off: -1}, func(ctx context.Context, _ *way, _ *request) (n int, err error) {
				page, err = of(ctx, token)
				return 0, err
			})
			if err != nil {
				yield(source.Info{}, err)
				return
			}
			folder = folder || page.Folder
			if empty++; len(page.Entries) > 0 {
				empty = 0
			}
			if page.Loose || held != nil {
				held, entries = append(held, page.Entries), entries+len(page.Entries)
				if page.Entries = nil; page.Next == "" {
					page.Entries = slices.Concat(held...)
					sorted(page.Entries)
				}
			}
			for _, it := range page.Entries {
				key := key(it)
				if key <= last || !strings.HasPrefix(key, dir+"/") || len(key) == len(dir)+1 {
					yield(source.Info{}, misplaced(dir, it.Name, last))
					return
				}
				last, any = key, true
				if !yield(it, nil) {
					return
				}
			}
			if page.Next == "" {
				break
			}
			switch {
			case page.Next == token:
				yield(source.Info{}, endless(dir, "the store answered with the same page twice"))
				return
			case empty > mostEmpty:
				yield(source.Info{}, endless(dir, "the store answered with %d pages without a name", empty))
				return
			case entries > mostHeld:
				yield(source.Info{}, endless(dir, "there are more than %d names in no order", mostHeld))
				return
			}
			token = page.Next
		}
		if !any && !folder {
			yield(source.Info{}, Missing(dir))
		}
	}
}

// Listings without end are told by these: a store may have pages without a name between
// others, for what was deleted, and no dataset has more names than may be held.
const (
	mostEmpty = 20_000 // pages without a name in a row
	mostHeld  = 10_000_000
)

func endless(dir, format string, a ...any) error {
	return errs.New(errs.Unreadable, "the listing does not end: "+format, a...).At(at(dir)).Try("check the store and any proxies")
}

func misplaced(dir, name, last string) error {
	what := errs.New(errs.Unreadable, "the listing is not of this folder: it has %s", errs.Name(name))
	if strings.HasPrefix(name, dir+"/") {
		what = errs.New(errs.Unreadable, "the listing is not in order: %s comes after %s", errs.Name(name), errs.Name(last))
	}
	return what.At(at(dir)).Try("check the store and any proxies: other names may be missing too")
}

// Missing is the error of a name that there is nothing of.
func Missing(name string) error {
	return errs.New(errs.NotFound, "there is no such object or folder").At(at(name)).
		Try("check the name; if it existed when the dataset was indexed, it has been removed")
}

// Located gives an error that is kept for several names the place of one.
func Located(err error, name string) error {
	var e *errs.Error
	if errors.As(err, &e) {
		of := *e
		return of.At(at(name))
	}
	return err
}

// Changed is the error of an object that is not the one that was opened.
func Changed(obj source.Info, format string, a ...any) error {
	return errs.New(errs.Changed, "the object is not the one that was indexed: "+format, a...).At(at(obj.Name)).
		Try("do not write to a dataset that is being read; open it again to index what changed")
}
