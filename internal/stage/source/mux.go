package source

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Scheme is a kind of storage and how its source is made. Whoever opens datasets has
// a list of these, and knows no source besides.
type Scheme struct {
	// Name is what names of the scheme begin with, before "://"; "file" has the names
	// without a scheme too.
	Name string
	// Open makes the source. It is called at most once, for the first name of the
	// scheme, and must not wait for anything. A source that is an io.Closer is closed
	// with its Mux.
	Open func(Access) (Source, error)
	// Parts is how many parts of a name, after the "://", decide how it is reached: one
	// (0), such as a bucket, a container or a host, or more.
	Parts int
}

// Local is the scheme of local files.
func Local() Scheme {
	return Scheme{Name: "file", Open: func(Access) (Source, error) { return NewFile(), nil }}
}

// Place is the names that a user gave, as they were given, and how their store is reached.
type Place struct {
	Names  []string // may have braces, patterns, signed queries, and users with passwords
	Access Access
}

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
	Scheme
	access  Access
	buckets []string // whose names it has; nil: all of the scheme
	once    sync.Once
	src     Source
	hot     Hot    // src, or nil
	run     Runner // src, or nil
	linked  Linked // src, or nil
	err     error
}

// NewMux makes a Mux of a list of schemes, whose sources are made with access.
func NewMux(schemes []Scheme, access Access) *Mux {
	m := &Mux{}
	for _, s := range schemes {
		m.add(&opened{Scheme: s, access: access})
	}
	return m
}

