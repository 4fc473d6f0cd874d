// Package bucket is a source for tests: objects in memory, as an object store has them.
// There are no folders but those that slashes in names make, and versions are not times.
// It shows what a source needs, by exported names alone.
package bucket

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Prefix is what names of its objects begin with.
const Prefix = "mem://"

// Store is objects by their names, which begin with Prefix. It counts what is asked of
// it; safe for concurrent use. The settings may not change once it is in use.
type Store struct {
	Latency time.Duration // of every request
	Rate    int64         // bytes per second that each read brings; 0: all at once
	Page    int           // names in one answer to a listing; 0: 1,000
	Reach   source.Link   // what Link says; the zero value: nothing is known

	mu      sync.Mutex
	objects map[string]object
	keys    []string // of objects, sorted; nil: out of date
	puts    int
	calls   Calls
	now     int // requests that are being answered
}

type object struct {
	data    []byte
	version string
}

// Calls is what was asked of a Store. Lists are the pages of listings.
type Calls struct {
	Stats, Reads, Lists int
	Bytes               int64            // that were read
	Most                int              // requests at once
	Of                  map[string]Range // what was read, by object
}

// Range is what was read of an object.
type Range struct {
	Reads int
	Bytes int64
}

// All is the number of requests.
func (c Calls) All() int { return c.Stats + c.Reads + c.Lists }

var (
	_ source.Source   = (*Store)(nil)
	_ source.Walker   = (*Store)(nil)
	_ source.Prefixer = (*Store)(nil)
	_ source.Linked   = (*Store)(nil)
)

// New makes an empty store.
func New() *Store { return &Store{objects: map[string]object{}} }

// Scheme is its entry in a list of sources.
func (s *Store) Scheme() source.Scheme {
	return source.Scheme{Name: "mem", Open: func(source.Access) (source.Source, error) { return s, nil }}
}

// Put makes or replaces an object, and gives it a version that it never had.
func (s *Store) Put(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	s.objects[name] = object{slices.Clone(data), "generation " + strconv.Itoa(s.puts)}
	s.keys = nil
}

// Calls is what was asked since it was last called.
func (s *Store) Calls() (c Calls) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, s.calls = s.calls, Calls{}
	return c
}

// request waits as long as one takes, with so many bytes in its answer.
func (s *Store) request(ctx context.Context, bytes int) error {
	s.mu.Lock()
	s.now++
	s.calls.Most = max(s.calls.Most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	d := s.Latency
	if s.Rate > 0 {
		d += time.Duration(int64(bytes) * int64(time.Second) / s.Rate)
	}
	return source.Sleep(ctx, d)
}

// Stat is source.Source's.
func (s *Store) Stat(ctx context.Context, name string) (source.Info, error) {
	if err := s.request(ctx, 0); err != nil {
		return source.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Stats++
	if o, ok := s.objects[name]; ok {
		return source.Info{Name: name, Size: int64(len(o.data)), Version: o.version}, nil
	}
	below := strings.TrimSuffix(name, "/") + "/"
	if keys, at := s.from(below); at < len(keys) && strings.HasPrefix(keys[at], below) {
		return source.Info{Name: name, Dir: true}, nil
	}
	return source.Info{}, missing(name)
}

// ReadAt is source.Source's.
func (s *Store) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if err := s.request(ctx, len(p)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Reads++
	o, ok := s.objects[obj.Name]
	at := errs.Where{File: strings.Clone(obj.Name), Offset: errs.Known(off)}
	switch {
	case !ok:
		return missing(obj.Name)
	case int64(len(o.data)) != obj.Size, obj.Version != "" && o.version != obj.Version:
		return errs.New(errs.Changed, "the object is not the one that was indexed: it is %s, of %d bytes", o.version, len(o.data)).
			At(at).Try("open the dataset again")
	case off < 0 || off > obj.Size || int64(len(p)) > obj.Size-off:
		return errs.New(errs.Bug, "%d bytes were asked for at %d of an object of %d", len(p), off, obj.Size).At(at)
	}
	n := int64(copy(p, o.data[off:]))
	s.calls.Bytes += n
	if s.calls.Of == nil {
		s.calls.Of = map[string]Range{}
	}
	of := s.calls.Of[obj.Name]
	s.calls.Of[at.File] = Range{of.Reads + 1, of.Bytes + n}
	return nil
}

// List is source.Source's.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		dir := strings.TrimSuffix(prefix, "/") + "/"
		any := false
		// A store sorts a folder among the others as if its name ended in a slash.
		var all []source.Info
		for it, err := range s.pages(ctx, dir, true) {
			if err != nil {
				yield(source.Info{}, err)
				return
			}
			any = true
			all = append(all, it)
		}
		if !any {
			yield(source.Info{}, missing(prefix))
			return
		}
		slices.SortFunc(all, func(a, b source.Info) int { return strings.Compare(a.Name, b.Name) })
		for _, it := range all {
			if !yield(it, nil) {
				return
			}
		}
	}
}

// Begin is source.Prefixer's.
func (s *Store) Begin(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return s.pages(ctx, prefix, true)
}

// Walk is source.Walker's.
func (s *Store) Walk(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		any := false
		for it, err := range s.pages(ctx, strings.TrimSuffix(prefix, "/")+"/", false) {
			any = true
			if !yield(it, err) {
				return
			}
		}
		if !any {
			yield(source.Info{}, missing(prefix))
		}
	}
}

// Link is source.Linked's.
func (s *Store) Link(string) (source.Link, bool) { return s.Reach, s.Reach != source.Link{} }

// pages yields what has a prefix, in the order of a store: objects, or what is directly
// below the prefix's folder.
func (s *Store) pages(ctx context.Context, prefix string, direct bool) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		most := s.Page
		if most == 0 {
			most = 1000
		}
		for after, more := "", true; more; {
			if err := s.request(ctx, 0); err != nil {
				yield(source.Info{}, err)
				return
			}
			var page []source.Info
			page, after, more = s.page(prefix, after, direct, most)
			for _, it := range page {
				if !yield(it, nil) {
					return
				}
			}
		}
	}
}

// page is the next entries whose keys come after one.
func (s *Store) page(prefix, after string, direct bool, most int) (page []source.Info, last string, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Lists++
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
	keys, at := s.from(max(prefix, after))
	for at < len(keys) && strings.HasPrefix(keys[at], prefix) {
		key := keys[at]
		if len(page) == most {
			return page, last, true
		}
		it := source.Info{Name: key, Size: int64(len(s.objects[key].data)), Version: s.objects[key].version}
		last, at = key+"\x00", at+1
		if first, _, deeper := strings.Cut(key[len(dir):], "/"); deeper && direct {
			it = source.Info{Name: dir + first, Dir: true}
			last = dir + first + "0" // after everything in the folder
			keys, at = s.from(last)
		}
		page = append(page, it)
	}
	return page, last, false
}

// from is all keys, and the number of the first that is not before one.
func (s *Store) from(key string) ([]string, int) {
	if s.keys == nil {
		s.keys = slices.Sorted(maps.Keys(s.objects))
	}
	at, _ := slices.BinarySearch(s.keys, key)
	return s.keys, at
}

func missing(name string) error {
	return errs.New(errs.NotFound, "there is no such object").At(errs.Where{File: strings.Clone(name)}).
		Try("check the name of the bucket and of the object")
}
