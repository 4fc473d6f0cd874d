// Package mux is the source of all names: it passes a name on to the source of its scheme
// and bucket, and keeps the secrets of names, which nothing above it sees.
package mux

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Mux is the source of all names: the scheme of a name says which source it is passed
// on to, and where places of one scheme are reached in different ways, its bucket does.
// Sources see names with their scheme; local files are called by their paths.
//
// Secrets in names end here: callers of a Mux see and pass names as Shown shows them,
// and the sources below it get them as they were given.
type Mux struct {
	local *opened // nil: local files are not on the list
	all   []*opened

	keeping sync.Mutex           // of who changes ring
	ring    atomic.Pointer[ring] // nil: no name has a secret
}

// opened is a scheme whose source is made when it is first asked for.
type opened struct {
	source.Scheme
	access  source.Access
	buckets []string // whose names it has; nil: all of the scheme; empty: none
	once    sync.Once
	src     source.Source
	hot     source.Hot    // src, or nil
	run     source.Runner // src, or nil
	linked  source.Linked // src, or nil
	err     error
}

// New makes a Mux of a list of schemes, whose sources are made with access.
func New(schemes []source.Scheme, access source.Access) *Mux {
	m := &Mux{}
	for _, s := range schemes {
		m.add(&opened{Scheme: s, access: access})
	}
	return m
}

// Of makes a Mux for the names of several places, and for those that are found
// there. One bucket cannot be reached in two ways.
func Of(schemes []source.Scheme, places []source.Place) (*Mux, error) {
	m := &Mux{}
	for _, p := range places {
		if _, err := m.Keep(p.Names); err != nil {
			return nil, err
		}
	}
	for _, s := range schemes {
		ways, err := waysOf(s, places)
		if err != nil {
			return nil, err
		}
		for _, way := range ways {
			m.add(way)
		}
	}
	return m, nil
}

// Keep is Keeper's.
func (m *Mux) Keep(names []string) ([]string, error) {
	if !slices.ContainsFunc(names, func(n string) bool { return source.Shown(n) != n }) {
		return names, nil
	}
	m.keeping.Lock()
	defer m.keeping.Unlock()
	r, err := m.ring.Load().with(names)
	if err != nil {
		return nil, err
	}
	m.ring.Store(r)
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = source.Shown(n)
	}
	return out, nil
}

func (m *Mux) add(o *opened) {
	m.all = append(m.all, o)
	if o.Name == "file" {
		m.local = o
	}
}

// waysOf are the sources of a scheme: one, or one for each way in which its buckets are
// reached.
func waysOf(s source.Scheme, places []source.Place) (ways []*opened, err error) {
	of := map[string]*opened{} // by bucket
	for _, p := range places {
		for _, name := range p.Names {
			name = strings.TrimPrefix(name, "@") // of a list
			if source.SchemeOf(name) != s.Name || s.Name == "file" {
				continue
			}
			at := slices.IndexFunc(ways, func(o *opened) bool { return o.access.Storage == p.Access.Storage })
			if at < 0 {
				at = len(ways)
				ways = append(ways, &opened{Scheme: s, access: p.Access})
				ways[at].access.Written = &source.Written{}
			}
			way := ways[at]
			way.access.Written.Names = append(way.access.Written.Names, name)
			for _, bucket := range bucketsOf(s, name) {
				if of[bucket] == nil {
					of[bucket] = way
					way.buckets = append(way.buckets, bucket)
				}
				if of[bucket] != way {
					return nil, errs.New(errs.Config, "%s has two different settings of dataset.storage", strconv.Quote(s.Name+"://"+bucket)).At(shownAt(name)).
						Try("give all datasets of one bucket the same storage")
				}
			}
		}
	}
	switch len(ways) {
	case 0: // nothing but what a table names, if that
		way := &opened{Scheme: s, access: first(places)}
		if s.Name != "file" && slices.ContainsFunc(places, func(p source.Place) bool { return p.Access.Storage != way.access.Storage }) {
			way.buckets = []string{} // nobody knows whose table it would be
		}
		return []*opened{way}, nil
	case 1:
		ways[0].buckets = nil
	}
	return ways, nil
}

func first(places []source.Place) source.Access {
	if len(places) == 0 {
		return source.Access{}
	}
	return places[0].Access
}

// bucketsOf are the parts of names that decide how they are reached, of all names that the
// braces of one stand for.
func bucketsOf(s source.Scheme, name string) []string {
	parts := max(s.Parts, 1)
	_, rest := source.CutScheme(source.Shown(name))
	words := strings.Split(rest, "/")
	bucket := strings.Join(words[:min(parts, len(words))], "/")
	names, err := source.Braces(bucket)
	if err != nil { // the braces go on in what follows
		names = []string{bucket}
	}
	return names
}

// has reports whether a source has a name of its scheme.
func (o *opened) has(name string) bool {
	_, rest := source.CutScheme(name)
	return o.buckets == nil || slices.ContainsFunc(o.buckets, func(b string) bool {
		return strings.HasPrefix(rest, b) && (len(rest) == len(b) || rest[len(b)] == '/')
	})
}

