// Package web is files of HTTP servers, as a source: any server that answers requests of
// ranges, and whose folders show an index page.
//
// A name is the URL of the file, with its query. It may be written with characters that a
// URL escapes; a listing escapes only "%", "?" and "#" in them, so that names of files look
// as they do elsewhere.
package web

import (
	"context"
	"iter"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// Scheme is its entry in a list of sources, under the name http or https.
func Scheme(name string, net *remote.Net) source.Scheme {
	return source.Scheme{Name: name, Open: func(a source.Access) (source.Source, error) {
		return New(net, a), nil
	}}
}

// Source is the files of all servers. It does no more than remote.Source but for listings:
// an index page has names, and what they name is asked for one by one.
type Source struct{ files *remote.Source }

var (
	_ source.Source = (*Source)(nil)
	_ source.Header = (*Source)(nil)
	_ source.Namer  = (*Source)(nil)
	_ source.Linked = (*Source)(nil)
)

// New makes a Source, within the limits of net and of access.
func New(net *remote.Net, access source.Access) *Source {
	return &Source{remote.New(&store{net: net, access: access, login: &login{access: access}}, net, access)}
}

// Stat is source.Source's.
func (s *Source) Stat(ctx context.Context, name string) (source.Info, error) {
	return s.files.Stat(ctx, name)
}

// ReadAt is source.Source's.
func (s *Source) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	return s.files.ReadAt(ctx, obj, p, off)
}

// Head is source.Header's.
func (s *Source) Head(ctx context.Context, name string, p []byte) (int, error) {
	return s.files.Head(ctx, name, p)
}

// Link is source.Linked's.
func (s *Source) Link(name string) (source.Link, bool) { return s.files.Link(name) }

// Names is source.Namer's: one request, for the index page of the folder.
func (s *Source) Names(ctx context.Context, prefix string) (all []source.Info, err error) {
	for it, err := range s.files.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		// A name with and without a slash is one of a folder: pages have links of both kinds.
		if n := len(all); n > 0 && all[n-1].Name == it.Name {
			all[n-1].Dir = true
			continue
		}
		all = append(all, it)
	}
	return all, nil
}

const (
	looksAtOnce = 16  // requests for entries of one listing at once
	looksAhead  = 128 // entries that are asked for before the first of them is yielded
)

// List is source.Source's: the index page, and a HEAD for each file on it. The times and
// sizes that pages show would cost nothing, but are not the version that a read is held
// to: an index made of them would be found outdated at every open.
func (s *Source) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		all, err := s.Names(ctx, prefix)
		if err != nil {
			yield(source.Info{}, err)
			return
		}
		for len(all) > 0 {
			part := all[:min(len(all), looksAhead)]
			all = all[len(part):]
			wrong := s.look(ctx, part)
			for i, it := range part {
				if wrong[i] != nil {
					yield(source.Info{}, wrong[i])
					return
				}
				if !yield(it, nil) {
					return
				}
			}
		}
	}
}

// look completes entries. One that is on the page and nowhere else stays a name, as a link
// that leads nowhere does in a local folder.
func (s *Source) look(ctx context.Context, part []source.Info) (wrong []error) {
	wrong = make([]error, len(part))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(looksAtOnce, len(part)) {
		wg.Go(func() {
			for i := range next {
				st, err := s.files.Stat(ctx, part[i].Name)
				switch {
				case err == nil:
					part[i] = st
				case errs.CodeOf(err) != errs.NotFound:
					wrong[i] = err
				}
			}
		})
	}
	for i, it := range part {
		if !it.Dir {
			next <- i
		}
	}
	close(next)
	wg.Wait()
	return wrong
}

func at(name string) errs.Where { return errs.Where{File: strings.Clone(name)} }
