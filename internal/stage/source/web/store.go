package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// store is the servers of all names, as a remote.Store.
type store struct {
	net    *remote.Net
	access source.Access
	login  *login
	places places
	ranged sync.Map // hosts that have answered with a range
	noHead sync.Map // hosts that refuse HEAD
	// loose are hosts to which times are not sent as a condition: they refused what had not
	// changed. Some compare fractions of a second, which their own answers leave out.
	loose sync.Map
}

var (
	_ remote.Store  = (*store)(nil)
	_ remote.Header = (*store)(nil)
)

// Host is remote.Store's.
func (s *store) Host(name string) string {
	_, host, _ := strings.Cut(source.HostOf(name), "://")
	return strings.Clone(host)
}

// Stat is remote.Store's. A server redirects the name of a folder to the same with a slash.
func (s *store) Stat(ctx context.Context, name string) (source.Info, error) {
	host := s.Host(name)
	if _, no := s.noHead.Load(host); no {
		return s.probe(ctx, name)
	}
	a, err := s.do(ctx, http.MethodHead, name, nil)
	if err != nil {
		return source.Info{}, err
	}
	defer a.done()
	switch {
	case a.folder:
		return source.Info{Name: strings.TrimSuffix(strings.Clone(name), "/"), Dir: true}, nil
	case a.StatusCode == http.StatusOK:
		if err := encoded(name, a.Header); err != nil {
			return source.Info{}, err
		}
		if a.ContentLength > 0 {
			return source.Info{Name: strings.Clone(name), Size: a.ContentLength, Version: version(a.Header)}, nil
		}
		return s.probe(ctx, name) // no length, or 0 from a server that does not count for a HEAD
	case a.StatusCode == http.StatusMethodNotAllowed, a.StatusCode == http.StatusNotImplemented, a.StatusCode == http.StatusForbidden:
		st, err := s.probe(ctx, name) // a signature may be for GET alone
		if err == nil {
			s.noHead.Store(host, true)
		}
		return st, err
	}
	return source.Info{}, a.refused(name)
}

// probe is Stat by a request of the first byte.
func (s *store) probe(ctx context.Context, name string) (source.Info, error) {
	a, err := s.do(ctx, http.MethodGet, name, http.Header{"Range": {"bytes=0-0"}})
	if err != nil {
		return source.Info{}, err
	}
	defer a.done()
	st := source.Info{Name: strings.Clone(name), Size: -1, Version: version(a.Header)}
	switch {
	case a.folder:
		return source.Info{Name: strings.TrimSuffix(st.Name, "/"), Dir: true}, nil
	case a.StatusCode == http.StatusPartialContent && encoded(name, a.Header) == nil:
		if st.Size, err = remote.Part(a.Header, a.StatusCode, 0, 1); err != nil {
			return source.Info{}, err
		}
		s.ranged.Store(s.Host(name), true)
	case a.StatusCode == http.StatusRequestedRangeNotSatisfiable: // it has no first byte
		if _, _, size, ok := remote.ContentRange(a.Header.Get("Content-Range")); !ok || size == 0 {
			st.Size = 0
		}
	case a.StatusCode == http.StatusOK:
		st.Size = a.ContentLength
	case a.StatusCode == http.StatusPartialContent:
	default:
		return source.Info{}, a.refused(name)
	}
	if err := encoded(name, a.Header); err != nil {
		return source.Info{}, err
	}
	if st.Size < 0 {
		return source.Info{}, errs.New(errs.Unsupported, "the server does not report the size of the file").At(at(name)).
			Try("a program that generates the answer, or a proxy, may leave it out: have the server send the stored file, or download it and give its path")
	}
	return st, nil
}

// Read is remote.Store's.
func (s *store) Read(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	_, loose := s.loose.Load(s.Host(obj.Name))
	return s.read(ctx, obj, p, off, loose)
}

// read is Read. If loose, the request has no time as its condition; the time of the answer
// must be the object's instead.
func (s *store) read(ctx context.Context, obj source.Info, p []byte, off int64, loose bool) (int, error) {
	h := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)}}
	modified, since := strings.CutPrefix(obj.Version, byTime)
	switch {
	case since && !loose:
		h.Set("If-Unmodified-Since", modified)
	case obj.Version != "" && !since:
		h.Set("If-Match", obj.Version)
	}
	a, err := s.do(ctx, http.MethodGet, obj.Name, h)
	if err != nil {
		return 0, err
	}
	defer a.done()
	switch {
	case a.StatusCode == http.StatusPreconditionFailed && since && !loose:
		return s.read(ctx, obj, p, off, true)
	case a.StatusCode == http.StatusPreconditionFailed, a.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return 0, remote.Changed(obj, "the server answered %d", a.StatusCode)
	}
	if err := s.part(a, obj.Name); err != nil {
		return 0, err
	}
	size, err := remote.Part(a.Header, a.StatusCode, off, int64(len(p)))
	if size >= 0 && err == nil && size != obj.Size {
		return 0, remote.Changed(obj, "it has %d bytes, and had %d", size, obj.Size)
	}
	switch v := version(a.Header); {
	case v == obj.Version, obj.Version == "":
	case v == "" && since && !loose: // a part may leave out the time that was a condition of it
	case !since && (v == "" || strings.HasPrefix(v, byTime)):
		return 0, remote.Unversioned(obj, "ETag")
	case v == "":
		return 0, remote.Unversioned(obj, "Last-Modified")
	default:
		return 0, remote.Changed(obj, "its version was %[2]q and is now %[1]q", v, obj.Version)
	}
	if err != nil {
		return 0, err
	}
	if since && loose {
		s.loose.Store(s.Host(obj.Name), true)
	}
	n, err := remote.Fill(ctx, obj.Name, a.Body, p)
	if err != nil {
		return n, err
	}
	if err := compare(obj.Name, a.Header, p, int64(len(p)) == obj.Size); err != nil {
		return 0, err
	}
	return n, nil
}

