// Package hub is the datasets of the Hugging Face Hub, as a remote.Store: they are listed
// by its API, and read by what its "resolve" leads to.
//
// A revision is resolved to a commit at the first name of it, and all that the store says
// and reads afterwards is of that commit, for the store's life. Since a commit never
// changes, what was listed of it is kept, so that opening a dataset costs a few requests
// and not one for each of its shards.
//
// A version is what a file is stored under: the SHA-256 of a file of Git LFS, the hash of
// Git's blob otherwise. Listings and answers to reads both tell it, it is the same in every
// commit that has the file, so that an index stays good when only the README changes, and
// it follows from the bytes, so that a whole file that was read is compared with it.
//
// The token goes to the endpoint and nowhere else: the storage that files are redirected
// to gets signed URLs, which are kept until they expire or are refused.
package hub

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// Scheme is what a list of sources has of it. Names begin with "hf://datasets/owner/name".
func Scheme(net *remote.Net) source.Scheme {
	return source.Scheme{Name: "hf", Parts: 3, Open: func(a source.Access) (source.Source, error) {
		return remote.New(newStore(net, a), net, a), nil
	}}
}

// store is all datasets of an endpoint.
type store struct {
	net     *remote.Net
	access  source.Access
	account account

	mu      sync.Mutex
	repos   map[string]*repo // by ref.key
	links   map[string]*link // by name
	ranged  map[string]bool  // hosts that have answered with a range
	entries int              // in the listings of all repos that are complete
}

func newStore(net *remote.Net, a source.Access) *store {
	return &store{net: net, access: a, repos: map[string]*repo{}, links: map[string]*link{}, ranged: map[string]bool{}}
}

// Host is remote.Store's: the storage's for a file that was redirected there.
func (s *store) Host(name string) string {
	s.mu.Lock()
	l := s.links[name]
	s.mu.Unlock()
	if l != nil {
		if host := l.host(); host != "" {
			return host
		}
	}
	return s.account.host(s)
}

// Origin is remote.Origin's.
func (s *store) Origin(string) string {
	s.account.setup(s)
	return s.account.from
}

// find is the repository that a name is of, whose commit is known.
func (s *store) find(ctx context.Context, name string) (*repo, ref, error) {
	all, err := cut(name)
	if err != nil {
		return nil, ref{}, err
	}
	if len(all) == 2 && s.isOf(all[1]) { // no request for each file of a dataset without an owner
		all = all[1:]
	}
	var first error
	for _, r := range all {
		repo := s.repo(r)
		switch err := repo.resolve(ctx, s, name).(type) {
		case nil:
			return repo, r, nil
		case gone: // as it is: there may be another repository
			if first == nil {
				first = err
			}
		default:
			return nil, ref{}, err
		}
	}
	return nil, ref{}, s.absent(ctx, name, all[0], first)
}

// isOf says whether a name is known to be of a repository without an owner: the first
// part of its path is listed there.
func (s *store) isOf(r ref) bool {
	s.mu.Lock()
	repo := s.repos[r.key()]
	s.mu.Unlock()
	if repo == nil {
		return false
	}
	first, _, _ := strings.Cut(r.path, "/")
	_, there, known := repo.known(first)
	return there && known
}

func (s *store) repo(r ref) *repo {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.key()
	if s.repos[key] == nil {
		r.repo, r.revision = strings.Clone(r.repo), strings.Clone(r.revision)
		s.repos[key] = &repo{id: r.repo, revision: r.revision, listings: map[folder]*listing{}}
	}
	return s.repos[key]
}

// Stat is remote.Store's. It lists the folder that the name is in, once: another name of
// that folder costs nothing.
func (s *store) Stat(ctx context.Context, name string) (source.Info, error) {
	repo, r, err := s.find(ctx, name)
	if err != nil {
		return source.Info{}, err
	}
	if r.path == "" {
		return source.Info{Name: strings.TrimRight(strings.Clone(name), "/"), Dir: true}, nil
	}
	e, there, known := repo.known(r.path)
	if !known {
		dir, _ := cutLast(r.path)
		l := repo.listing(folder{dir, false})
		if _, err := l.load(ctx, s, repo, name, math.MaxInt); err != nil {
			return source.Info{}, err
		}
		e, there = l.find(r.path)
	}
	if !there || !e.dir && strings.HasSuffix(name, "/") {
		return source.Info{}, remote.Missing(name)
	}
	return e.info(strings.TrimRight(strings.Clone(name), "/")), nil
}

// Page is remote.Store's. The order in which the Hub lists is not documented, so the
// entries are on the last page, and the others have none: a token is how many pages of
// the Hub's are there.
func (s *store) Page(ctx context.Context, dir string, flat bool, token string) (remote.Page, error) {
	repo, r, err := s.find(ctx, dir)
	if err != nil {
		return remote.Page{}, err
	}
	pages, _ := strconv.Atoi(token)
	l := repo.listing(folder{r.path, flat})
	done, err := l.load(ctx, s, repo, dir, pages+1)
	if err != nil {
		return remote.Page{}, err
	}
	if !done {
		return remote.Page{Next: strconv.Itoa(pages + 1)}, nil
	}
	var objects []source.Info
	var folders []string
	for _, e := range l.entries {
		switch name := r.root + "/" + e.path; {
		case e.dir && !flat:
			folders = append(folders, name)
		case !e.dir:
			objects = append(objects, e.info(name))
		}
	}
	return remote.Page{Entries: remote.Entries(objects, folders), Folder: !l.missing}, nil
}

func cutLast(path string) (dir, base string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// gate is a question that one request asks for all that need the answer. Its zero value is one
// that nobody asks.
type gate struct {
	mu     sync.Mutex
	asking *asking
}

type asking struct {
	done  chan struct{}
	fault *remote.Fault // that all who wait have met; nil: they may ask themselves
}

// answered returns when known says so, after ask if nobody else asks. A fault is that of all
// who wait: each by itself would meet it too, one after another. known and ask are called by
// one at a time; what they share is theirs.
func (g *gate) answered(ctx context.Context, known func() bool, ask func() error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		g.mu.Lock()
		a := g.asking
		if a == nil && known() {
			g.mu.Unlock()
			return nil
		}
		if a == nil {
			a = &asking{done: make(chan struct{})}
			g.asking = a
			g.mu.Unlock()
			err := ask()
			if ctx.Err() == nil { // or else it is this request alone that ends
				errors.As(err, &a.fault)
			}
			g.mu.Lock()
			g.asking = nil
			close(a.done)
			g.mu.Unlock()
			if err != nil {
				return err
			}
			continue
		}
		g.mu.Unlock()
		select {
		case <-a.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if a.fault != nil {
			return a.fault
		}
	}
}
