package source

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"

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
}

// Local is the scheme of local files.
func Local() Scheme {
	return Scheme{Name: "file", Open: func(Access) (Source, error) { return NewFile(), nil }}
}

// Mux is the source of all names: the scheme of a name says which source it is passed
// on to. Sources see names with their scheme; local files are called by their paths.
type Mux struct {
	access Access
	local  *opened // nil: local files are not on the list
	all    []*opened
}

// opened is a scheme whose source is made when it is first asked for.
type opened struct {
	Scheme
	once   sync.Once
	src    Source
	hot    Hot    // src, or nil
	run    Runner // src, or nil
	linked Linked // src, or nil
	err    error
}

// NewMux makes a Mux of a list of schemes, whose sources are made with access.
func NewMux(schemes []Scheme, access Access) *Mux {
	m := &Mux{access: access}
	for _, s := range schemes {
		o := &opened{Scheme: s}
		m.all = append(m.all, o)
		if s.Name == "file" {
			m.local = o
		}
	}
	return m
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
			o = m.all[at]
		}
	}
	if o == nil {
		return nil, m.unknown(name, "file")
	}
	o.once.Do(func() {
		if o.src, o.err = o.Open(m.access); o.err == nil {
			o.hot, _ = o.src.(Hot)
			o.run, _ = o.src.(Runner)
			o.linked, _ = o.src.(Linked)
		}
	})
	return o, o.err
}

func (m *Mux) unknown(name, scheme string) error {
	var known []string
	for _, o := range m.all {
		if o.Name == "file" {
			known = append(known, "local files")
		} else {
			known = append(known, o.Name+"://")
		}
	}
	return errs.New(errs.Config, "%s has the scheme %s://, and stoker reads %s only", quote(name), scheme, strings.Join(known, ", ")).
		At(where(name, -1)).Try("copy or mount the data, and give its path")
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
	return o.src.Stat(ctx, name)
}

// ReadAt is Source's.
func (m *Mux) ReadAt(ctx context.Context, obj Info, p []byte, off int64) error {
	o, err := m.of(obj.Name)
	if err != nil {
		return err
	}
	return o.src.ReadAt(ctx, obj, p, off)
}

// List is Source's.
func (m *Mux) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	o, err := m.of(prefix)
	if err != nil {
		return func(yield func(Info, error) bool) { yield(Info{}, err) }
	}
	return o.src.List(ctx, prefix)
}

// ReadHot is Hot's. A source that is not Hot always waits.
func (m *Mux) ReadHot(ctx context.Context, obj Info, p []byte, off int64, wait bool) (hot bool, err error) {
	o, err := m.of(obj.Name)
	switch {
	case err != nil:
		return false, err
	case o.hot != nil:
		return o.hot.ReadHot(ctx, obj, p, off, wait)
	case wait:
		return false, o.src.ReadAt(ctx, obj, p, off)
	}
	return false, nil
}

// Run is Runner's.
func (m *Mux) Run(obj Info) (Run, bool) {
	if o, err := m.of(obj.Name); err == nil && o.run != nil {
		return o.run.Run(obj)
	}
	return Run{}, false
}

// Head is Header's.
func (m *Mux) Head(ctx context.Context, name string, p []byte) (int, error) {
	o, err := m.of(name)
	if err != nil {
		return 0, err
	}
	return Head(ctx, o.src, name, p)
}

// Names is Namer's.
func (m *Mux) Names(ctx context.Context, prefix string) ([]Info, error) {
	o, err := m.of(prefix)
	if err != nil {
		return nil, err
	}
	return Names(ctx, o.src, prefix)
}

// Link is Linked's.
func (m *Mux) Link(name string) (Link, bool) {
	if o, err := m.of(name); err == nil && o.linked != nil {
		return o.linked.Link(name)
	}
	return Link{}, false
}

// Walk is Walker's, over every source.
func (m *Mux) Walk(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	o, err := m.of(prefix)
	if err != nil {
		return func(yield func(Info, error) bool) { yield(Info{}, err) }
	}
	return Walk(ctx, o.src, prefix)
}

func (m *Mux) begin(ctx context.Context, prefix string) (iter.Seq2[Info, error], bool) {
	if o, err := m.of(prefix); err == nil {
		return Begin(ctx, o.src, prefix)
	}
	return nil, false
}

func (m *Mux) flat(ctx context.Context, prefix string) (iter.Seq2[Info, error], bool) {
	if o, err := m.of(prefix); err == nil {
		return Flat(ctx, o.src, prefix)
	}
	return nil, false
}