// part says whether an answer may be the part that was requested.
func (s *store) part(a *answer, name string) error {
	host := s.Host(name)
	switch {
	case a.folder:
		return isFolder(name)
	case a.StatusCode == http.StatusPartialContent:
		if _, known := s.ranged.Load(host); !known {
			s.ranged.Store(host, true)
		}
		return nil
	case a.StatusCode == http.StatusOK:
		if _, known := s.ranged.Load(host); known {
			return nil // a fault of that answer: remote.Part says so
		}
		// Config: no sample is bad because of it, so on_bad does not skip any.
		return errs.New(errs.Config, "the server does not support range requests, so reading one sample would download its whole file").At(at(name)).
			Try("download the files and give their path, or use a server that does, such as nginx")
	}
	return a.refused(name)
}

// Head is remote.Header's.
func (s *store) Head(ctx context.Context, name string, p []byte) (int, error) {
	a, err := s.do(ctx, http.MethodGet, name, http.Header{"Range": {fmt.Sprintf("bytes=0-%d", len(p)-1)}})
	if err != nil {
		return 0, err
	}
	defer a.done()
	switch {
	case a.StatusCode == http.StatusRequestedRangeNotSatisfiable, a.StatusCode == http.StatusOK && a.ContentLength == 0 && !a.folder:
		return 0, nil // it is empty
	}
	if err := s.part(a, name); err != nil {
		return 0, err
	}
	n := int64(len(p))
	if _, last, size, ok := remote.ContentRange(a.Header.Get("Content-Range")); ok && (last == size-1 || size < 0) {
		n = min(n, last+1)
	}
	if _, err := remote.Part(a.Header, a.StatusCode, 0, n); err != nil {
		return 0, err
	}
	return remote.Fill(ctx, name, a.Body, p[:n])
}

// Page is remote.Store's: the index page of a folder has all of it.
func (s *store) Page(ctx context.Context, dir string, _ bool, _ string) (remote.Page, error) {
	if strings.Contains(dir, "?") {
		return remote.Page{}, errs.New(errs.Unsupported, "a URL with a query names one file, and cannot be listed").At(at(dir)).
			Try("name the files in a list: @https://HOST/LIST.txt, one URL per line")
	}
	a, err := s.do(ctx, http.MethodGet, dir+"/", nil)
	if err != nil {
		return remote.Page{}, err
	}
	defer a.done()
	if a.StatusCode != http.StatusOK {
		return remote.Page{}, noIndex(a.refused(dir))
	}
	if err := encoded(dir, a.Header); err != nil {
		return remote.Page{}, err
	}
	names, ended, err := readIndex(a.Header.Get("Content-Type"), a.url, a.Body)
	if err == nil && !ended {
		err = errNoEnd
	}
	if err := a.unlisted(ctx, dir, err); err != nil {
		return remote.Page{}, err
	}
	page := remote.Page{Folder: true, Entries: make([]source.Info, len(names))}
	for i, n := range names {
		page.Entries[i] = source.Info{Name: strings.Clone(dir) + "/" + strings.TrimSuffix(n, "/"), Dir: strings.HasSuffix(n, "/")}
	}
	return page, nil
}

// noIndex says what else to try if a folder is not listed.
func noIndex(err error) error {
	if e := errs.From(err); errs.CodeOf(err) == errs.Denied {
		more := *e
		more.What += ": it may not list this folder"
		more.Hint = "name the files with braces ({000..099}) or in a list (@https://HOST/LIST.txt); if it lists folders for known users, " + e.Hint
		return &more
	}
	return err
}

func isFolder(name string) error {
	return errs.New(errs.Unreadable, "this is a folder, not a file").At(at(name)).
		Try("give the name of a file in it")
}

// encoded is the error of an answer that is not the file but a compressed form of it, whose
// bytes are at other places.
func encoded(name string, h http.Header) error {
	e := h.Get("Content-Encoding")
	if e == "" || e == "identity" {
		return nil
	}
	return errs.New(errs.Unsupported, "the server sends this file encoded (Content-Encoding: %s), which was not requested", errs.Name(e)).At(at(name)).
		Try("have it send the stored file unchanged, without Content-Encoding or compression by the server or a proxy")
}

// byTime begins versions that are times: ETags begin with a quotation mark.
const byTime = "modified "

// version distinguishes contents of one name: a strong ETag, or when it was last
// modified. A weak ETag may stay when bytes change.
func version(h http.Header) string {
	if e := h.Get("ETag"); len(e) > 2 && len(e) <= 1024 && e[0] == '"' && e[len(e)-1] == '"' {
		return e
	}
	if m := h.Get("Last-Modified"); m != "" && len(m) <= 64 {
		return byTime + m
	}
	return ""
}
