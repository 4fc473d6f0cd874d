package mux

import (
	"errors"
	"iter"
	"maps"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// ring has the secrets of names: what Shown removes from those that a user gave, so
// that it can be added again where a request is made. It lives as long as its Mux, in
// memory only. A nil ring has none, and costs nothing.
//
// A query that signs a folder is that of every name below the folder; a user and a
// password are those of all names of their host.
type ring struct {
	given map[string]string // by the name as it is shown
	users map[string]string // "user:password@", by scheme and host: https://host
}

// with returns a ring that also has the secrets of these names. A ring in use does not change.
func (r *ring) with(names []string) (*ring, error) {
	more := &ring{map[string]string{}, map[string]string{}}
	if r != nil {
		more.given, more.users = maps.Clone(r.given), maps.Clone(r.users)
	}
	for _, name := range names {
		if source.Shown(name) == name {
			continue
		}
		name = strings.TrimPrefix(name, "@")
		all, err := source.Braces(name)
		if err != nil || len(all) != 1 {
			all = append(all, name) // which is looked for as it is written
		}
		for _, one := range all {
			if err := more.add(one); err != nil {
				return nil, err
			}
		}
	}
	return more, nil
}

// add takes the secrets of one name. Two names that are the same without them would be
// one object to everything above, so they are refused.
func (r *ring) add(given string) error {
	name := strings.TrimSuffix(source.Shown(given), "/")
	if old, ok := r.given[name]; ok && old != given {
		return errs.New(errs.Config, "two URLs of %s differ only in their signatures, tokens or passwords", strconv.Quote(name)).At(shownAt(name)).
			Try("give one of them; if they are different objects, give each its own name")
	}
	r.given[name] = given
	prefix, rest := source.CutScheme(given)
	if user, _, ok := strings.Cut(authority(rest), "@"); ok && !strings.Contains(authority(source.Shown(name)[len(prefix):]), "@") {
		r.users[strings.ToLower(prefix)+host(rest)] = user + "@"
	}
	return nil
}

// authority is a name's part before its path; host is that without a user.
func authority(rest string) string {
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return rest[:end]
	}
	return rest
}

func host(rest string) string {
	a := authority(rest)
	return a[strings.LastIndexByte(a, '@')+1:]
}

// full is a name as its source gets it.
func (r *ring) full(name string) string {
	if r == nil || name == "" || name[0] == '/' {
		return name
	}
	plain := strings.TrimSuffix(name, "/")
	if given, ok := r.given[plain]; ok {
		if plain == name || strings.Contains(given, "?") {
			return given
		}
		return strings.TrimSuffix(given, "/") + "/"
	}
	prefix, rest := source.CutScheme(name)
	if prefix == "" {
		return name
	}
	for dir := source.Dir(plain); len(dir) > len(prefix); dir = source.Dir(dir) {
		given, ok := r.given[dir]
		if !ok {
			continue
		}
		if before, query, ok := strings.Cut(given, "?"); ok {
			return strings.TrimSuffix(before, "/") + name[len(dir):] + "?" + query
		}
		break
	}
	if strings.Contains(authority(rest), "@") {
		return name
	}
	return name[:len(prefix)] + r.users[strings.ToLower(prefix)+host(rest)] + rest
}

// of is an object as its source gets it.
func (r *ring) of(obj source.Info) source.Info {
	if r != nil {
		obj.Name = r.full(obj.Name)
	}
	return obj
}

// shown is an object as everything above the Mux gets it.
func (r *ring) shown(obj source.Info) source.Info {
	if r != nil {
		obj.Name = source.Shown(obj.Name)
	}
	return obj
}

func (r *ring) each(all iter.Seq2[source.Info, error]) iter.Seq2[source.Info, error] {
	if r == nil {
		return all
	}
	return func(yield func(source.Info, error) bool) {
		for it, err := range all {
			if !yield(r.shown(it), r.failed(err)) {
				return
			}
		}
	}
}

// failed is an error without secrets in its location.
func (r *ring) failed(err error) error {
	if r == nil || err == nil {
		return err // of every read of a name without secrets: no memory is taken
	}
	var e *errs.Error
	if !errors.As(err, &e) {
		return err
	}
	clean := *e
	clean.What, clean.Hint = errs.Shown(e.What), errs.Shown(e.Hint)
	clean.Where.File, clean.Where.Shard = source.Shown(e.Where.File), source.Shown(e.Where.Shard)
	return &clean
}