// of is the source of a name. Every read comes by here: an absolute path is told from
// other names by its first byte.
func (m *Mux) of(name string) (*opened, error) {
	o := m.local
	if len(name) == 0 || name[0] != '/' {
		if scheme := source.SchemeOf(name); scheme != "" {
			at := slices.IndexFunc(m.all, func(o *opened) bool { return o.Name == scheme })
			if at < 0 {
				return nil, m.unknown(name, scheme)
			}
			if m.all[at].buckets != nil {
				at = slices.IndexFunc(m.all, func(o *opened) bool { return o.Name == scheme && o.has(name) })
			}
			if at < 0 {
				return nil, errs.New(errs.Config, "%s could be reached in several ways, because the datasets of the mixture have different settings", strconv.Quote(source.Shown(name))).
					At(shownAt(name)).Try("add its folder to the origins of the dataset that names it")
			}
			o = m.all[at]
		}
	}
	if o == nil {
		return nil, m.unknown(name, "file")
	}
	o.once.Do(func() {
		if o.src, o.err = o.Open(o.access); o.err == nil {
			o.hot, _ = o.src.(source.Hot)
			o.run, _ = o.src.(source.Runner)
			o.linked, _ = o.src.(source.Linked)
		}
	})
	return o, o.err
}

func (m *Mux) unknown(name, scheme string) error {
	var known, names []string
	for i, o := range m.all {
		if o.Name == "file" {
			known = append(known, "local files")
		} else if i == 0 || m.all[i-1].Name != o.Name {
			known, names = append(known, o.Name+"://"), append(names, o.Name)
		}
	}
	hint := insteadOf(name, scheme)
	if near := errs.Nearest(scheme, names); hint == "" && near != "" {
		hint = "did you mean " + near + "://?"
	}
	return errs.New(errs.Config, "%s has the scheme %s://, but stoker reads only %s", strconv.Quote(source.Shown(name)), scheme, strings.Join(known, ", ")).
		At(shownAt(name)).Try("%s", cmp.Or(hint, "copy or mount the data, and give its path"))
}

// shownAt copies the name: the caller's is valid only during the call.
func shownAt(name string) errs.Where { return errs.Where{File: strings.Clone(source.Shown(name))} }

// Close closes the sources that were made.
func (m *Mux) Close() (err error) {
	for _, o := range m.all {
		o.once.Do(func() { o.err = errs.New(errs.Bug, "the source of %s is closed", o.Name) })
		if c, ok := o.src.(io.Closer); ok {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// Stat is Source's.
func (m *Mux) Stat(ctx context.Context, name string) (source.Info, error) {
	o, err := m.of(name)
	if err != nil {
		return source.Info{}, err
	}
	st, err := o.src.Stat(ctx, m.ring.Load().full(name))
	return m.ring.Load().shown(st), m.ring.Load().failed(err)
}

// ReadAt is Source's.
func (m *Mux) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	o, err := m.of(obj.Name)
	if err != nil {
		return err
	}
	return m.ring.Load().failed(o.src.ReadAt(ctx, m.ring.Load().of(obj), p, off))
}

// List is Source's.
func (m *Mux) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	o, err := m.of(prefix)
	if err != nil {
		return func(yield func(source.Info, error) bool) { yield(source.Info{}, err) }
	}
	return m.ring.Load().each(o.src.List(ctx, m.ring.Load().full(prefix)))
}

// ReadHot is Hot's. A source that is not Hot always waits.
func (m *Mux) ReadHot(ctx context.Context, obj source.Info, p []byte, off int64, wait bool) (hot bool, err error) {
	o, err := m.of(obj.Name)
	if err != nil {
		return false, err
	}
	switch obj = m.ring.Load().of(obj); {
	case o.hot != nil:
		hot, err = o.hot.ReadHot(ctx, obj, p, off, wait)
	case wait:
		err = o.src.ReadAt(ctx, obj, p, off)
	}
	return hot, m.ring.Load().failed(err)
}

// Run is Runner's.
func (m *Mux) Run(obj source.Info) (source.Run, bool) {
	if o, err := m.of(obj.Name); err == nil && o.run != nil {
		return o.run.Run(m.ring.Load().of(obj))
	}
	return source.Run{}, false
}

// Head is Header's.
func (m *Mux) Head(ctx context.Context, name string, p []byte) (int, error) {
	o, err := m.of(name)
	if err != nil {
		return 0, err
	}
	n, err := source.Head(ctx, o.src, m.ring.Load().full(name), p)
	return n, m.ring.Load().failed(err)
}

// Names is Namer's.
func (m *Mux) Names(ctx context.Context, prefix string) ([]source.Info, error) {
	o, err := m.of(prefix)
	if err != nil {
		return nil, err
	}
	all, err := source.Names(ctx, o.src, m.ring.Load().full(prefix))
	for i := range all {
		all[i] = m.ring.Load().shown(all[i])
	}
	return all, m.ring.Load().failed(err)
}

// Link is Linked's.
func (m *Mux) Link(name string) (source.Link, bool) {
	if o, err := m.of(name); err == nil && o.linked != nil {
		return o.linked.Link(m.ring.Load().full(name))
	}
	return source.Link{}, false
}

// Walk is Walker's, over every source.
func (m *Mux) Walk(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	o, err := m.of(prefix)
	if err != nil {
		return func(yield func(source.Info, error) bool) { yield(source.Info{}, err) }
	}
	return m.ring.Load().each(source.Walk(ctx, o.src, m.ring.Load().full(prefix)))
}

// Begin is Prefixer's, over every source.
func (m *Mux) Begin(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	o, err := m.of(prefix)
	if err != nil {
		return func(yield func(source.Info, error) bool) { yield(source.Info{}, err) }
	}
	return m.ring.Load().each(source.Begin(ctx, o.src, m.ring.Load().full(prefix)))
}

// Can is Able's.
func (m *Mux) Can(prefix string) source.Abilities {
	o, err := m.of(prefix)
	if err != nil {
		return source.Abilities{}
	}
	return source.Can(o.src, m.ring.Load().full(prefix))
}
