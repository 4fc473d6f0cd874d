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

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Prefix is what names of its objects begin with.
const Prefix = "mem://"

// Store is objects by their names, which begin with Prefix. It counts what is asked of
// it; safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	objects map[string]object
	puts    int
	calls   Calls
}

type object struct {
	data    []byte
	version string
}

// Calls is what was asked of a Store.
type Calls struct {
	Stats, Reads, Lists int
	Bytes               int64 // that were read
}

var _ source.Source = (*Store)(nil)

// New makes an empty store.
func New() *Store { return &Store{objects: map[string]object{}} }

// Scheme is what a list of sources has of it.
func (s *Store) Scheme() source.Scheme {
	return source.Scheme{Name: "mem", Open: func(source.Access) (source.Source, error) { return s, nil }}
}

// Put makes or replaces an object, and gives it a version that it never had.
func (s *Store) Put(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	s.objects[name] = object{slices.Clone(data), "generation " + strconv.Itoa(s.puts)}
}

// Calls is what was asked since it was last called.
func (s *Store) Calls() (c Calls) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, s.calls = s.calls, Calls{}
	return c
}

// Stat is source.Source's.
func (s *Store) Stat(ctx context.Context, name string) (source.Info, error) {
	if err := ctx.Err(); err != nil {
		return source.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Stats++
	if o, ok := s.objects[name]; ok {
		return source.Info{Name: name, Size: int64(len(o.data)), Version: o.version}, nil
	}
	below := strings.TrimSuffix(name, "/") + "/"
	for key := range s.objects {
		if strings.HasPrefix(key, below) {
			return source.Info{Name: name, Dir: true}, nil
		}
	}
	return source.Info{}, missing(name)
}

// ReadAt is source.Source's.
func (s *Store) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
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
	s.calls.Bytes += int64(copy(p, o.data[off:]))
	return nil
}

// List is source.Source's.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return func(yield func(source.Info, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(source.Info{}, err)
			return
		}
		found := s.below(strings.TrimSuffix(prefix, "/") + "/")
		if len(found) == 0 {
			yield(source.Info{}, missing(prefix))
			return
		}
		for _, it := range found {
			if !yield(it, nil) {
				return
			}
		}
	}
}

func (s *Store) below(prefix string) (found []source.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Lists++
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		it := source.Info{Name: key, Size: int64(len(s.objects[key].data)), Version: s.objects[key].version}
		if first, _, deeper := strings.Cut(rest, "/"); deeper {
			it = source.Info{Name: prefix + first, Dir: true}
		}
		if len(found) == 0 || found[len(found)-1].Name != it.Name {
			found = append(found, it)
		}
	}
	slices.SortFunc(found, func(a, b source.Info) int { return strings.Compare(a.Name, b.Name) })
	return found
}

func missing(name string) error {
	return errs.New(errs.NotFound, "there is no such object").At(errs.Where{File: strings.Clone(name)}).
		Try("check the name of the bucket and of the object")
}
