package hub

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	slashpath "path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// repo is a repository at a revision.
type repo struct {
	id, revision string

	gate   gate // of what follows
	commit string
	wrong  error // there is no such repository, there is no such revision, or neither may be seen

	mu       sync.Mutex
	listings map[folder]*listing
}

// isCommit and isHash use no regular expression: it would be compiled whenever a process starts.
func isCommit(s string) bool { return len(s) == 40 && strings.Trim(s, "0123456789abcdef") == "" }

func isHash(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// resolve makes the commit known. What the Hub says for good is believed for the store's
// life, as the commit is.
func (r *repo) resolve(ctx context.Context, s *store, name string) error {
	err := r.gate.answered(ctx, func() bool { return r.commit != "" || r.wrong != nil }, func() error { return r.ask(ctx, s, name) })
	if err == nil && r.wrong != nil {
		return remote.Located(r.wrong, name)
	}
	return err
}

func (r *repo) ask(ctx context.Context, s *store, name string) error {
	var info struct {
		SHA string `json:"sha"`
	}
	// Without expand, the answer has all names of the repository.
	_, err := s.ask(ctx, name, r, "/api/datasets/"+escaped(r.id)+"/revision/"+url.PathEscape(r.revision), url.Values{"expand": {"sha"}}, &info)
	var fault *remote.Fault
	switch {
	case err != nil && ctx.Err() == nil && !errors.As(err, &fault):
		r.wrong = err
		return err
	case err != nil:
		return err
	case !isCommit(info.SHA):
		return &remote.Fault{Kind: remote.Broken, What: "the Hub did not name the commit of the revision " + errs.Name(r.revision)}
	}
	r.commit = info.SHA
	return nil
}

// folder is what a listing covers: what is directly in path, or, if flat, all below it.
type folder struct {
	path string
	flat bool
}

// listing is what the Hub says is in a folder, page by page.
type listing struct {
	of      folder
	gate    gate
	pages   int    // that are there
	empty   int    // of the last of them, those without a name
	cursor  string // of the next page
	entries []entry
	missing bool // there is no such folder, which is as good to know
	done    bool // all pages are there, and entries are in byte order of paths; never unset
}

// entry is a file or a folder of a repository.
type entry struct {
	path    string
	dir     bool
	size    int64
	version string
}

func (e entry) info(name string) source.Info {
	return source.Info{Name: name, Size: e.size, Version: e.version, Dir: e.dir}
}

func (r *repo) listing(of folder) *listing {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listings[of] == nil {
		of.path = strings.Clone(of.path)
		r.listings[of] = &listing{of: of}
	}
	return r.listings[of]
}

// known looks a path up in what was listed; known is false if that does not say.
func (r *repo) known(path string) (e entry, there, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lookUp(path)
}

func (r *repo) lookUp(path string) (e entry, there, known bool) {
	parent, _ := cutLast(path)
	if l := r.listings[folder{parent, false}]; l != nil && l.done {
		e, there = l.find(path)
		return e, there, true
	}
	for dir := parent; ; dir, _ = cutLast(dir) {
		if l := r.listings[folder{dir, true}]; l != nil && l.done {
			e, there = l.find(path)
			return e, there, true
		}
		if dir == "" {
			break
		}
	}
	if parent == "" {
		return entry{}, false, false
	}
	dir, there, known := r.lookUp(parent) // what is not there, or no folder, has nothing in it
	return entry{}, false, known && !(there && dir.dir)
}

// find looks a path up in a listing that is done.
func (l *listing) find(path string) (entry, bool) {
	i, ok := slices.BinarySearchFunc(l.entries, path, func(e entry, path string) int { return strings.Compare(e.path, path) })
	if !ok {
		return entry{}, false
	}
	return l.entries[i], true
}

// load asks for pages until there are so many, or no more. Those that came before a fault
// stay.
func (l *listing) load(ctx context.Context, s *store, r *repo, name string, pages int) (done bool, err error) {
	err = l.gate.answered(ctx, func() bool {
		done = l.done
		return done || l.pages >= pages
	}, func() error { return l.more(ctx, s, r, name) })
	return done, err
}

// file is an entry as the API tells it.
type file struct {
	Type string `json:"type"`
	Path string `json:"path"`
	OID  string `json:"oid"`
	Size int64  `json:"size"`
	LFS  *struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	} `json:"lfs"`
}