// NewMuxOf makes a Mux for the names of several places, and for those that are found
// there. One bucket cannot be reached in two ways.
func NewMuxOf(schemes []Scheme, places []Place) (*Mux, error) {
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
	if !slices.ContainsFunc(names, func(n string) bool { return Shown(n) != n }) {
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
		out[i] = Shown(n)
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
func waysOf(s Scheme, places []Place) (ways []*opened, err error) {
	of := map[string]*opened{} // by bucket
	for _, p := range places {
		for _, name := range p.Names {
			name = strings.TrimPrefix(name, "@") // of a list
			if SchemeOf(name) != s.Name || s.Name == "file" {
				continue
			}
			at := slices.IndexFunc(ways, func(o *opened) bool { return o.access.Storage == p.Access.Storage })
			if at < 0 {
				at = len(ways)
				ways = append(ways, &opened{Scheme: s, access: p.Access})
				ways[at].access.Written = &Written{}
			}
			way := ways[at]
			way.access.Written.Names = append(way.access.Written.Names, name)
			for _, bucket := range s.buckets(name) {
				if of[bucket] == nil {
					of[bucket] = way
					way.buckets = append(way.buckets, bucket)
				}
				if of[bucket] != way {
					return nil, errs.New(errs.Config, "%s has two different settings of dataset.storage", quote(s.Name+"://"+bucket)).At(where(Shown(name), -1)).
						Try("give all datasets of one bucket the same storage")
				}
			}
		}
	}
	switch len(ways) {
	case 0: // nothing but what a table names, if that
		return []*opened{{Scheme: s, access: first(places)}}, nil
	case 1:
		ways[0].buckets = nil
	}
	return ways, nil
}

func first(places []Place) Access {
	if len(places) == 0 {
		return Access{}
	}
	return places[0].Access
}

// buckets are the parts of names that decide how they are reached, of all names that the
// braces of one stand for.
func (s Scheme) buckets(name string) []string {
	parts := max(s.Parts, 1)
	_, rest := split(Shown(name))
	words := strings.Split(rest, "/")
	bucket := strings.Join(words[:min(parts, len(words))], "/")
	names, err := Braces(bucket)
	if err != nil { // the braces go on in what follows
		names = []string{bucket}
	}
	return names
}

// has reports whether a source has a name of its scheme.
func (o *opened) has(name string) bool {
	_, rest := split(name)
	return o.buckets == nil || slices.ContainsFunc(o.buckets, func(b string) bool {
		return strings.HasPrefix(rest, b) && (len(rest) == len(b) || rest[len(b)] == '/')
	})
}

// of is the source of a name. Every read comes by here: an absolute path is told from
// other names by its first byte.
func (m *Mux) of(name string) (*opened, error) {
	o := m.local
	if len(name) == 0 || name[0] != '/' {
		if scheme := SchemeOf(name); scheme != "" {
			at := slices.IndexFunc(m.all, func(o *opened) bool { return o.Name == scheme })
			if at < 0 {
				return nil, m.unknown(name, scheme)
			}
			if m.all[at].buckets != nil {
				at = slices.IndexFunc(m.all, func(o *opened) bool { return o.Name == scheme && o.has(name) })
			}
			if at < 0 {
				return nil, errs.New(errs.Config, "%s could be reached in several ways, because the datasets of the mixture have different settings", quote(Shown(name))).
					At(where(Shown(name), -1)).Try("add its folder to the origins of the dataset that names it")
			}
			o = m.all[at]
		}
	}
	if o == nil {
		return nil, m.unknown(name, "file")
	}
	o.once.Do(func() {
		if o.src, o.err = o.Open(o.access); o.err == nil {
			o.hot, _ = o.src.(Hot)
			o.run, _ = o.src.(Runner)
			o.linked, _ = o.src.(Linked)
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
	return errs.New(errs.Config, "%s has the scheme %s://, but stoker reads only %s", quote(Shown(name)), scheme, strings.Join(known, ", ")).
		At(where(Shown(name), -1)).Try("%s", cmp.Or(hint, "copy or mount the data, and give its path"))
}

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
func (m *Mux) Stat(ctx context.Context, name string) (Info, error) {
	o, err := m.of(name)
	if err != nil {
		return Info{}, err
	}
	st, err := o.src.Stat(ctx, m.ring.Load().full(name))
	return m.ring.Load().shown(st), m.ring.Load().failed(err)
}

// ReadAt is Source's.
func (m *Mux) ReadAt(ctx context.Context, obj Info, p []byte, off int64) error {
	o, err := m.of(obj.Name)
	if err != nil {
		return err
	}
	return m.ring.Load().failed(o.src.ReadAt(ctx, m.ring.Load().of(obj), p, off))
}

// List is Source's.
func (m *Mux) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	o, err := m.of(prefix)
	if err != nil {
		return func(yield func(Info, error) bool) { yield(Info{}, err) }
	}
	return m.ring.Load().each(o.src.List(ctx, m.ring.Load().full(prefix)))
}

// ReadHot is Hot's. A source that is not Hot always waits.
func (m *Mux) ReadHot(ctx context.Context, obj Info, p []byte, off int64, wait bool) (hot bool, err error) {
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
func (m *Mux) Run(obj Info) (Run, bool) {
	if o, err := m.of(obj.Name); err == nil && o.run != nil {
		return o.run.Run(m.ring.Load().of(obj))
	}
	return Run{}, false
}

// Head is Header's.
func (m *Mux) Head(ctx context.Context, name string, p []byte) (int, error) {
	o, err := m.of(name)
	if err != nil {
		return 0, err
	}
	n, err := Head(ctx, o.src, m.ring.Load().full(name), p)
	return n, m.ring.Load().failed(err)
}

// Names is Namer's.
func (m *Mux) Names(ctx context.Context, prefix string) ([]Info, error) {
	o, err := m.of(prefix)
	if err != nil {
		return nil, err
	}
	all, err := Names(ctx, o.src, m.ring.Load().full(prefix))
	for i := range all {
		all[i] = m.ring.Load().shown(all[i])
	}
	return all, m.ring.Load().failed(err)
}

// Link is Linked's.
func (m *Mux) Link(name string) (Link, bool) {
	if o, err := m.of(name); err == nil && o.linked != nil {
		return o.linked.Link(m.ring.Load().full(name))
	}
	return Link{}, false
}

// Walk is Walker's, over every source.
func (m *Mux) Walk(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	o, err := m.of(prefix)
	if err != nil {
		return func(yield func(Info, error) bool) { yield(Info{}, err) }
	}
	return m.ring.Load().each(Walk(ctx, o.src, m.ring.Load().full(prefix)))
}

func (m *Mux) begin(ctx context.Context, prefix string) (iter.Seq2[Info, error], bool) {
	return m.some(ctx, prefix, Begin)
}

func (m *Mux) flat(ctx context.Context, prefix string) (iter.Seq2[Info, error], bool) {
	return m.some(ctx, prefix, Flat)
}

// some is a listing that only some sources have.
func (m *Mux) some(ctx context.Context, prefix string, of func(context.Context, Source, string) (iter.Seq2[Info, error], bool)) (iter.Seq2[Info, error], bool) {
	o, err := m.of(prefix)
	if err != nil {
		return nil, false
	}
	all, ok := of(ctx, o.src, m.ring.Load().full(prefix))
	if !ok {
		return nil, false
	}
	return m.ring.Load().each(all), true
}

func (m *Mux) namesOnly(prefix string) bool {
	o, err := m.of(prefix)
	return err == nil && namesOnly(o.src, prefix)
}