func (l *listing) more(ctx context.Context, s *store, r *repo, name string) error {
	path := "/api/datasets/" + escaped(r.id) + "/tree/" + r.commit
	if l.of.path != "" {
		path += "/" + escaped(l.of.path)
	}
	query := url.Values{"recursive": {strconv.FormatBool(l.of.flat)}, "expand": {"false"}}
	if l.cursor != "" {
		query.Set("cursor", l.cursor)
	}
	var page []file
	header, err := s.ask(ctx, name, r, path, query, &page)
	cursor := ""
	switch {
	case errs.CodeOf(err) == errs.NotFound && err != nil && l.pages == 0:
		l.missing = true
	case err != nil:
		return err
	default:
		if cursor, err = next(header); err != nil {
			return err
		}
		if l.empty++; len(page) > 0 {
			l.empty = 0
		}
		switch {
		case cursor == "":
		case cursor == l.cursor:
			return endless(name, "the Hub answered with the same page twice")
		case l.empty > mostEmpty:
			return endless(name, "the Hub answered with %d pages without a name", l.empty)
		case len(l.entries)+len(page) > mostEntries:
			return endless(name, "it has more than %d names", mostEntries)
		}
	}
	entries, err := l.entriesOf(page)
	if err != nil {
		return err
	}
	l.entries = append(l.entries, entries...)
	l.cursor = cursor
	l.pages++
	if cursor == "" {
		return l.finish(s, r, name)
	}
	return nil
}

const (
	mostEmpty   = 100        // pages without a name in a row: the Hub fills its pages
	mostEntries = 10_000_000 // of one listing: no dataset has more names
)

func endless(name, format string, a ...any) error {
	return errs.New(errs.Unreadable, "the listing does not end: "+format, a...).At(at(name)).Try("check HF_ENDPOINT, and the proxies before it")
}

// entriesOf checks a page: it is data.
func (l *listing) entriesOf(page []file) ([]entry, error) {
	prefix := l.of.path + "/"
	if l.of.path == "" {
		prefix = ""
	}
	out := make([]entry, 0, len(page))
	for _, f := range page {
		rest, below := strings.CutPrefix(f.Path, prefix)
		if f.Path == l.of.path && f.Type == "file" {
			continue // the folder is a file, and listed as its own contents
		}
		if !below || rest == "" || slashpath.Clean("/"+f.Path) != "/"+f.Path || !l.of.flat && strings.Contains(rest, "/") {
			return nil, &remote.Fault{Kind: remote.Broken, What: "the listing is not of this folder: it has " + errs.Name(f.Path)}
		}
		e := entry{path: f.Path, dir: f.Type == "directory", size: f.Size, version: f.OID}
		if f.LFS != nil {
			e.size, e.version = f.LFS.Size, f.LFS.OID
		}
		switch {
		case e.dir:
			e.size, e.version = 0, ""
		case f.Type != "file":
			continue
		case e.size < 0 || !isHash(e.version):
			return nil, &remote.Fault{Kind: remote.Broken, What: "the Hub reports a malformed hash for " + errs.Name(f.Path) + ": " + errs.Name(e.version)}
		}
		out = append(out, e)
	}
	return out, nil
}

// mostKept is how many entries of complete listings a store keeps, of about 150 bytes.
const mostKept = 200_000

// finish completes a listing. If the store keeps too many, the others are dropped: they
// can be had again.
func (l *listing) finish(s *store, r *repo, name string) error {
	slices.SortFunc(l.entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	l.entries = slices.Compact(l.entries)
	for i, e := range l.entries {
		if i > 0 && e.path == l.entries[i-1].path {
			return errs.New(errs.Unreadable, "the listing has %s twice, with different contents", errs.Name(e.path)).At(at(name)).
				Try("check HF_ENDPOINT and any proxies")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries += len(l.entries)
	drop := s.entries > mostKept
	if drop {
		s.entries = len(l.entries)
	}
	for _, other := range s.repos {
		other.mu.Lock()
		if other == r {
			l.done = true
		}
		if drop {
			for of, x := range other.listings {
				if x.done && x != l {
					delete(other.listings, of)
				}
			}
		}
		other.mu.Unlock()
	}
	return nil
}

// next is the cursor of the page after this one, from its Link header; "": it is the
// last. The rest of that URL is not looked at: it may be of any host.
func next(h http.Header) (cursor string, err error) {
	for _, line := range h.Values("Link") {
		for part := range strings.SplitSeq(line, ",") {
			address, params, _ := strings.Cut(strings.TrimSpace(part), ">")
			if !strings.Contains(params, `rel="next"`) && !strings.Contains(params, "rel=next") {
				continue
			}
			u, err := url.Parse(strings.TrimPrefix(address, "<"))
			if err == nil {
				cursor = u.Query().Get("cursor")
			}
			if cursor == "" {
				return "", &remote.Fault{Kind: remote.Broken, What: "the Hub says that the listing continues, but not where"}
			}
			return cursor, nil
		}
	}
	return "", nil
}
